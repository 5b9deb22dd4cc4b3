"""Scores that are one statistic: values and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.ir.op import Op
from cimtool.ir.source import CosineScore, DistanceScore
from cimtool.ir.types import real

VALUES = np.array([[0.5, 2.0], [3.0, 7.25]])


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (DistanceScore(-2.0, 1.0), [[0.0, -3.0], [-5.0, -13.5]]),
        (DistanceScore(-1.0), -VALUES),
        (CosineScore(), VALUES),
    ],
    ids=str,
)
def test_values_and_bounds(op: Op, wanted: object) -> None:
    np.testing.assert_array_equal(op.run(VALUES), wanted)
    known = real(("n", "m"), VALUES.min(), VALUES.max())
    bounds = op.infer(known)
    assert (bounds.lo, bounds.hi) == (np.min(wanted), np.max(wanted))
