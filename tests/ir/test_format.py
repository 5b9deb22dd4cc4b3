"""The scalar rules of the integer contract, against exact arithmetic of Python integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cimtool.ir.format import (
    ROUNDINGS,
    Ratio,
    Rounding,
    adc,
    adc_limits,
    integer_limits,
    quantize,
    ratio,
    requant,
    round_half_up,
    with_fewer_bits,
)

TOP = 1 << 62


def half_up(x: Fraction) -> int:
    return (x + Fraction(1, 2)).__floor__()


@st.composite
def requantisations(draw: st.DrawFn) -> tuple[int, int, int]:
    """x, M and sh anywhere in what the contract allows, often at its edge."""
    shift = draw(st.integers(1, 61))
    multiplier = draw(st.integers(1, 2**31 - 1))
    largest = (TOP - (1 << shift) - 1) // multiplier
    x = draw(st.one_of(st.integers(-largest, largest), st.sampled_from([largest, -largest, 0])))
    return x, multiplier, shift


@given(requantisations())
@example((3, 1, 1))  # a tie
@example((-3, 1, 1))  # a tie below zero
@example((-1, 1, 61))
def test_requant_is_the_exact_quotient_rounded_half_up(case: tuple[int, int, int]) -> None:
    x, multiplier, shift = case
    wide = np.int64(-TOP), np.int64(TOP)
    found = requant(np.array([x]), np.int64(multiplier), np.int64(shift), *wide)
    assert int(found[0]) == half_up(Fraction(x * multiplier, 1 << shift))


@given(requantisations(), st.integers(-300, 300), st.integers(0, 300))
def test_requant_clips_after_rounding(case: tuple[int, int, int], lo: int, width: int) -> None:
    x, multiplier, shift = case
    hi = lo + width
    found = requant(
        np.array([x]), np.int64(multiplier), np.int64(shift), np.int64(lo), np.int64(hi)
    )
    assert int(found[0]) == min(max(half_up(Fraction(x * multiplier, 1 << shift)), lo), hi)


def test_ties_go_up_on_both_sides_of_zero() -> None:
    x = np.array([-3, -1, 1, 3])
    found = requant(x, np.int64(1), np.int64(1), np.int64(-9), np.int64(9))
    assert found.tolist() == [-1, 0, 1, 2]


@given(
    st.fractions(min_value=Fraction(1, 2**44), max_value=2**28),
    st.integers(0, 47).flatmap(lambda bits: st.integers(1, 2**bits)),
)
def test_a_ratio_keeps_the_contract_and_as_many_bits_as_it_can(
    factor: Fraction, magnitude: int
) -> None:
    if factor <= 0:
        return
    try:
        found = ratio(factor, magnitude)
    except ValueError:
        assert no_ratio(factor, magnitude)
        return
    multiplier, shift = found.multiplier, found.shift
    assert 1 <= shift <= 62
    assert 1 <= multiplier < 2**31
    assert magnitude * multiplier < TOP - (1 << shift)
    held = Fraction(multiplier, 1 << shift)
    if held == factor:
        return
    assert multiplier.bit_length() >= 15
    assert abs(held - factor) / factor < Fraction(1, 2**15)
    assert abs(Fraction(multiplier) - factor * (1 << shift)) <= Fraction(1, 2)
    # One bit more would break a rule.
    finer = half_up(factor * (1 << shift + 1))
    assert finer >= 2**31 or shift + 1 > 62 or magnitude * finer >= TOP - (1 << shift + 1)


def no_ratio(factor: Fraction, magnitude: int) -> bool:
    """True where no multiplier of 15 bits or more keeps the contract."""
    for shift in range(1, 63):
        multiplier = half_up(factor * (1 << shift))
        fits = magnitude * multiplier < TOP - (1 << shift)
        if fits and 15 <= multiplier.bit_length() <= 31:
            return False
    return True


@given(st.integers(-40, 20), st.integers(1, 2**20))
def test_powers_of_two_are_exact(exponent: int, magnitude: int) -> None:
    factor = Fraction(2) ** exponent
    found = ratio(factor, magnitude)
    assert Fraction(found.multiplier, 1 << found.shift) == factor


def test_a_ratio_that_rounds_up_to_the_next_power_of_two_keeps_its_bits() -> None:
    factor = 1 - Fraction(1, 2**40)
    found = ratio(factor, 1)
    assert found.multiplier.bit_length() <= 31
    assert abs(Fraction(found.multiplier, 1 << found.shift) - factor) < Fraction(1, 2**30)


@pytest.mark.parametrize(
    ("factor", "magnitude"), [(Fraction(2**32), 1), (Fraction(1, 3 * 2**60), 1), (Fraction(1), TOP)]
)
def test_what_the_contract_cannot_hold_is_refused(factor: Fraction, magnitude: int) -> None:
    with pytest.raises(ValueError, match="no multiplier of 15 bits"):
        ratio(factor, magnitude)


EXACT = {
    "half-up": half_up,
    "half-even": round,
    "floor": lambda x: x.__floor__(),
}


@given(
    st.sampled_from(sorted(ROUNDINGS)),
    st.integers(-(2**40), 2**40),
    st.integers(1, 1 << 20),
    st.integers(1, 16),
    st.booleans(),
)
@example("half-even", -6, 4, 8, True)  # -1.5
@example("half-even", 10, 4, 8, True)  # 2.5
@example("half-up", -6, 4, 8, True)
@example("half-even", 7, 1, 8, True)
@example("half-up", 7, 5, 8, True)
def test_conversions_are_exact_quotients_rounded_and_clipped(
    rounding: Rounding, p: int, step: int, bits: int, signed: bool
) -> None:
    lo, hi = adc_limits(bits, signed)
    found = adc(np.array([p]), step, lo, hi, rounding)
    exact = EXACT[rounding](Fraction(p, step))
    assert int(found[0]) == min(max(exact, lo), hi)


def test_steps_may_differ_by_element() -> None:
    found = adc(np.array([5, 5, 5]), np.array([1, 2, 4]), -99, 99, "half-up")
    assert found.tolist() == [5, 3, 1]


@given(
    st.floats(-1e6, 1e6, width=32),
    st.integers(-20, 10),
    st.sampled_from([(-127, 127), (0, 255), (-32767, 32767)]),
)
@example(0.5, 0, (-127, 127))
@example(1.5, 0, (-127, 127))
@example(-2.5, 0, (-127, 127))
def test_inputs_are_quantised_half_to_even(
    x: float, exponent: int, limits: tuple[int, int]
) -> None:
    scale = 2.0**exponent
    found = quantize(np.array([x], np.float32), np.asarray(scale), *limits)
    exact = round(Fraction(x) / Fraction(scale))
    assert int(found[0]) == min(max(exact, limits[0]), limits[1])


def test_real_numbers_round_half_up() -> None:
    assert round_half_up(np.array([-1.5, -0.5, 0.5, 1.5, 2.4])).tolist() == [-1, 0, 1, 2, 2]


def test_limits_are_symmetric_for_numbers_and_full_for_codes() -> None:
    assert integer_limits(8, True) == (-127, 127)
    assert integer_limits(8, False) == (0, 255)
    assert adc_limits(8, True) == (-128, 127)
    assert adc_limits(8, False) == (0, 255)


def test_a_shortened_ratio_is_rounded_half_up() -> None:
    assert with_fewer_bits(Ratio(2**31 - 1, 40), 2**31 + 2) == Ratio(2**30, 39)
    assert with_fewer_bits(Ratio(2**31 - 1, 40), 2**30) == Ratio(2**31 - 1, 40)


@given(st.integers(1, 2**31 - 1), st.integers(1, 62), st.integers(1, 2**48))
def test_a_shortened_ratio_fits_and_is_no_shorter_than_it_must(
    multiplier: int, shift: int, magnitude: int
) -> None:
    found = with_fewer_bits(Ratio(multiplier, shift), magnitude)
    taken = shift - found.shift
    if found.multiplier > 1 and found.shift > 1:
        assert magnitude * found.multiplier < 2**62 - 2**found.shift
    assert abs(found.multiplier - Fraction(multiplier, 2**taken)) <= 1
    if taken == 0:
        assert found == Ratio(multiplier, shift)
    else:
        before = Fraction(multiplier, 2 ** (taken - 1))
        assert magnitude * (before + 1) >= 2**62 - 2 ** (found.shift + 1)
