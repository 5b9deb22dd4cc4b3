"""Inputs that the vectors of a hand-off reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporter import Request
from cimtool.handoff.coverage import NOT_FOUND, PROVED, SWEPT, coverage, swept
from cimtool.handoff.layers import HandoffSource
from cimtool.handoff.stimuli import largest_sum

REFERENCE = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"


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
