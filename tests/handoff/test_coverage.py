"""Inputs that the vectors of a hand-off reach."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.handoff.coverage import SWEPT, swept


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
