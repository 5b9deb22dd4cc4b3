"""Compiling kernels where numba cannot keep its code."""

from __future__ import annotations

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
