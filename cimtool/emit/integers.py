"""Integers in ONNX, by operations that runtimes compute exactly: limits, and planes of bytes."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.emit.functions import REQUANT, SHIFT_RIGHT_8
from cimtool.emit.writer import GraphWriter
from cimtool.ir.types import Type

INT32 = np.iinfo(np.int32)


def emit_limits(writer: GraphWriter, value: str, known: Type, lo: Array, hi: Array) -> str:
    """Append `min(max(value, lo), hi)` for int64 values of type `known`, as far as it limits them.

    If the high words of two int64 are equal, Max, Min and Clip of ONNX Runtime (1.31) compare the
    low words as signed numbers: they take 2^31 for smaller than 1. They are right if everything
    fits 32 bits; else Less and Where take their place.
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


def byte_planes(writer: GraphWriter, known: Type, value: str) -> list[tuple[str, str, int]]:
    """Split int64 rows into uint8 planes (name, zero point, shift) for MatMulInteger.

    Only uint8 x uint8 products are exact on every CPU, so a signed byte is stored with zero
    point 128; wider integers are cut into unsigned low bytes and a signed top byte.
    """
    *low_bytes, (shift, zero) = byte_cuts(int(known.lo.min()), int(known.hi.max()))
    planes = []
    for low_shift, _ in low_bytes:
        low = writer.cast(value, "UINT8")  # a cast keeps the low byte: ONNX defines it so
        planes.append((low, zero_point(writer, 0), low_shift))
        lift, eight = writer.constant(np.int64(1) << 62), writer.constant(np.uint64(8), "UINT64")
        value = writer.call(SHIFT_RIGHT_8, value, lift, eight, writer.constant(np.int64(1) << 54))
    if zero:
        value = writer.node("Add", value, writer.constant(np.int64(zero)))
    planes.append((writer.cast(value, "UINT8"), zero_point(writer, zero), shift))
    return planes


def byte_cuts(lo: int, hi: int) -> list[tuple[int, int]]:
    """Shift and zero point of each uint8 plane of integers from `lo` to `hi`, the lowest first.

    Only the top plane is signed, with zero point 128.
    """
    shift = 0
    while not (lo >> shift >= -128 and hi >> shift <= 127) and not (lo >= 0 and hi >> shift <= 255):
        shift += 8
    return [*((low, 0) for low in range(0, shift, 8)), (shift, 0 if lo >= 0 else 128)]


def emit_requant(
    writer: GraphWriter, x: str, multiplier: IntArray, shift: IntArray, addend: IntArray | int = 0
) -> str:
    """Append `x * multiplier + addend` shifted right, half up; an int64 value."""
    period = np.int64(1 << 62) >> shift
    lift = (period << shift) + (np.int64(1) << shift >> np.int64(1))
    return writer.call(
        REQUANT,
        x,
        writer.constant(multiplier),
        writer.constant(lift + addend),
        writer.constant(shift.astype(np.uint64), "UINT64"),
        writer.constant(period),
    )


def zero_point(writer: GraphWriter, zero: int) -> str:
    """The uint8 scalar constant that MatMulInteger takes as zero point."""
    return writer.constant(np.uint8(zero), "UINT8")
