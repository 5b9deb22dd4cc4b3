"""The readable crossbar: whatever the encoding, digits add up to the product."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.arrays import IntArray
from cimtool.hardware.bounds import column_bounds, conversion_error, converted_bounds, lossless
from cimtool.hardware.crossbar import (
    Crossbar,
    Encoding,
    InputEncoding,
    correction,
    drive_cycles,
    encode_inputs,
    encode_weights,
    input_cycles,
    leak_of,
    mvm,
    perfect_cells,
    zero_digits,
)

ENCODINGS: tuple[Encoding, ...] = ("differential", "offset", "offset-flip", "twos-complement")
INPUTS: tuple[InputEncoding, ...] = ("unsigned", "twos-complement", "offset", "bipolar")
ROUNDINGS = ("half-up", "half-even", "floor")


def crossbar(**changed: object) -> Crossbar:
    plain = Crossbar(None, 2, 1, "offset", 8, "twos-complement", 8, None, "half-up", 62)
    return replace(plain, **changed)  # type: ignore[arg-type]


extras = {
    "rows_active": st.one_of(st.none(), st.integers(1, 9)),
    "adc_on": st.sampled_from(["difference", "polarity"]),
    "shift_add": st.sampled_from(["digital", "analog"]),
    "offset_sum": st.sampled_from(["digital", "unit-column"]),
    "unused_rows": st.sampled_from(["off", "driven"]),
}


def possible(hardware: Crossbar) -> Crossbar:
    """The crossbar without leak where a target with it is refused."""
    if hardware.unit_column or hardware.encoding == "twos-complement":
        return replace(hardware, leak=0)
    return hardware


crossbars = st.builds(
    Crossbar,
    rows=st.one_of(st.none(), st.integers(1, 9)),
    cell_bits=st.integers(1, 8),
    dac_bits=st.integers(1, 9),
    encoding=st.sampled_from(ENCODINGS),
    weight_bits=st.integers(2, 16),
    input_encoding=st.sampled_from(INPUTS),
    input_bits=st.integers(2, 16),
    adc_bits=st.none(),
    rounding=st.sampled_from(ROUNDINGS),
    accumulator_bits=st.just(62),
    leak=st.sampled_from([0, 0, 1, 777, 1 << 20]),
    **extras,
).map(possible)


def input_limits(hardware: Crossbar) -> tuple[int, int]:
    """The smallest and largest input that the encoding can carry."""
    half = 1 << hardware.input_bits - 1
    if hardware.input_encoding == "unsigned":
        return 0, 2 * half - 1
    return (1 - half if hardware.input_encoding == "bipolar" else -half), half - 1


def weight_limits(hardware: Crossbar) -> tuple[int, int]:
    half = 1 << hardware.weight_bits - 1
    return (1 - half if hardware.encoding == "differential" else -half), half - 1


def draw(rng: np.random.Generator, limits: tuple[int, int], shape: tuple[int, int]) -> IntArray:
    inner = rng.integers(*limits, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.4, rng.choice(limits, shape), inner)


@settings(deadline=None, max_examples=300)
@given(crossbars, st.integers(1, 19), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_without_converters_it_is_the_integer_product(
    hardware: Crossbar, rows: int, columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = draw(rng, input_limits(hardware), (3, rows))
    weight = draw(rng, weight_limits(hardware), (rows, columns))
    found = mvm(x, weight, hardware, (None,) * hardware.slices)
    np.testing.assert_array_equal(found, x @ weight)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_extreme_values_are_carried(encoding: Encoding, inputs: InputEncoding) -> None:
    hardware = crossbar(
        encoding=encoding, input_encoding=inputs, rows=3, weight_bits=16, input_bits=16
    )
    for x in input_limits(hardware):
        for w in weight_limits(hardware):
            found = mvm(np.full((1, 7), x), np.full((7, 1), w), hardware, (None,) * hardware.slices)
            assert found.tolist() == [[7 * x * w]]


@settings(deadline=None)
@given(crossbars, st.integers(1, 19), st.integers(0, 2**32 - 1))
def test_slices_rebuild_the_weights(hardware: Crossbar, rows: int, seed: int) -> None:
    weight = draw(np.random.default_rng(seed), weight_limits(hardware), (rows, 3))
    slices = encode_weights(weight, hardware)
    assert len(slices) == hardware.slices
    total = np.zeros_like(weight)
    for cells in slices:
        assert np.abs(cells.digits).max() <= hardware.cell_maximum
        plain = cells.digits.copy()
        for r, group in enumerate(hardware.groups(rows)):
            flipped = cells.flipped[r]
            plain[group] = np.where(flipped, hardware.cell_maximum - plain[group], plain[group])
        total += cells.sign * (plain << cells.shift)
    if hardware.encoding in ("offset", "offset-flip"):
        total -= 1 << hardware.weight_bits - 1
    np.testing.assert_array_equal(total, weight)


@settings(deadline=None)
@given(crossbars, st.integers(0, 2**32 - 1))
def test_cycles_rebuild_the_inputs(hardware: Crossbar, seed: int) -> None:
    x = draw(np.random.default_rng(seed), input_limits(hardware), (2, 5))
    total = np.zeros_like(x)
    for cycle, (shift, bits, sign) in zip(
        encode_inputs(x, hardware), input_cycles(hardware), strict=True
    ):
        if hardware.shift_add == "digital":
            assert bits <= hardware.dac_bits
            assert np.abs(cycle.digits).max() < 1 << bits
        lo, hi = hardware.digit_limits
        assert lo <= cycle.digits.min() <= cycle.digits.max() <= hi
        assert (cycle.shift, cycle.sign) == (shift, sign)
        total += cycle.sign * (cycle.digits << cycle.shift)
    if hardware.input_encoding == "offset":
        total -= 1 << hardware.input_bits - 1
    np.testing.assert_array_equal(total, x)


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_after_flipping_no_column_stores_more_than_half(
    cell_bits: int, rows: int, height: int, seed: int
) -> None:
    hardware = crossbar(encoding="offset-flip", cell_bits=cell_bits, rows=height)
    weight = draw(np.random.default_rng(seed), (-128, 127), (rows, 5))
    for cells in encode_weights(weight, hardware):
        assert cells.digits.min() >= 0
        for group in hardware.groups(rows):
            size = group.stop - group.start
            assert 2 * cells.digits[group].sum(axis=0).max() <= hardware.cell_maximum * size


def isaac(encoding: Encoding, adc_bits: int = 8) -> Crossbar:
    return crossbar(rows=128, encoding=encoding, adc_bits=adc_bits, cell_bits=2, dac_bits=1)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(-128, 127), (127, 127), (-128, -128), (0, 0)]))
def test_isaac_is_lossless_with_flips_for_every_weight(seed: int, limits: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    weight = draw(rng, limits, (300, 3))
    hardware = isaac("offset-flip")
    assert all(lossless(cells, hardware) for cells in encode_weights(weight, hardware))
    x = draw(rng, (-128, 127), (2, 300))
    np.testing.assert_array_equal(mvm(x, weight, hardware, (0,) * 4), x @ weight)


def test_isaac_without_flips_or_with_a_bit_less_is_not_lossless() -> None:
    weight = np.full((128, 1), 127)
    assert not all(lossless(c, isaac("offset")) for c in encode_weights(weight, isaac("offset")))
    half = np.where(np.arange(128) % 2, -128, 127)[:, None]
    short = isaac("offset-flip", 7)
    assert not all(lossless(cells, short) for cells in encode_weights(half, short))
    x = np.full((1, 128), -1)
    assert (mvm(x, weight, isaac("offset"), (0,) * 4) != x @ weight).any()


converting = st.builds(
    Crossbar,
    rows=st.one_of(st.none(), st.integers(1, 9)),
    cell_bits=st.integers(1, 4),
    dac_bits=st.integers(1, 4),
    encoding=st.sampled_from(ENCODINGS[:3]),
    weight_bits=st.integers(2, 8),
    input_encoding=st.sampled_from(INPUTS),
    input_bits=st.integers(2, 8),
    adc_bits=st.integers(1, 8),
    rounding=st.sampled_from(ROUNDINGS),
    accumulator_bits=st.just(62),
    leak=st.sampled_from([0, 0, 1, 777, 1 << 14]),
    **extras,
).map(possible)


@settings(deadline=None, max_examples=200)
@given(converting, st.integers(1, 15), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_column_bounds_and_conversion_errors_hold(
    hardware: Crossbar, rows: int, step: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = draw(rng, weight_limits(hardware), (rows, 3))
    x = draw(rng, input_limits(hardware), (8, rows))
    idle = hardware.column_leak * hardware.idle_rows(rows)
    step += hardware.fraction_bits
    conducts = perfect_cells(weight, hardware).slices
    for stored, cells in zip(encode_weights(weight, hardware), conducts, strict=True):
        down, up = column_bounds(stored, hardware)
        error = conversion_error(stored, hardware, step)
        fits = lossless(stored, hardware)
        ends = converted_bounds(stored, hardware, step)
        zeros = zero_digits(hardware)
        for cycle, zero in zip(encode_inputs(x, hardware), zeros, strict=True):
            for r, group in enumerate(hardware.groups(rows)):
                p = cycle.digits[:, group] @ cells.digits[group] + idle[r] * zero
                assert (p >= down[r]).all()
                assert (p <= up[r]).all()
                stands_for = hardware.converter.codes(p, step) << step
                assert (np.abs(stands_for - p) <= error[r]).all()
                assert (ends[0][r] <= stands_for).all()
                assert (stands_for <= ends[1][r]).all()
                if fits:
                    np.testing.assert_array_equal(hardware.converter.codes(p, 0), p)


def test_a_converter_clips_at_both_ends() -> None:
    hardware = crossbar(encoding="differential", adc_bits=3, weight_bits=4, cell_bits=3, dac_bits=8)
    weight = np.array([[7, -7]] * 4)
    found = mvm(np.array([[100] * 4]), weight, hardware, (4,))
    # 2800 and -2800 leave the codes -4..3 at steps of 16; the sign of x is a cycle without sums
    assert found.tolist() == [[3 << 4, -4 << 4]]


def test_offset_inputs_are_corrected_in_the_bias() -> None:
    weight = np.array([[1, -2], [3, 4]])
    assert correction(weight, crossbar(input_encoding="offset")).tolist() == [4 << 7, 2 << 7]
    assert not correction(weight, crossbar()).any()


def test_the_last_row_group_is_what_is_left() -> None:
    groups = crossbar(rows=4).groups(10)
    assert [(g.start, g.stop) for g in groups] == [(0, 4), (4, 8), (8, 10)]
    assert crossbar(rows=None).groups(10) == (slice(0, 10),)


@pytest.mark.parametrize(
    ("encoding", "weight_bits", "cell_bits", "slices"),
    [
        ("differential", 8, 7, 1),
        ("differential", 8, 2, 4),
        ("offset", 8, 2, 4),
        ("offset", 9, 2, 5),
    ],
)
def test_slices_leave_out_the_sign_where_it_is_analog(
    encoding: Encoding, weight_bits: int, cell_bits: int, slices: int
) -> None:
    hardware = crossbar(encoding=encoding, weight_bits=weight_bits, cell_bits=cell_bits)
    assert hardware.slices == slices


def test_a_lossless_converter_has_no_codes() -> None:
    with pytest.raises(TypeError, match="lossless"):
        _ = crossbar().adc_limits


def test_no_row_group_reaches_over_the_end_of_an_array() -> None:
    hardware = crossbar(rows=5, rows_active=2, unused_rows="driven")
    groups = hardware.groups(9)
    assert [(g.start, g.stop) for g in groups] == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9)]
    assert hardware.idle_rows(9).tolist() == [0, 0, 0, 0, 0]
    assert hardware.idle_rows(6).tolist() == [0, 0, 0, 1]
    assert crossbar(rows=5, unused_rows="driven").idle_rows(7).tolist() == [0, 3]
    assert crossbar(rows=5).idle_rows(7).tolist() == [0, 0]


def rounded(p: IntArray, step: int, limits: tuple[int, int]) -> IntArray:
    return np.clip(p + (1 << step >> 1) >> step, *limits) << step


def test_each_polarity_is_a_product_of_its_own() -> None:
    rng = np.random.default_rng(1)
    hardware = crossbar(
        encoding="differential", adc_on="polarity", cell_bits=7, dac_bits=8,
        input_encoding="unsigned", adc_bits=4, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-127, 128, (20, 3)), rng.integers(0, 256, (6, 20))
    above, below = x @ np.maximum(weight, 0), x @ np.maximum(-weight, 0)
    assert hardware.adc_limits == (0, 15)
    assert hardware.slices == 2
    expected = rounded(above, 13, (0, 15)) - rounded(below, 12, (0, 15))
    np.testing.assert_array_equal(mvm(x, weight, hardware, (13, 12)), expected)


@pytest.mark.parametrize("inputs", INPUTS)
def test_analog_shift_and_add_converts_the_sum_over_cycles_once(inputs: InputEncoding) -> None:
    rng = np.random.default_rng(2)
    hardware = crossbar(
        encoding="differential", shift_add="analog", cell_bits=7, dac_bits=1, input_encoding=inputs,
        adc_bits=5, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-127, 128, (20, 3)), draw(rng, input_limits(hardware), (6, 20))
    driven = x + 128 if inputs == "offset" else x
    expected = rounded(driven @ weight, 12, (-16, 15)) - (driven - x) @ weight
    np.testing.assert_array_equal(mvm(x, weight, hardware, (12,)), expected)
    assert len(input_cycles(hardware)) == 1
    assert len(drive_cycles(hardware)) >= 7


@pytest.mark.parametrize("encoding", ["offset", "offset-flip"])
def test_the_unit_column_is_converted_like_the_others(encoding: Encoding) -> None:
    rng = np.random.default_rng(3)
    hardware = crossbar(
        encoding=encoding, offset_sum="unit-column", cell_bits=8, dac_bits=8,
        input_encoding="unsigned", adc_bits=6, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-128, 128, (20, 3)), rng.integers(0, 256, (6, 20))
    weight[:, 0] = 100  # its complement is stored
    stored, sums = weight + 128, rounded(x.sum(axis=1, keepdims=True), 7, (0, 63))
    flip = (2 * stored.sum(axis=0) > 255 * 20) & (encoding == "offset-flip")
    cells = np.where(flip, 255 - stored, stored)
    p = rounded(x @ cells, 14, (0, 63))
    expected = np.where(flip, 255 * sums - p, p) - 128 * sums
    np.testing.assert_array_equal(mvm(x, weight, hardware, (14,), 7), expected)
    assert (expected != mvm(x, weight, hardware, (14,))).any()


@pytest.mark.parametrize("unused", ["off", "driven"])
def test_leaking_cells_in_exact_arithmetic(unused: str) -> None:
    """g = g_min + digit (g_max - g_min) / 3: conductances as fractions, taken off digitally."""
    rng = np.random.default_rng(4)
    leak = leak_of(21.0, 2)
    assert Fraction(leak, 1 << 12) == Fraction(round(Fraction(3, 20) * 4096), 4096)
    hardware = crossbar(
        rows=16, encoding="offset", cell_bits=2, dac_bits=8, weight_bits=2, leak=leak,
        unused_rows=unused, input_encoding="offset", input_bits=3, adc_bits=5, rounding="half-up",
    )  # fmt: skip
    weight, x = rng.integers(-2, 2, (20, 2)), rng.integers(-4, 4, (5, 20))
    step, g_min = 14, Fraction(leak, 1 << 12)
    unit = Fraction(1 << step, 1 << 12)
    found = mvm(x, weight, hardware, (step,))
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
def test_towards_an_infinite_on_off_ratio_nothing_is_lost(encoding: Encoding) -> None:
    rng = np.random.default_rng(5)
    plain = crossbar(encoding=encoding, adc_on="polarity", adc_bits=10, rows=8)
    weight, x = rng.integers(-127, 128, (20, 3)), rng.integers(-127, 128, (60, 20))
    errors = []
    for ratio in (1.5, 10.0, 100.0, 1e4, 1e9):
        hardware = replace(plain, leak=leak_of(ratio, 2))
        steps = (hardware.fraction_bits,) * plain.slices  # a code counts one digit
        off = (mvm(x, weight, hardware, steps) - x @ weight).astype(float)
        errors.append(np.square(off).mean())
    assert errors[-1] == 0
    # Both polarities leak alike: what rounds off is the same, and cancels.
    assert (errors[1] > 0) == (encoding != "differential")
    assert errors[1:] == sorted(errors[1:], reverse=True)
    assert (leak_of(None, 2), leak_of(1e9, 2), leak_of(2.0, 2)) == (0, 0, 3 << 12)


def test_the_leak_cancels_in_analog_differences() -> None:
    hardware = crossbar(encoding="differential", leak=777)
    assert (hardware.column_leak, hardware.fraction_bits) == (0, 0)
    assert replace(hardware, adc_on="polarity").fraction_bits == 12
