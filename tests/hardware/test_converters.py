"""The converter: a formula, or the thresholds that were measured of one."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from cimtool.hardware.converter import Converter, measured_thresholds
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.ir.format import Rounding


def ideal(bits: int) -> tuple[int, ...]:
    """The thresholds of an ideal converter that rounds half up: 0.5, 1.5, ... codes."""
    return measured_thresholds([code + 0.5 for code in range((1 << bits) - 1)])


@st.composite
def measured(draw: st.DrawFn) -> Converter:
    bits = draw(st.integers(1, 7))
    count = (1 << bits) - 1
    thresholds = draw(st.lists(st.integers(-600, 2600), min_size=count, max_size=count))
    return Converter(bits, draw(st.booleans()), None, tuple(sorted(thresholds)))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_the_table_of_an_ideal_converter_is_the_formula(bits: int, signed: bool) -> None:
    table = Converter(bits, signed, None, ideal(bits))
    formula = Converter(bits, signed, "half-up")
    for step in range(8):
        p = np.arange(-(3 << bits + step), 3 << bits + step, 1 + (1 << step) // 8)
        np.testing.assert_array_equal(table.codes(p, step), formula.codes(p, step))
        assert table.error(step) >= formula.error(step)


@settings(deadline=None)
@given(measured(), st.integers(0, 9), st.lists(st.integers(-9999, 99999), min_size=1))
def test_a_code_counts_the_thresholds_below(
    converter: Converter, step: int, sums: list[int]
) -> None:
    assert converter.transfer is not None
    lo, hi = converter.limits
    found = converter.codes(np.array(sums), step)
    for p, code in zip(sums, found.tolist(), strict=True):
        above_lowest = Fraction(p, 1 << step) - lo
        edges = [Fraction(t, 16) for t in converter.transfer]
        assert code == lo + bisect_right(edges, above_lowest)
        assert lo <= code <= hi


@settings(deadline=None)
@given(measured(), st.integers(0, 9))
def test_the_table_gives_the_codes(converter: Converter, step: int) -> None:
    first, table = converter.table
    assert first % 16 == 0
    assert (table[0], table[-1]) == converter.limits
    p = np.arange(-3000, 3000)
    entry = ((p << 4) >> step) - first
    np.testing.assert_array_equal(
        table[np.clip(entry, 0, len(table) - 1)], converter.codes(p, step)
    )


@settings(deadline=None)
@given(measured(), st.integers(0, 6))
def test_the_error_of_a_table_is_reached_and_not_left(converter: Converter, step: int) -> None:
    lo, hi = converter.limits
    p = np.arange(lo << step, (hi << step) + 1)
    off = np.abs((converter.codes(p, step) << step) - p)
    assert off.max() <= converter.error(step)


@pytest.mark.parametrize(("rounding", "most"), [("half-up", 4), ("half-even", 4), ("floor", 7)])
def test_the_error_of_a_formula(rounding: Rounding, most: int) -> None:
    converter = Converter(4, True, rounding)
    p = np.arange(-8 << 3, 7 << 3)
    off = np.abs((converter.codes(p, 3) << 3) - p)
    assert off.max() == most == converter.error(3)


def test_thresholds_are_kept_in_sixteenths() -> None:
    assert measured_thresholds([0.5, 1.53, 2.47, -0.04]) == (8, 24, 40, -1)


def test_a_formula_has_no_thresholds() -> None:
    with pytest.raises(TypeError, match="formula"):
        _ = Converter(4, True, "floor").thresholds
