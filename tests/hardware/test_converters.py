"""Converters: a formula, or the thresholds that were measured of one."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.hardware.converters import (
    Formula,
    Lossless,
    Measured,
    StaircaseLaw,
    UniformLaw,
    measured_thresholds,
)
from cimtool.ir.format import Rounding


def ideal(bits: int) -> tuple[int, ...]:
    """The thresholds of an ideal converter that rounds half up: 0.5, 1.5, ... codes."""
    return measured_thresholds([code + 0.5 for code in range((1 << bits) - 1)])


@st.composite
def thresholds(draw: st.DrawFn) -> tuple[int, ...]:
    """Rising thresholds of some bits."""
    count = (1 << draw(st.integers(1, 7))) - 1
    return tuple(sorted(draw(st.lists(st.integers(-600, 2600), min_size=count, max_size=count))))


@st.composite
def measured(draw: st.DrawFn) -> StaircaseLaw:
    transfer = draw(thresholds())
    return Measured(len(transfer).bit_length(), transfer).law(draw(st.booleans()))


@st.composite
def uneven(draw: st.DrawFn) -> StaircaseLaw:
    """A staircase whose levels rise by other numbers than one."""
    edges = np.array(draw(thresholds()), np.int64)
    rises = draw(st.lists(st.integers(0, 9), min_size=len(edges), max_size=len(edges)))
    levels = draw(st.integers(-40, 40)) + np.cumsum([0, *rises])
    return StaircaseLaw(draw(st.integers(-8, 0)), edges, levels)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_the_table_of_an_ideal_converter_is_the_formula(bits: int, signed: bool) -> None:
    table = Measured(bits, ideal(bits)).law(signed)
    formula = Formula(bits, "half-up").law(signed)
    assert (table.lo, table.hi, table.ends) == (formula.lo, formula.hi, formula.ends)
    for step in (1, 2, 4, 5, 12, 16, 31, 64, 128):
        p = np.arange(-(3 << bits) * step, (3 << bits) * step, 1 + step // 8)
        codes = formula.codes(p, step)
        np.testing.assert_array_equal(table.codes(p, step), codes)
        np.testing.assert_array_equal(table.values(codes, step), formula.values(codes, step))
        assert table.error(step) >= formula.error(step)
        assert table.unclipped(step) == formula.unclipped(step)


@given(thresholds(), st.booleans(), st.integers(1, 600), st.lists(st.integers(-9999, 99999)))
def test_a_code_counts_the_thresholds_below(
    transfer: tuple[int, ...], signed: bool, step: int, sums: list[int]
) -> None:
    law = Measured(len(transfer).bit_length(), transfer).law(signed)
    found = law.codes(np.array(sums, np.int64), step)
    for p, code in zip(sums, found.tolist(), strict=True):
        above_lowest = Fraction(p, step) - law.lo
        edges = [Fraction(t, 16) for t in transfer]
        assert code == law.lo + bisect_right(edges, above_lowest)
        assert law.lo <= code <= law.hi


@given(st.one_of(measured(), uneven()), st.integers(1, 600))
def test_the_table_gives_the_levels(law: StaircaseLaw, step: int) -> None:
    first, table = law.table
    assert first % 16 == 0
    assert (table[0], table[-1]) == law.ends
    p = np.arange(-3000, 3000)
    entry = (p << 4) // step - first
    levels = law.levels[law.codes(p, step) - law.lo]
    np.testing.assert_array_equal(table[np.clip(entry, 0, len(table) - 1)], levels)


@given(st.one_of(measured(), uneven()), st.integers(1, 70))
def test_the_error_of_a_staircase_is_not_left(law: StaircaseLaw, step: int) -> None:
    lo, hi = law.ends
    p = np.arange(lo * step, hi * step + 1)
    off = np.abs(law.values(law.codes(p, step), step) - p)
    assert off.max() <= law.error(step)


@pytest.mark.parametrize(("rounding", "most"), [("half-up", 4), ("half-even", 4), ("floor", 7)])
def test_the_error_of_a_formula(rounding: Rounding, most: int) -> None:
    law = Formula(4, rounding).law(signed=True)
    p = np.arange(-8 << 3, 7 << 3)
    off = np.abs(law.values(law.codes(p, 8), 8) - p)
    assert off.max() == most == law.error(8)


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize("step", [1, 2, 3, 16, 20, 21])
@pytest.mark.parametrize("lo", [-8, -7, 0])
def test_the_sums_that_are_not_clipped(rounding: Rounding, step: int, lo: int) -> None:
    """They are those whose code would be the same with codes to spare."""
    p = np.arange(-20 * step, 20 * step)
    for hi in (6, 7):
        law = UniformLaw(lo, hi, rounding)
        wide = UniformLaw(-99, 99, rounding).codes(p, step)
        kept = p[law.codes(p, step) == wide]
        assert law.unclipped(step) == (kept[0], kept[-1])


def test_a_staircase_of_uneven_levels_by_hand() -> None:
    """Codes -1..2 stand for -4, 0, 1 and 9 steps; they begin at -2, 0.5 and 3 steps."""
    law = StaircaseLaw(-1, np.array([-32, 8, 48]), np.array([-4, 0, 1, 9]))
    assert (law.lo, law.hi, law.ends) == (-1, 2, (-4, 9))
    p = np.array([-99, -5, -4, 0, 1, 5, 6, 99])
    codes = law.codes(p, 2)
    assert codes.tolist() == [-1, -1, 0, 0, 1, 1, 2, 2]
    assert law.values(codes, 2).tolist() == [-8, -8, 0, 0, 2, 2, 18, 18]
    # The sum 3 steps is taken for 9: 6 steps off.
    assert [law.error(step) for step in (1, 2, 8)] == [6, 12, 48]
    first, table = law.table
    assert (first, len(table)) == (-48, 48 + 48 + 1)
    assert [int(table[16 * p + 48]) for p in (-3, -2, 0, 1, 2, 3)] == [-4, 0, 0, 1, 1, 9]
    assert (table[7 + 48], table[8 + 48]) == (0, 1)
    # The ends are taken to be a step wide: 8.5 to 9.5 and -4.5 to -3.5.
    assert law.unclipped(2) == (-9, 18)
    assert law.unclipped(8) == (-36, 75)


def test_thresholds_are_kept_in_sixteenths() -> None:
    assert measured_thresholds([0.5, 1.53, 2.47, -0.04]) == (8, 24, 40, -1)


@pytest.mark.parametrize("signed", [False, True])
def test_a_lossless_converter_has_no_law(signed: bool) -> None:
    assert Lossless().law(signed) is None
    assert Lossless().bits is None
