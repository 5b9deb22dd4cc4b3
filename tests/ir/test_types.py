"""Types: bits, units, and bounds whose arithmetic cannot wrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.ir.types import (
    INT_LIMIT,
    RangeError,
    broadcast,
    integer,
    number_type,
    product_bounds,
    real,
)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_bits_are_the_fewest_that_hold_the_bounds(a: int, b: int) -> None:
    lo, hi = min(a, b), max(a, b)
    bits = integer(("n",), lo, hi, 1.0).bits

    def holds(width: int) -> bool:
        if lo < 0:
            return -(1 << width - 1) <= lo and hi < 1 << width - 1
        return hi < 1 << width

    assert holds(bits)
    assert bits == 1 or not holds(bits - 1)


def test_a_bound_of_63_bits_is_refused() -> None:
    assert integer(("n",), 1 - INT_LIMIT, INT_LIMIT - 1, 1.0).bits == 63
    for lo, hi in ((0, INT_LIMIT), (-INT_LIMIT, 0), (0, 2**200)):
        with pytest.raises(RangeError):
            integer(("n",), lo, hi, 1.0)


@given(*(st.integers(-(2**61), 2**61) for _ in range(4)))
def test_products_of_bounds_are_exact_in_any_size(a: int, b: int, c: int, d: int) -> None:
    x, y = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    for shape in ((), (2,)):
        ends = [tuple(np.full(shape, bound) for bound in pair) for pair in (x, y)]
        lo, hi = product_bounds(*ends)  # type: ignore[arg-type]
        corners = [i * j for i in x for j in y]
        assert {int(v) for v in np.ravel(lo)} == {min(corners)}
        assert {int(v) for v in np.ravel(hi)} == {max(corners)}


def test_an_unbounded_factor_leaves_the_product_unbounded() -> None:
    unbounded = np.asarray(-np.inf), np.asarray(np.inf)
    lo, hi = product_bounds(unbounded, (np.asarray(0.0), np.asarray(1.0)))
    assert (lo, hi) == (-np.inf, np.inf)


def test_a_product_beyond_float64_is_unbounded() -> None:
    huge, some = (np.array([0.5, -1e200]), np.array([1e200, 1.0])), (np.array(2.0), np.array(1e200))
    lo, hi = product_bounds(huge, some)
    assert lo.tolist() == [1.0, -np.inf]
    assert hi.tolist() == [np.inf, 1e200]
    lo, hi = product_bounds((np.array(1e200), np.array(1e300)), (np.array(1e200), np.array(1e300)))
    assert (lo, hi) == (-np.inf, np.inf)


def test_real_values_have_no_unit() -> None:
    with pytest.raises(TypeError, match="no unit"):
        _ = real(("n",)).unit


def test_a_number_with_a_unit_is_an_integer() -> None:
    known = integer(("n", 2), -1, 5, 0.25)
    assert number_type(("n",), 0, 9, known.scale).unit == 0.25
    assert not number_type(("n",), 0, 9, real(("n",)).scale).is_integer
    assert known.real_bounds() == (-0.25, 1.25)
    assert (known.magnitude, known.signed) == (5, True)


@pytest.mark.parametrize(
    ("shapes", "met"),
    [
        ([("n", 4), ("n", 4)], ("n", 4)),
        ([("n", 1), (1, "m"), ("n", "m")], ("n", "m")),
        ([("n", 1), (4,), ()], ("n", 4)),
        ([("8n", 4), (1,)], ("8n", 4)),
        ([("n", 4), ("m", 4)], None),
        ([("n", 4), ("8n", 4)], None),
        ([("n", 3), (4,)], None),
        ([("n",), ("n", "m")], None),
    ],
)
def test_shapes_meet_as_those_of_numpy_do(
    shapes: list[tuple[str | int, ...]], met: tuple[str | int, ...] | None
) -> None:
    rows = {"n": 2, "m": 3, "8n": 16}
    known = [tuple(rows.get(str(extent), extent) for extent in shape) for shape in shapes]
    if met is None:
        with pytest.raises(ValueError, match=r"values of \[.* do not meet"):
            broadcast(*shapes)
        with pytest.raises(ValueError, match="broadcast"):
            np.broadcast_shapes(*known)  # type: ignore[arg-type]
    else:
        assert broadcast(*shapes) == met
        there = tuple(rows.get(str(extent), extent) for extent in met)
        assert np.broadcast_shapes(*known) == there  # type: ignore[arg-type]
