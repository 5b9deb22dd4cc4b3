"""The crossbar layer as an operation: its type, its bounds, and how it runs."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import RangeError, integer

HARDWARE = crossbar_of(4, 2, 2, "offset-flip", 6, "twos-complement", 5, 3, "half-up", 24)
X = integer(("n", 10), -15, 15, 0.5)


def layer(*steps: int | None, hardware: Crossbar = HARDWARE) -> CrossbarMvm:
    rng = np.random.default_rng(1)
    weight = rng.integers(-31, 32, (10, 3))
    bias, scale = np.array([5, -5, 0]), np.array([0.5, 1.0, 2.0])
    references = at_steps(hardware, steps)
    return CrossbarMvm(StoredWeights(weight, hardware), bias, scale, references)


def test_a_lossless_layer_has_the_bounds_of_its_product() -> None:
    op = layer(None, None, None)
    assert op.exact
    known = op.infer(X)
    reach = 15 * np.abs(op.weight).sum(axis=0)
    np.testing.assert_array_equal(known.hi, reach + op.bias)
    np.testing.assert_array_equal(known.lo, op.bias - reach)
    assert known.shape == ("n", 3)
    assert known.unit.tolist() == [0.5, 1.0, 2.0]


def test_converters_widen_the_bounds_by_what_they_may_err() -> None:
    plain, rounded = layer(None, None, None), layer(None, 2, 1)
    assert not rounded.exact
    assert (rounded.infer(X).hi > plain.infer(X).hi).all()
    assert (rounded.infer(X).lo < plain.infer(X).lo).all()


@pytest.mark.parametrize("steps", [(None, 2, 1), (4, 4, 4), (0, 0, 0), (None, None, 3)])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip", "centred"])
@pytest.mark.parametrize("inputs", ["twos-complement", "offset", "bipolar"])
def test_runs_stay_inside_the_bounds(
    steps: tuple[int | None, ...], encoding: str, inputs: str
) -> None:
    hardware = changed(HARDWARE, encoding=encoding, input_encoding=inputs)
    op = layer(*steps, hardware=hardware)
    known = op.infer(X)
    x = np.random.default_rng(2).choice([-15, 15, 0, 7], (200, 10))
    found = op.run(x)
    assert (found >= known.lo).all()
    assert (found <= known.hi).all()


@settings(max_examples=examples(300))
@given(
    st.builds(
        crossbar_of,
        rows=st.one_of(st.none(), st.integers(1, 9)),
        cell_bits=st.integers(1, 8),
        dac_bits=st.integers(1, 9),
        encoding=st.sampled_from(["differential", "offset", "offset-flip", "centred"]),
        weight_bits=st.integers(2, 9),
        input_encoding=st.sampled_from(["twos-complement", "offset", "bipolar"]),
        input_bits=st.integers(2, 9),
        adc_bits=st.integers(1, 16),
        rounding=st.sampled_from(["half-up", "half-even", "floor"]),
        accumulator_bits=st.just(62),
        rows_active=st.one_of(st.none(), st.integers(1, 9)),
        adc_on=st.sampled_from(["difference", "polarity"]),
        shift_add=st.sampled_from(["digital", "analog"]),
        offset_sum=st.sampled_from(["digital", "unit-column"]),
        leak=st.sampled_from([0, 0, 3, 4000]),
        unused_rows=st.sampled_from(["off", "driven"]),
    ),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)
def test_no_run_leaves_the_bounds(hardware: Crossbar, rows: int, seed: int) -> None:
    """Whatever converts, at whatever steps, by formula or by table."""
    rng = np.random.default_rng(seed)
    if hardware.unit_column:
        hardware = changed(hardware, leak=0)
    bits = hardware.converter.bits
    assert bits is not None
    if bits < 7 and rng.integers(2):
        thresholds = np.sort(rng.integers(-50, 16 << bits, (1 << bits) - 1))
        hardware = changed(hardware, rounding=None, transfer=tuple(thresholds.tolist()))
    steps = hardware.fraction_bits // 2 + rng.integers(0, 10, hardware.slices + 1)
    *of_slices, unit = [int(step) for step in steps]
    w_top, x_top = (1 << hardware.weights.bits - 1) - 1, (1 << hardware.inputs.bits - 1) - 1
    weight = rng.choice([-w_top, 0, w_top, 1], (rows, 3))
    stored = StoredWeights(weight, hardware)
    references = at_steps(hardware, of_slices, unit)
    op = CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), references)
    known = op.infer(integer(("n", rows), -x_top, x_top, 1.0))
    found = op.run(
        np.concatenate(
            [
                rng.choice([-x_top, 0, x_top], (20, rows)),
                x_top * np.sign(weight.T),
                -x_top * np.sign(weight.T),
            ]
        )
    )
    assert (found >= known.lo).all()
    assert (found <= known.hi).all()


@pytest.mark.parametrize(("rows", "bits"), [(4096, 24), (4096, 28), (1024, 28)])
def test_an_error_beyond_64_bits_does_not_wrap_into_a_bound(rows: int, bits: int) -> None:
    hardware = crossbar_of(
        None, 8, 16, "offset", 16, "unsigned", bits, 6, "half-up", 63, shift_add="analog", leak=4
    )
    nothing = np.zeros((rows, 1), np.int64)
    stored, steps = StoredWeights(nothing, hardware), at_steps(hardware, (20, 20))
    op = CrossbarMvm(stored, nothing[0], np.ones(1), steps)
    with pytest.raises(RangeError):
        op.infer(integer(("n", rows), 0, (1 << bits) - 1, 1.0))


def test_sums_in_binary_places_must_fit_as_well() -> None:
    hardware = crossbar_of(None, 8, 16, "offset", 16, "unsigned", 16, 16, "floor", 62, leak=900)
    for rows, fits in ((1 << 13, True), (1 << 20, False)):
        stored = StoredWeights(np.full((rows, 1), (1 << 15) - 1), hardware)
        op = CrossbarMvm(stored, np.zeros(1, np.int64), np.ones(1), at_steps(hardware, (20, 20)))
        wide = integer(("n", rows), 0, (1 << 16) - 1, 1.0)
        with nullcontext() if fits else pytest.raises(RangeError):
            assert op.infer(wide).hi < 1 << 50


def test_the_accumulator_is_that_of_the_hardware() -> None:
    assert layer(None, None, None).accumulator_bits == 24
