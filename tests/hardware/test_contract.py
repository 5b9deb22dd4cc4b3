"""The readable crossbar: whatever the codes, digits add up to the product."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from crossbars import PLAIN, at_steps, changed, mvm
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_crossbars import (
    CROSSBARS,
    ENCODINGS,
    INPUTS,
    drawn,
    input_limits,
    weight_limits,
)

from cimtool.base.arrays import IntArray
from cimtool.hardware.crossbar import Crossbar, leak_of
from cimtool.hardware.stored import StoredWeights


@settings(max_examples=examples(300))
@given(CROSSBARS, st.integers(1, 19), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_without_converters_it_is_the_integer_product(
    hardware: Crossbar, rows: int, columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = drawn(rng, input_limits(hardware), (3, rows))
    weight = drawn(rng, weight_limits(hardware), (rows, columns))
    found = mvm(x, StoredWeights(weight, hardware), hardware.no_references)
    np.testing.assert_array_equal(found, x @ weight)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_extreme_values_are_carried(encoding: str, inputs: str) -> None:
    keys = {"input_encoding": inputs, "rows": 3, "weight_bits": 16, "input_bits": 16}
    if encoding == "ternary":
        keys["cell_bits"] = 1
    hardware = changed(PLAIN, encoding=encoding, **keys)
    for x in input_limits(hardware):
        for w in weight_limits(hardware):
            stored = StoredWeights(np.full((7, 1), w), hardware)
            found = mvm(np.full((1, 7), x), stored, (None,) * hardware.slices)
            assert found.tolist() == [[7 * x * w]]


def test_a_converter_clips_at_both_ends() -> None:
    hardware = changed(
        PLAIN, encoding="differential", adc_bits=3, weight_bits=4, cell_bits=3, dac_bits=8
    )
    stored = StoredWeights(np.array([[7, -7]] * 4), hardware)
    found = mvm(np.array([[100] * 4]), stored, at_steps(hardware, (4,)))
    # 2800 and -2800 leave the codes -4..3 at steps of 16; the sign of x is a cycle without sums
    assert found.tolist() == [[3 << 4, -4 << 4]]


def rounded(p: IntArray, step: int, limits: tuple[int, int]) -> IntArray:
    return np.clip(p + (1 << step >> 1) >> step, *limits) << step


def test_each_polarity_is_a_product_of_its_own() -> None:
    rng = np.random.default_rng(1)
    hardware = changed(
        PLAIN, encoding="differential", adc_on="polarity", cell_bits=7, dac_bits=8,
        input_encoding="unsigned", adc_bits=4, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-127, 128, (20, 3)), rng.integers(0, 256, (6, 20))
    above, below = x @ np.maximum(weight, 0), x @ np.maximum(-weight, 0)
    assert hardware.law is not None
    assert (hardware.law.lo, hardware.law.hi) == (0, 15)
    assert hardware.slices == 2
    expected = rounded(above, 13, (0, 15)) - rounded(below, 12, (0, 15))
    np.testing.assert_array_equal(
        mvm(x, StoredWeights(weight, hardware), at_steps(hardware, (13, 12))), expected
    )


@pytest.mark.parametrize("inputs", INPUTS)
def test_analog_shift_and_add_converts_the_sum_over_cycles_once(inputs: str) -> None:
    rng = np.random.default_rng(2)
    hardware = changed(
        PLAIN, encoding="differential", shift_add="analog", cell_bits=7, dac_bits=1,
        input_encoding=inputs, adc_bits=5, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-127, 128, (20, 3)), drawn(rng, input_limits(hardware), (6, 20))
    driven = x + 128 if inputs == "offset" else x
    expected = rounded(driven @ weight, 12, (-16, 15)) - (driven - x) @ weight
    found = mvm(x, StoredWeights(weight, hardware), at_steps(hardware, (12,)))
    np.testing.assert_array_equal(found, expected)
    assert len(hardware.cycles) == 1
    assert len(hardware.inputs.cycles) >= 7


@pytest.mark.parametrize("encoding", ["offset", "offset-flip"])
def test_the_unit_column_is_converted_like_the_others(encoding: str) -> None:
    rng = np.random.default_rng(3)
    hardware = changed(
        PLAIN, encoding=encoding, offset_sum="unit-column", cell_bits=8, dac_bits=8,
        input_encoding="unsigned", adc_bits=6, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-128, 128, (20, 3)), rng.integers(0, 256, (6, 20))
    weight[:, 0] = 100  # its complement is stored
    stored, sums = weight + 128, rounded(x.sum(axis=1, keepdims=True), 7, (0, 63))
    flip = (2 * stored.sum(axis=0) > 255 * 20) & (encoding == "offset-flip")
    cells = np.where(flip, 255 - stored, stored)
    p = rounded(x @ cells, 14, (0, 63))
    expected = np.where(flip, 255 * sums - p, p) - 128 * sums
    stored = StoredWeights(weight, hardware)
    np.testing.assert_array_equal(mvm(x, stored, at_steps(hardware, (14,), 7)), expected)
    assert (expected != mvm(x, stored, at_steps(hardware, (14,)))).any()


@pytest.mark.parametrize("unused", ["off", "driven"])
def test_leaking_cells_in_exact_arithmetic(unused: str) -> None:
    """g = g_min + digit (g_max - g_min) / 3: conductances as fractions, taken off digitally."""
    rng = np.random.default_rng(4)
    leak = leak_of(21.0, 2)
    assert Fraction(leak, 1 << 12) == Fraction(round(Fraction(3, 20) * 4096), 4096)
    hardware = changed(
        PLAIN, rows=16, encoding="offset", cell_bits=2, dac_bits=8, weight_bits=2, leak=leak,
        unused_rows=unused, input_encoding="offset", input_bits=3, adc_bits=5, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-2, 2, (20, 2)), rng.integers(-4, 4, (5, 20))
    step, g_min = 14, Fraction(leak, 1 << 12)
    unit = Fraction(1 << step, 1 << 12)
    found = mvm(x, StoredWeights(weight, hardware), at_steps(hardware, (step,)))
    for i, j in np.ndindex(5, 2):
        total = Fraction(0)
        for start, end, spare in ((0, 16, 0), (16, 20, 12)):
            driven = [int(v) + 4 for v in x[i, start:end]]
            digits = [int(w) + 2 for w in weight[start:end, j]]
            idle = 4 * spare * g_min if unused == "driven" else Fraction(0)
            current = idle + sum(d * (w + g_min) for d, w in zip(driven, digits, strict=True))
            code = min(max(floor(current / unit + Fraction(1, 2)), 0), 31)
            total += code * unit - idle - g_min * sum(driven) - 2 * sum(driven)
        assert found[i, j] == floor(total + Fraction(1, 2)) - 4 * weight[:, j].sum()


@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip"])
def test_towards_an_infinite_on_off_ratio_nothing_is_lost(encoding: str) -> None:
    rng = np.random.default_rng(5)
    plain = changed(PLAIN, encoding=encoding, adc_on="polarity", adc_bits=10, rows=8)
    weight, x = rng.integers(-127, 128, (20, 3)), rng.integers(-127, 128, (60, 20))
    errors = []
    for ratio in (1.5, 10.0, 100.0, 1e4, 1e9):
        hardware = changed(plain, leak=leak_of(ratio, 2))
        # A code counts one digit.
        steps = at_steps(hardware, (hardware.fraction_bits,) * plain.slices)
        off = (mvm(x, StoredWeights(weight, hardware), steps) - x @ weight).astype(float)
        errors.append(np.square(off).mean())
    assert errors[-1] == 0
    # Both polarities leak alike: what rounds off is the same, and cancels.
    assert (errors[1] > 0) == (encoding != "differential")
    assert errors[1:] == sorted(errors[1:], reverse=True)
    assert (leak_of(None, 2), leak_of(1e9, 2), leak_of(2.0, 2)) == (0, 0, 3 << 12)
