"""Compiling kernels, also where numba cannot keep its code, and work side by side."""

from __future__ import annotations

import ast
import os
import threading
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from cimtool.base import compiled


def test_kernels_run_where_numba_cannot_keep_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_njit = numba.njit

    def njit(*functions: object, **options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain_njit(*functions, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled.jit(lambda x: x + 1)(1) == 2


def test_a_kernel_is_named_by_the_sources_that_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own, what that imports as a module or by name, and what those import; no others."""
    made_of = {
        "kernels.py": "from cimtool.room import steps\nfrom cimtool.room.limits import (\n L,\n)\n",
        "room/__init__.py": "",
        "room/steps.py": "from cimtool.deep import D\n",
        "room/limits.py": "L = 1\n",
        "deep.py": "D = 1\n",
    }
    (tmp_path / "room").mkdir()
    for name, text in (made_of | {"room/other.py": ""}).items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)

    def stamp_after(changed: str) -> str:
        (tmp_path / changed).write_text(f"{made_of.get(changed, '')}# changed\n", "utf-8")
        compiled._sources.cache_clear()
        compiled.stamp.cache_clear()
        return compiled.stamp(tmp_path / "kernels.py")

    stamps = [stamp_after(name) for name in made_of]
    assert len(set(stamps)) == len(made_of)
    assert stamp_after("room/other.py") == stamps[-1]


def threads_of(calls: int, monkeypatch: pytest.MonkeyPatch, asked: str) -> set[int]:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    return set(compiled.side_by_side(lambda _: threading.get_ident(), range(calls)))


def test_no_kernel_calls_another_whose_sums_are_in_any_order_unless_it_is_a_part_of_it() -> None:
    """Two copies of such a kernel add in two orders, and chance decides which of them runs.

    Code that was just compiled had other last bits than the same code kept from an earlier run.
    """
    alone, calls = set(), {}
    for file in compiled.PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            ways = {ast.unparse(way) for way in function.decorator_list}
            if ways & {"jit", "jit_inlined", "jit_sums", "jit_summand"}:
                called = [one.func for one in ast.walk(function) if isinstance(one, ast.Call)]
                calls[function.name] = {one.id for one in called if isinstance(one, ast.Name)}
            if "jit_sums" in ways:
                alone.add(function.name)
    assert "log_probabilities" in alone
    assert "log_expectation" in calls["log_probabilities"]
    assert {name: found for name, called in calls.items() if (found := called & alone)} == {}


def test_one_thread_is_the_callers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {threading.get_ident()}
    assert threads_of(3, monkeypatch, "1") == threads_of(1, monkeypatch, "2") == here
    nested = compiled.side_by_side(lambda _: threads_of(2, monkeypatch, "1"), [0])
    assert nested == [here]
    assert compiled.side_by_side(abs, []) == []


@pytest.mark.parametrize("asked", ["", "²", "٢", "4,2", "-1", "many", "9" * 5000])
def test_what_is_no_number_of_threads_leaves_all_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(3)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert compiled.thread_count() == 3
    for number, threads in (("0", 1), ("2", 2), ("99", 3)):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        assert compiled.thread_count() == threads


def test_an_error_of_the_callers_own_thread_leaves_it_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError):
        compiled.side_by_side(lambda x: 1 // x, [0])
    assert not compiled._nested()


def test_threads_treat_overflow_as_the_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "thread_count", lambda: 2)
    huge = np.float64(1e300)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        compiled.side_by_side(lambda x: huge * x, [np.float64(1.0), huge])


@pytest.mark.parametrize("threads", [1, 2])
def test_what_comes_next_is_computed_side_by_side_and_two_ahead(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(compiled, "thread_count", lambda: threads)
    begun = [threading.Event() for _ in range(4)]

    def call(at: int) -> int:
        begun[at].set()
        if threads == 2 and at == 0:  # ends only once the next one has begun
            assert begun[1].wait(60)
        return at

    found = []
    for value in compiled.ahead([partial(call, at) for at in range(4)]):
        found.append(value)
        if threads == 2 and value == 0:
            assert begun[2].wait(60)
        if value == 0:
            assert not begun[3 if threads == 2 else 1].is_set()
    assert found == [0, 1, 2, 3]
    assert list(compiled.ahead([])) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_ahead_is_raised_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(compiled, "thread_count", lambda: threads)
    found = compiled.ahead([partial(divmod, 7, 2), partial(divmod, 7, 0)])
    assert next(found) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_blas_has_one_thread_until_the_last_that_asked_has_left() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, limit = threads(), compiled.one_blas_thread
    with limit:
        with limit:
            pass
        assert set(threads()) == {1}
    assert threads() == before
