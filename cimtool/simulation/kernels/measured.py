"""The choice between kernels of the same integers by a short measurement at first use.

What was measured is kept beside the compiled kernels, by the CPU's name, the instruction sets that
are on and what the kernels are made of.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llvmlite import binding

from cimtool.base.compiled import stamp, switched_on
from cimtool.base.folders import read_object
from cimtool.base.threads import side_by_side
from cimtool.simulation.kernels import dot

KEPT = "measured.json"
"""The file of measured ratios, by the CPU and what was measured."""

ROUNDS = 9
GAIN = 1.1
"""A kernel takes another's place where it is so many times faster: what is near stays as it is."""


def faster(key: str, measure: Callable[[], float]) -> bool:
    """Tell whether a kernel is to take another's place, by a measured `ratio` of their rates.

    It is measured once for a key, the CPU, its instruction sets and the code of all kernels.
    """
    kernels = stamp(Path(__file__).with_name("operations.py"))
    sets = hashlib.sha256(" ".join(sorted(switched_on())).encode()).hexdigest()[:12]
    cpu = f"{binding.get_host_cpu_name()}, sets {sets}"
    key, known = f"{cpu}, kernels {kernels}, {key}", _known()
    if key not in known:
        known[key] = measure()
        _keep(key, known[key])
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
    """Rates that earlier processes measured."""
    file = _cache_file()
    return {} if file is None else _rates(file)


def _rates(file: Path) -> dict[str, float]:
    """The rates in a file; none where it cannot be read, and nothing in it that is no rate."""
    found = read_object(file) or {}
    return {key: one for key, one in found.items() if isinstance(one, float) and one >= 0}


def _keep(key: str, rate: float) -> None:
    """Keep a rate for later processes, beside theirs, where the folder can be written."""
    file = _cache_file()
    if file is None:
        return
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with _alone_in(file.parent):
            try:
                kept = _rates(file) | {key: rate}
                beside.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
                beside.replace(file)
            finally:
                beside.unlink(missing_ok=True)
    except OSError:
        pass  # it is measured again


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for others that keep a rate in a folder; they wait until the end."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
