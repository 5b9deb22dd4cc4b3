"""The taps of a layer: each follows from the one before, and the last is the layer's output."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of

from cimtool.base.arrays import IntArray
from cimtool.handoff.converter_taps import (
    column_places,
    layer_sum,
    sum_bits,
    taps,
    worst_column,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights

PLAIN = crossbar_of(8, 3, 2, "offset-flip", 6, "offset", 5, 4, "half-up", 32)
FORMS = {
    "plain": PLAIN,
    "lossless": changed(PLAIN, adc_bits=None),
    "polarity": changed(PLAIN, encoding="differential", adc_on="polarity", rows_active=3),
    "analog": changed(PLAIN, encoding="differential", shift_add="analog", input_encoding="bipolar"),
    "unit column": changed(PLAIN, offset_sum="unit-column", input_encoding="twos-complement"),
    "leak": changed(PLAIN, leak=900, unused_rows="driven"),
    "table": changed(PLAIN, rounding=None, transfer=tuple(range(5, 15 * 19, 19))),
    "digital": changed(PLAIN, encoding="twos-complement", adc_bits=None),
}


def layer(form: str) -> tuple[CrossbarMvm, IntArray]:
    rng = np.random.default_rng(3)
    hardware = FORMS[form]
    finest = hardware.fraction_bits
    steps: tuple[int | None, ...] = (None,) * hardware.slices
    if hardware.converter.bits is not None:
        steps = tuple(int(s) for s in finest + rng.integers(1, 4, hardware.slices))
    unit_step = 3 if hardware.unit_column else None
    weight = rng.integers(-31, 32, (21, 4))
    stored, bias = StoredWeights(weight, hardware), rng.integers(-9, 9, 4)
    op = CrossbarMvm(stored, bias, np.ones(4), at_steps(hardware, steps, unit_step))
    return op, rng.integers(-15, 16, (6, 21))


@pytest.mark.parametrize("form", FORMS)
def test_the_last_tap_is_what_the_layer_computes(form: str) -> None:
    op, x = layer(form)
    np.testing.assert_array_equal(layer_sum(op, taps(op, x).shift_add), op.run(x))


@pytest.mark.parametrize("form", FORMS)
def test_each_tap_follows_from_the_one_before(form: str) -> None:
    op, x = layer(form)
    found, crossbar = taps(op, x), op.crossbar
    driving, groups = crossbar.digits(x), crossbar.tiling.groups(len(op.weight))
    width = op.weight.shape[1]
    cells = op.stored.cells.slices
    idle = crossbar.column_leak * crossbar.tiling.idle(len(op.weight))
    zero = crossbar.digits(np.zeros((1, 1), np.int64))
    for (c, digits), (r, group) in product(enumerate(driving), enumerate(groups)):
        np.testing.assert_array_equal(found.digits[:, c], digits)
        unused = idle[r] * zero[c, 0, 0]
        for k, column in enumerate(cells):
            sums = digits[:, group] @ column.digits[group] + unused
            np.testing.assert_array_equal(found.sums[:, r, c, k * width : (k + 1) * width], sums)
    places = column_places(op.layer)
    for part, references in zip(places, op.references, strict=True):
        sums, codes = found.sums[..., part], found.codes[..., part]
        expected = sums
        if references is not None:
            assert crossbar.law is not None
            expected = crossbar.law.codes(sums, references.step)
        np.testing.assert_array_equal(codes, expected)
    assert (places[-1].start == width * crossbar.slices) == crossbar.unit_column


@pytest.mark.parametrize("form", FORMS)
def test_no_input_makes_a_larger_column_sum_than_the_worst(form: str) -> None:
    op, _ = layer(form)
    worst = worst_column(op, np.full(21, -15), np.full(21, 15))
    reached = taps(op, worst[None]).sums[..., : op.weight.shape[1] * op.crossbar.slices].max()
    rng = np.random.default_rng(5)
    for x in (rng.integers(-15, 16, (200, 21)), rng.choice([-15, 0, 15], (200, 21))):
        assert taps(op, x).sums.max() <= reached or op.crossbar.unit_column
    signs = np.concatenate([15 * np.sign(op.weight.T), -15 * np.sign(op.weight.T)])
    assert taps(op, signs).sums.max() <= reached
    assert int(reached).bit_length() < sum_bits(op)
    assert (np.abs(worst) <= 15).all()


def test_a_worst_column_worked_by_hand() -> None:
    hardware = crossbar_of(2, 7, 8, "differential", 8, "bipolar", 4, 4, "half-up", 32)
    weight = np.array([[1, 5], [-3, 0], [100, 1], [-90, 90]])
    stored, steps = StoredWeights(weight, hardware), at_steps(hardware, (3,))
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), steps)
    assert len(op.stored.slices) == 1
    assert worst_column(op, np.full(4, -7), np.full(4, 7)).tolist() == [0, 0, 7, -7]
    assert taps(op, np.array([[0, 0, 7, -7]])).sums.max() == 7 * 190
