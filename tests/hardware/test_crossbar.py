"""The readable crossbar: whatever the encoding, digits add up to the product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.arrays import IntArray
from cimtool.hardware.crossbar import (
    Crossbar,
    Encoding,
    InputEncoding,
    column_bounds,
    conversion_error,
    correction,
    encode_inputs,
    encode_weights,
    input_cycles,
    lossless,
    mvm,
)
from cimtool.ir.format import adc

ENCODINGS: tuple[Encoding, ...] = ("differential", "offset", "offset-flip", "twos-complement")
INPUTS: tuple[InputEncoding, ...] = ("unsigned", "twos-complement", "offset", "bipolar")
ROUNDINGS = ("half-up", "half-even", "floor")


def crossbar(**changed: object) -> Crossbar:
    plain = Crossbar(None, 2, 1, "offset", 8, "twos-complement", 8, None, "half-up", 62)
    return replace(plain, **changed)  # type: ignore[arg-type]


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
)


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
        assert bits <= hardware.dac_bits
        assert np.abs(cycle.digits).max() < 1 << bits
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
)


@settings(deadline=None, max_examples=200)
@given(converting, st.integers(1, 15), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_column_bounds_and_conversion_errors_hold(
    hardware: Crossbar, rows: int, step: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = draw(rng, weight_limits(hardware), (rows, 3))
    x = draw(rng, input_limits(hardware), (8, rows))
    for cells in encode_weights(weight, hardware):
        down, up = column_bounds(cells, hardware)
        error = conversion_error(cells, hardware, step)
        fits = lossless(cells, hardware)
        for cycle in encode_inputs(x, hardware):
            for r, group in enumerate(hardware.groups(rows)):
                p = cycle.digits[:, group] @ cells.digits[group]
                assert (p >= down[r]).all()
                assert (p <= up[r]).all()
                code = adc(p, step, *hardware.adc_limits, hardware.rounding)
                assert (np.abs((code << step) - p) <= error[r]).all()
                if fits:
                    unchanged = adc(p, 0, *hardware.adc_limits, hardware.rounding)
                    np.testing.assert_array_equal(unchanged, p)


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
