"""Limits of integers in ONNX, by operations that ONNX Runtime computes right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.types import Type

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter

INT32 = np.iinfo(np.int32)


def emit_limits(writer: GraphWriter, value: str, known: Type, lo: Array, hi: Array) -> str:
    """Append `min(max(value, lo), hi)` for int64 values of type `known`, as far as it limits them.

    Max, Min and Clip of ONNX Runtime (1.31) compare the low words of two int64 as signed numbers
    where the high words are equal: of 1 and 2^31 they take the latter for the smaller. They are
    right where everything fits 32 bits; elsewhere Less and Where do the same, and are right.
    """
    below, above = bool(known.lo.min() < lo.max()), bool(known.hi.max() > hi.min())
    limits = [lo] * below + [hi] * above
    narrow = all(_fits_int32(bound) for bound in (known.lo, known.hi, *limits))
    if narrow and below and above and lo.ndim == hi.ndim == 0:
        return writer.node("Clip", value, *map(writer.constant, limits))
    for op, limit in [("Max", lo)] * below + [("Min", hi)] * above:
        bound = writer.constant(limit)
        if narrow:
            value = writer.node(op, value, bound)
        else:
            outside = (value, bound) if op == "Max" else (bound, value)
            value = writer.node("Where", writer.node("Less", *outside), bound, value)
    return value


def _fits_int32(bound: Array) -> bool:
    return bool(bound.min() >= INT32.min and bound.max() <= INT32.max)
