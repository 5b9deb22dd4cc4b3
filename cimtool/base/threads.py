"""Work spread over threads, each with a single-threaded BLAS."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ContextDecorator, ExitStack
from functools import cache
from typing import ParamSpec, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

PAIR_BLOCK = 1 << 18
"""Pairs whose scores are computed at a time."""


def thread_count() -> int:
    """Threads for blocks of rows: this process's cores, or OMP_NUM_THREADS if that is fewer.

    A value that is no number, such as `4,2` for nested threads, is ignored.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    number = re.fullmatch(r"[0-9]{1,9}", asked)
    return max(1, min(cores or 1, int(asked) if number else cores or 1))


_inside = threading.local()


def map_rows(function: Callable[[slice], Result], rows: int, height: int) -> list[Result]:
    """Call with blocks of at most `height` rows, side by side in threads."""
    step = height if _nested() else max(1, min(height, -(-rows // thread_count())))
    starts = range(0, max(rows, 1), step)
    return side_by_side(function, [slice(start, min(start + step, rows)) for start in starts])


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call with every item, in threads with a single-threaded BLAS; in this one if one suffices.

    A call from within such a thread runs in it: two pools that wait for each other would stall.
    """
    if _nested():
        return [function(item) for item in items]
    threads = min(thread_count(), len(items))
    with one_blas_thread:
        if threads > 1:
            with ThreadPoolExecutor(threads, initializer=_enter) as pool:
                return list(pool.map(_as_here(function), items))
        _enter()
        try:
            return [function(item) for item in items]
        finally:
            _inside.block = False


def _as_here(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function with this thread's `np.errstate`; a new thread does not inherit it."""
    errors = np.geterr()

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with np.errstate(**errors):
            return function(*args, **kwargs)

    return call


def _nested() -> bool:
    return getattr(_inside, "block", False)


def _enter() -> None:
    _inside.block = True


AHEAD = 2
"""Calls of `ahead` that are started before the caller asks for their results."""


def ahead(calls: Sequence[Callable[[], Result]]) -> Iterator[Result]:
    """Yield what each call returns, in order; the next two run while the caller works on it.

    They run side by side, each with a single-threaded BLAS.
    """
    if thread_count() == 1 or _nested():
        yield from (call() for call in calls)
        return
    coming: deque[Future[Result]] = deque()
    with one_blas_thread, ThreadPoolExecutor(AHEAD) as pool:
        for call in calls:
            coming.append(pool.submit(_as_here(call)))
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS that NumPy has loaded; finding it takes milliseconds.

    Other libraries are left out: each limit would ask for their numbers of threads.
    """
    return ThreadpoolController().select(user_api="blas")


class _OneBlasThread(ContextDecorator):
    """Limits NumPy's products to one thread while at least one caller is inside."""

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
"""A context in which NumPy's products take one thread; the last to leave restores the number.

It decorates a function whose products are many and small: between them the other threads of BLAS
wait in loops, which takes the time of a core.
"""
