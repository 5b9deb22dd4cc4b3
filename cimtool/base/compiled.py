"""Compilation of kernels, and blocks of rows spread over threads."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from threadpoolctl import ThreadpoolController

from cimtool.base.arrays import Array
from cimtool.base.cpu import settle

Item = TypeVar("Item")
Result = TypeVar("Result")
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

settle()

CACHE_LINE = 64

PACKAGE = Path(__file__).parents[1]
IMPORTS = re.compile(r"^from cimtool\.?([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def _sources(file: Path) -> frozenset[Path]:
    """A source and those of the package that it imports as it is loaded, and these in turn."""
    found = {file}
    for module, names in IMPORTS.findall(file.read_text("utf-8")):
        place = PACKAGE / module.replace(".", "/")
        inside = (place / f"{name}.py" for name in ("__init__", *re.findall(r"\w+", names)))
        for one in (place.with_suffix(".py"), *inside):
            if one.is_file():
                found |= _sources(one)
    return frozenset(found)


@cache
def stamp(file: Path) -> str:
    """A digest of all that the kernels of a source are made of."""
    digest = hashlib.sha256()
    for source in sorted(_sources(file)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at first use, without the interpreter's lock, and keep the code between runs.

    numba takes kept code for current as long as the function's own file is as it was. Kernels call
    functions of other files, so the digest of those becomes a part of the name that code is kept
    by.
    """
    function.__qualname__ = f"{function.__qualname__}_{stamp(Path(function.__code__.co_filename))}"
    try:
        compiled = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor a home can hold numba's cache
        compiled = numba.njit(nogil=True, **options)(function)
    return cast(Callable[..., Any], compiled)


def jit_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each caller: what it returns may stay in registers."""
    return jit(function, forceinline=True)


SUMS = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
"""Options of kernels whose sums are in any order; a quotient by 0 is infinite."""


def jit_sums(function: Kernel) -> Kernel:
    """Compile for sums in any order, in vectors; no kernel calls it, see `jit_summand`."""
    return cast(Kernel, jit(function, **SUMS))


def jit_summand(function: Kernel) -> Kernel:
    """Compile for sums in any order, as a part of each kernel that calls it.

    A kernel that is called has copies, its own and one in the code of each caller, of which the
    first that the process loads runs in all. Optimised apart, they may add in different orders.
    """
    return cast(Kernel, jit(function, forceinline=True, **SUMS))


FUSED = {"error_model": "numpy", "fastmath": {"contract"}}
"""Options of kernels whose sums are in the order written; a product and a sum may round once."""


def jit_fused(function: Kernel) -> Kernel:
    """Compile with fused products, for kernels that are vectors of numbers side by side."""
    return cast(Kernel, jit(function, **FUSED))


def jit_fused_part(function: Kernel) -> Kernel:
    """Compile with fused products, as a part of each kernel that calls it."""
    return cast(Kernel, jit(function, forceinline=True, **FUSED))


def thread_count() -> int:
    """Threads for blocks of rows: the cores that this process may use, or fewer, OMP_NUM_THREADS.

    A value that is no number, as `4,2` of nested threads, is as none.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    number = re.fullmatch(r"[0-9]{1,9}", asked)
    return max(1, min(cores or 1, int(asked) if number else cores or 1))


_inside = threading.local()


def map_rows(function: Callable[[slice], Result], rows: int, height: int) -> list[Result]:
    """Call with blocks of at most `height` of the rows, side by side."""
    step = height if _nested() else max(1, min(height, -(-rows // thread_count())))
    starts = range(0, max(rows, 1), step)
    return side_by_side(function, [slice(start, min(start + step, rows)) for start in starts])


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call with every item, in threads that each have a BLAS of one; in this thread if one does.

    Two pools that wait for each other would stall; calls from within such a thread run there.
    """
    if _nested():
        return [function(item) for item in items]
    threads = min(thread_count(), len(items))
    errors = np.geterr()

    def call(item: Item) -> Result:
        with np.errstate(**errors):  # a new thread has NumPy's own
            return function(item)

    with one_blas_thread:
        if threads > 1:
            with ThreadPoolExecutor(threads, initializer=_enter) as pool:
                return list(pool.map(call, items))
        _enter()
        try:
            return [function(item) for item in items]
        finally:
            _inside.block = False


def _nested() -> bool:
    return getattr(_inside, "block", False)


def _enter() -> None:
    _inside.block = True


AHEAD = 2
"""Calls of `ahead` that run, or have run, while the caller works on what one returned."""


def ahead(calls: Sequence[Callable[[], Result]]) -> Iterator[Result]:
    """Yield what each call returns, in order; the next two run while the caller works on it.

    Side by side, each with a BLAS of one thread.
    """
    if thread_count() == 1 or _nested():
        yield from (call() for call in calls)
        return
    errors = np.geterr()

    def run(call: Callable[[], Result]) -> Result:
        with np.errstate(**errors):  # a new thread has NumPy's own
            return call()

    coming: deque[Future[Result]] = deque()
    with one_blas_thread, ThreadPoolExecutor(AHEAD) as pool:
        for call in calls:
            coming.append(pool.submit(run, call))
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS that NumPy has loaded; to find it takes milliseconds.

    Without other libraries, of which each limit would ask how many threads they have.
    """
    return ThreadpoolController().select(user_api="blas")


class _OneBlasThread:
    """A thread a product of NumPy's, from the first of those who ask at once to the last."""

    def __init__(self) -> None:
        self._lock, self._users, self._limit = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limit.enter_context(_libraries().limit(limits=1))
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.close()


one_blas_thread = _OneBlasThread()
"""A context in which NumPy's products take one thread; whoever leaves it last restores them."""


def aligned(values: Array) -> Array:
    """The values, flat, from the beginning of a cache line: vectors do not cross its end."""
    flat = np.ascontiguousarray(values).reshape(-1)
    room = np.empty(flat.nbytes + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    found = room[start : start + flat.nbytes].view(flat.dtype)
    found[:] = flat
    return found
