"""Shared by all benchmarks: threads, timing side by side, peak memory, the table and its JSON."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from llvmlite import binding
from threadpoolctl import threadpool_limits

import cimtool

THREADS = 2
REST = 0.1
"""Seconds after which no pool's threads spin any more."""

CPU_FEATURES = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8")

Row = Mapping[str, Any]


def parser(description: str, rounds: int) -> argparse.ArgumentParser:
    """The options of every benchmark: `--rounds`, `--json`."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--rounds", type=int, default=rounds, help="the best of so many counts")
    found.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    return found


def arguments(description: str, rounds: int) -> argparse.Namespace:
    """Those options, as they were given."""
    return parser(description, rounds).parse_args()


def use_threads(count: int = THREADS) -> None:
    """Give BLAS, torch and the simulator's own pool the same number of threads."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    threadpool_limits(count)
    torch.set_num_threads(count)


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def side_by_side(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best wall time of each candidate of `all_rounds`."""
    taken = all_rounds(candidates, rounds)
    return {name: min(values) for name, values in taken.items()}


def all_rounds(
    candidates: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Wall times of each candidate, the rounds interleaved: all see the same busy machine.

    One call of each comes first and does not count: it compiles, packs and touches memory. Before
    each that counts the machine rests: threads of another library's pool spin on for a while.
    """
    for function in candidates.values():
        function()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            time.sleep(REST)
            taken[name].append(seconds(function))
    return taken


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in a new process, whose peak memory is the function's own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def peak_bytes() -> int:
    """Most memory that this process has held so far, or since `forget_peak`; Linux alone.

    `ru_maxrss` would not do: it starts with the peak of the process that started this one.
    """
    return _status("VmHWM")


def trimmed_bytes() -> int:
    """Memory that this process holds now, freed pages given back first; Linux with glibc alone."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def forget_peak() -> None:
    """Start `peak_bytes` anew; Linux alone."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    (line,) = (one for one in lines if one.startswith(key + ":"))
    return int(line.split()[1]) * 1024


def report(name: str, rows: Sequence[Row], file: Path | None, notes: Sequence[str] = ()) -> None:
    """Print rows of equal keys as a Markdown table, and write them with the machine as JSON."""
    print_table(rows)
    for note in notes:
        print(note)
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if file is not None:
        values = {"benchmark": name, "rows": rows, "notes": list(notes), "machine": machine()}
        file.write_text(json.dumps(values, indent=1) + "\n", "utf-8")


def print_table(rows: Sequence[Row]) -> None:
    """Print rows of equal keys as a Markdown table."""
    cells = [[str(key) for key in rows[0]], *([_cell(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(f"| {' | '.join(padded)} |")


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def machine() -> dict[str, str]:
    """Conditions of the measurements: the CPU by LLVM's name, its features, threads, versions."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text("utf-8").split() if cpuinfo.exists() else []
    features = [feature for feature in CPU_FEATURES if feature in flags]
    return {
        "processor": binding.get_host_cpu_name(),
        "cpu": f"{platform.machine()} {' '.join(features) or '(features not known)'}",
        "cores": str(os.cpu_count()),
        "threads": str(THREADS),
        "cimtool": cimtool.__version__,
        "numpy": np.__version__,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
