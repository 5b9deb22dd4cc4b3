"""Formats that a model brings: codes come back exactly, stores round as QuantizeLinear does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from cimtool.base.arrays import single
from cimtool.ir.quantized import QuantizedMvm, QuantizedStore, is_whole

SCALES = st.floats(2.0**-126, 2.0**100, width=32)


@given(st.lists(st.integers(-(2**16), 2**16), min_size=1), SCALES)
def test_codes_come_back_from_float32(codes: list[int], scale: float) -> None:
    whole = np.array(codes)[:, None]
    weight, unit = single(whole * scale), np.array([scale])
    op = QuantizedMvm(weight, np.zeros(1), weight_scale=unit, weight_bits=16)
    np.testing.assert_array_equal(op.codes, whole)


@given(
    st.lists(st.floats(-1024, 1024, width=32), min_size=1),  # ONNX's evaluator wraps at 2^31
    st.floats(2.0**-12, 2.0**20, width=32),
    st.integers(0, 255),
)
def test_a_store_is_quantize_linear_and_back(x: list[float], scale: float, zero: int) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    rows = np.array(x, np.float32)
    feeds = {"x": rows, "s": np.float32(scale), "z": np.uint8(zero)}
    (codes,) = ReferenceEvaluator(node).run(None, feeds)
    store = QuantizedStore("input", 8, scale=scale, lo=-zero, hi=255 - zero)
    np.testing.assert_array_equal(store.run(rows), (codes.astype(int) - zero) * scale)


def test_biases_are_whole_within_their_fraction() -> None:
    assert is_whole(np.array([3.0, -5.0 + 2.0**-10]))
    assert not is_whole(np.array([3.0, -5.0 + 2.0**-8]))
