"""The choice between kernels of the same integers by a short measurement at first use.

What was measured is kept beside the compiled kernels, by the CPU's name and what they are made of.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from llvmlite import binding

from cimtool.base.compiled import side_by_side, stamp
from cimtool.base.folders import read_object
from cimtool.simulation.kernels import dot

KEPT = "measured.json"
"""The file of measured ratios, by the CPU's name and what was measured."""

ROUNDS = 9
GAIN = 1.1
"""A kernel takes another's place where it is so many times faster: what is near stays as it is."""


def faster(key: str, measure: Callable[[], float]) -> bool:
    """Tell whether a kernel is to take another's place, by a measured `ratio` of their rates.

    It is measured once for a key, the CPU and the code of all kernels.
    """
    kernels = stamp(Path(__file__).with_name("operations.py"))
    key, known = f"{binding.get_host_cpu_name()}, kernels {kernels}, {key}", _known()
    if key not in known:
        known[key] = measure()
        _keep(known)
    return known[key] >= GAIN


def ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """The other call's time over that of the first, in one thread, each the best of some rounds."""

    def measured(calls: tuple[Callable[[], object], ...]) -> float:
        taken: list[list[float]] = [[] for _ in calls]
        for _ in range(1 + ROUNDS):
            for call, times in zip(calls, taken, strict=True):
                start = time.thread_time()
                call()
                times.append(time.thread_time() - start)
        first, second = (min(times[1:]) for times in taken)
        return second / max(first, 1e-9)

    (found,) = side_by_side(measured, [(one, other)])
    return found


def _cache_file() -> Path | None:
    """The file in the folder that numba keeps this package's kernels in; None without one."""
    folder = dot.run.stats.cache_path  # type: ignore[attr-defined]
    return Path(folder) / KEPT if folder else None


@functools.cache
def _known() -> dict[str, float]:
    """Rates that earlier processes measured; none where the file cannot be read."""
    file = _cache_file()
    found = {} if file is None else read_object(file) or {}
    numbers = all(isinstance(one, float) for one in found.values())
    return found if numbers else {}


def _keep(known: dict[str, float]) -> None:
    """Keep what was measured for the next process, where the folder can be written."""
    file = _cache_file()
    if file is None:
        return
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError:
        pass  # it is measured again
