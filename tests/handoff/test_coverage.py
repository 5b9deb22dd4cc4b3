"""Inputs that the vectors of a hand-off reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporter import Request
from cimtool.handoff.coverage import NOT_FOUND, PROVED, SWEPT, coverage, group_bounds, swept
from cimtool.handoff.layers import HandoffSource
from cimtool.handoff.stimuli import largest_sum
from cimtool.handoff.taps import taps
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights

REFERENCE = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"
BITWISE = crossbar_of(4, 2, 1, "offset-flip", 6, "twos-complement", 4, 3, "half-up", 32)
FORMS = {
    "flags": BITWISE,
    "lossless": changed(BITWISE, adc_bits=None),
    "offset": changed(BITWISE, encoding="offset"),
    "unit column": changed(BITWISE, encoding="offset", offset_sum="unit-column"),
    "polarity": changed(BITWISE, encoding="differential", adc_on="polarity"),
    "two bits a cycle": changed(BITWISE, dac_bits=2),
}


@pytest.mark.parametrize(("lo", "hi"), [(0, 0), (-127, 127), (-128, 127), (0, 255), (0, 15)])
@pytest.mark.parametrize("row", [0, 3, 200])
def test_a_row_gets_each_of_its_inputs(lo: int, hi: int, row: int) -> None:
    np.testing.assert_array_equal(np.unique(swept(lo, hi, row)), np.arange(lo, hi + 1))


@pytest.mark.parametrize(("lo", "hi"), [(0, 256), (-512, 511), (0, 65535)])
def test_a_wider_row_gets_inputs_over_all_of_its_range(lo: int, hi: int) -> None:
    found = swept(lo, hi, 3)
    assert found.shape == (SWEPT,)
    assert lo <= found.min() <= found.max() <= hi
    gaps = np.diff(np.unique(found))
    assert gaps.max() <= 2 * -(-(hi - lo + 1) // SWEPT)


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
    op = layer(form)
    every = np.stack(np.meshgrid(*[np.arange(-8, 8)] * 4), axis=-1).reshape(-1, 4)
    added = taps(op, np.hstack([every, every])).shift_add
    for group in range(2):
        ends = group_bounds(op, group)
        assert ends is not None
        least, most = ends
        assert (least <= added[:, group].min(axis=0)).all()
        assert (most >= added[:, group].max(axis=0)).all()
        # They are close: no bit is left that an input does not set, if digits have one bit.
        reached = int(np.abs(added[:, group]).max()).bit_length()
        if form != "two bits a cycle":
            assert int(max(-least.min(), most.max())).bit_length() == reached


def test_cycles_with_their_own_converters_have_no_bounds_of_rows() -> None:
    crossbar = changed(BITWISE, references="cycle")
    stored = StoredWeights(np.ones((8, 3), np.int64), crossbar)
    references = at_steps(crossbar, [1] * crossbar.slices)
    assert (
        group_bounds(CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), references), 0) is None
    )


def test_the_largest_sum_by_hand() -> None:
    """Of columns (1, -3) and (2, 1) at 0..5 and -1..4: 5 + 3 = 8, and 10 + 4 = 14."""
    weight = np.array([[1, 2], [-3, 1]])
    lo, hi = np.array([0, -1]), np.array([5, 4])
    assert largest_sum(weight, lo, hi).tolist() == [5, 4]
    assert largest_sum(-weight, lo, hi).tolist() == [0, 4]  # 0 - 12


def test_vectors_of_the_reference_bundle_reach_all_that_is_not_proved_out_of_reach() -> None:
    layers = HandoffSource(read_bundle(REFERENCE), Request()).layers
    assert len(layers) == 8
    for found in map(coverage, layers):
        carries = found["carries"]
        assert (carries["not_found"], carries["why"]) == (0, PROVED)
        assert carries["bits"] == carries["reached"] + carries["proved_unreachable"] + 1
        assert found["inputs"]["possible"] == found["inputs"]["reached"]
        assert "why" not in found["inputs"]
        assert ("why" in found["counts"]) == (
            min(found["counts"]["largest_of_slice"]) < found["counts"]["rows"]
        )
        assert all(codes.get("why") != NOT_FOUND for codes in found["codes"])
