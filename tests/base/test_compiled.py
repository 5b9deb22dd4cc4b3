"""Compiling kernels, also where numba cannot keep its code."""

from __future__ import annotations

import ast
from pathlib import Path

import numba
import pytest

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
