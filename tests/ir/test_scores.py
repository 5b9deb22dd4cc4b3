"""Scores that are one statistic: values, bounds, and the same in ONNX."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from cimtool.emit.onnx import OnnxWriter
from cimtool.ir.op import Op
from cimtool.ir.scores import CosineScore, DistanceScore
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
def test_values_bounds_and_onnx(op: Op, wanted: object) -> None:
    np.testing.assert_array_equal(op.run(VALUES), wanted)
    known = real(("n", "m"), VALUES.min(), VALUES.max())
    bounds = op.infer(known)
    assert (bounds.lo, bounds.hi) == (np.min(wanted), np.max(wanted))
    writer = OnnxWriter("DOUBLE")
    writer.name_output(op.emit(writer, (known,), "x"), "y")
    port = ("DOUBLE", known.shape)
    (found,) = ReferenceEvaluator(writer.model("score", {"x": port}, {"y": port})).run(
        None, {"x": VALUES}
    )
    np.testing.assert_array_equal(found, wanted)
