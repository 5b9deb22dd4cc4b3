"""Bounds of what accumulators hold, against all inputs, and inputs that reach them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of

from cimtool import api
from cimtool.bundle.exporter import Request
from cimtool.demo.data import DemoFiles
from cimtool.handoff.carries import carry_input, carry_reached, largest_held
from cimtool.handoff.coverage import PROVED, coverage
from cimtool.handoff.layers import HandoffSource
from cimtool.handoff.taps import taps
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights

BITWISE = crossbar_of(4, 2, 1, "offset-flip", 6, "twos-complement", 4, 3, "half-up", 32)
FORMS = {
    "flags": BITWISE,
    "lossless": changed(BITWISE, adc_bits=None),
    "offset": changed(BITWISE, encoding="offset"),
    "unit column": changed(BITWISE, encoding="offset", offset_sum="unit-column"),
    "polarity": changed(BITWISE, encoding="differential", adc_on="polarity"),
    "two bits a cycle": changed(BITWISE, dac_bits=2),
    "a reference of each cycle": changed(BITWISE, references="cycle"),
    "signed digits": changed(BITWISE, encoding="differential", input_encoding="bipolar"),
}


def layer(form: str) -> CrossbarMvm:
    """A layer of two row groups of 4 rows on such arrays."""
    rng, crossbar = np.random.default_rng(5), FORMS[form]
    weight, bias = rng.integers(-31, 32, (8, 3)), np.zeros(3, np.int64)
    steps = [None if crossbar.converter.bits is None else 1] * crossbar.slices
    references = at_steps(crossbar, steps, 1 if crossbar.unit_column else None)
    return CrossbarMvm(StoredWeights(weight, crossbar), bias, np.ones(3), references)


@pytest.mark.parametrize("form", FORMS)
def test_no_input_leaves_the_bounds_of_a_row_group(form: str) -> None:
    """All inputs of four rows of 4 bits, in both row groups."""
    op, (lo, hi) = layer(form), np.array([[-8] * 8, [7] * 8])
    every = np.stack(np.meshgrid(*[np.arange(-8, 8)] * 4), axis=-1).reshape(-1, 4)
    added = taps(op, np.hstack([every, every])).shift_add
    bounds = largest_held(op, lo, hi, np.arange(3))
    for sign, bound in zip((1, -1), bounds, strict=True):
        assert (bound >= (sign * added).max(axis=0)).all()
    # They are close: every bit that they leave is set by an input, which the search finds.
    ends = np.stack([added.max(axis=0), -added.min(axis=0)]).sum(axis=1)
    reached = int(ends.max()).bit_length()
    assert int(bounds.sum(axis=1).max()).bit_length() == reached
    x = carry_input(op, lo, hi, 1 << reached - 1, bounds)
    assert x is not None
    assert (lo <= x).all()
    assert (x <= hi).all()
    assert carry_reached(taps(op, x[None]).shift_add).bit_length() == reached


def test_inputs_of_a_narrow_range_have_narrow_bounds() -> None:
    op, (lo, hi) = layer("flags"), np.array([[0] * 8, [1] * 8])
    every = np.stack(np.meshgrid(*[np.arange(2)] * 8), axis=-1).reshape(-1, 8)
    added = taps(op, every).shift_add
    bounds = largest_held(op, lo, hi, np.arange(3))
    for sign, bound in zip((1, -1), bounds, strict=True):
        assert (bound >= (sign * added).max(axis=0)).all()
    wide = largest_held(op, lo - 8, hi + 6, np.arange(3))
    assert (bounds <= wide).all()
    assert bounds.sum() < wide.sum() / 4


def test_a_carry_that_fixed_stimuli_miss_is_searched(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", output=tmp_path / "bundle", target="isaac-rram-128", array="24x32",
        adc_bits=3,
    )  # fmt: skip
    layers = HandoffSource(bundle, Request()).layers
    searched = [one for one in layers if one.stimuli[-1].startswith("carry into bit ")]
    assert len(searched) >= 2
    for one in searched:
        bit = int(one.stimuli[-1].removeprefix("carry into bit "))
        before = carry_reached(taps(one.op, one.x[:-1]).shift_add)
        assert before < 1 << bit <= carry_reached(taps(one.op, one.x[-1:]).shift_add)
    for carries in (coverage(one)["carries"] for one in layers):
        assert (carries["not_found"], carries["why"]) == (0, PROVED)
