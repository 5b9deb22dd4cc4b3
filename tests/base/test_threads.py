"""Work side by side, and what comes next."""

from __future__ import annotations

import os
import threading
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from cimtool.base import threads as module


def threads_of(calls: int, monkeypatch: pytest.MonkeyPatch, asked: str) -> set[int]:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    return set(module.side_by_side(lambda _: threading.get_ident(), range(calls)))


def test_one_thread_is_the_callers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {threading.get_ident()}
    assert threads_of(3, monkeypatch, "1") == threads_of(1, monkeypatch, "2") == here
    nested = module.side_by_side(lambda _: threads_of(2, monkeypatch, "1"), [0])
    assert nested == [here]
    assert module.side_by_side(abs, []) == []


@pytest.mark.parametrize("asked", ["", "²", "٢", "4,2", "-1", "many", "9" * 5000])
def test_what_is_no_number_of_threads_leaves_all_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(3)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert module.thread_count() == 3
    for number, threads in (("0", 1), ("2", 2), ("99", 3)):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        assert module.thread_count() == threads


def test_an_error_of_the_callers_own_thread_leaves_it_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError):
        module.side_by_side(lambda x: 1 // x, [0])
    assert not module._nested()


def test_threads_treat_overflow_as_the_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "thread_count", lambda: 2)
    huge = np.float64(1e300)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        module.side_by_side(lambda x: huge * x, [np.float64(1.0), huge])


@pytest.mark.parametrize("threads", [1, 2])
def test_what_comes_next_is_computed_side_by_side_and_two_ahead(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(module, "thread_count", lambda: threads)
    begun = [threading.Event() for _ in range(4)]

    def call(at: int) -> int:
        begun[at].set()
        if threads == 2 and at == 0:  # ends only once the next one has begun
            assert begun[1].wait(60)
        return at

    found = []
    for value in module.ahead([partial(call, at) for at in range(4)]):
        found.append(value)
        if threads == 2 and value == 0:
            assert begun[2].wait(60)
        if value == 0:
            assert not begun[3 if threads == 2 else 1].is_set()
    assert found == [0, 1, 2, 3]
    assert list(module.ahead([])) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_ahead_is_raised_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(module, "thread_count", lambda: threads)
    found = module.ahead([partial(divmod, 7, 2), partial(divmod, 7, 0)])
    assert next(found) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_blas_has_one_thread_until_the_last_that_asked_has_left() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, limit = threads(), module.one_blas_thread
    with limit:
        with limit:
            pass
        assert set(threads()) == {1}
    assert threads() == before
    assert set(limit(threads)()) == {1}  # as a decorator
    assert threads() == before
