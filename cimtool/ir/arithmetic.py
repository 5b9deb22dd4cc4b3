"""The MAC-only operations, on real numbers and on integers alike: what CIM hardware computes.

After `lower` nothing else stands in a program but these and `Store`/`Axis`, which compute nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, FloatArray, IntArray
from cimtool.ir.limits import emit_limits
from cimtool.ir.op import UNSTORED, Op
from cimtool.ir.types import (
    INT_LIMIT,
    RangeError,
    Type,
    combine,
    exact,
    integer,
    like,
    real,
)

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter


@dataclass(frozen=True)
class TensorKeys:
    """The full keys of a checkpoint's tensors that a layer's weight, and its bias if any, are."""

    weight: str
    bias: str | None


@dataclass(frozen=True, eq=False)
class Mvm(Op, name="mvm"):
    """Matrix-vector products with a trained matrix: `x @ weight + bias`, [rows, K] -> [rows, N].

    `scale` [N] is the real value of one unit of each integer sum, None for real numbers. `keys` are
    known as long as the numbers are those of a checkpoint; no file keeps them.
    """

    weight: Array
    bias: Array
    scale: Array | None = None
    keys: TensorKeys | None = field(default=None, metadata=UNSTORED)

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = mvm_bounds(self.weight, self.bias, x)
        shape = (x.shape[0], self.weight.shape[1])
        return real(shape, lo, hi) if self.scale is None else integer(shape, lo, hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] @ self.weight + self.bias

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return writer.node(
            "Gemm", inputs[0], writer.constant(self.weight), writer.constant(self.bias)
        )


def mvm_bounds(weight: Array, bias: Array, x: Type) -> tuple[Array, Array]:
    """Exact bounds of `x @ weight + bias` per output channel, from the bounds of `x`.

    Raises RangeError where integers could leave the 62 bits of the digital unit.
    """
    lo = np.broadcast_to(x.lo, weight.shape[:1])
    hi = np.broadcast_to(x.hi, weight.shape[:1])
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        return np.full(bias.shape, -np.inf), np.full(bias.shape, np.inf)
    if x.is_integer:
        return _whole_bounds(weight, bias, lo, hi)
    return _bounds_by_sign(weight, bias, lo, hi)


def _bounds_by_sign(weight: Array, bias: Array, lo: Array, hi: Array) -> tuple[Array, Array]:
    positive, negative = np.maximum(weight, 0), np.minimum(weight, 0)
    return lo @ positive + hi @ negative + bias, hi @ positive + lo @ negative + bias


def _whole_bounds(
    weight: IntArray, bias: IntArray, lo: IntArray, hi: IntArray
) -> tuple[IntArray, IntArray]:
    """The same of integers: in float64, whose products are fast, where all sums are exact there."""
    real = weight.astype(np.float64)
    size = np.abs(real)
    spread, reach = np.stack([hi - lo, np.maximum(np.abs(lo), np.abs(hi))]).astype(float) @ size
    largest = (reach + np.abs(bias)).max(initial=0.0)
    if largest >= INT_LIMIT:
        raise RangeError
    if largest >= 1 << FLOAT_BITS - 2:
        return _bounds_by_sign(weight, bias, lo, hi)
    total = (lo + hi).astype(float) @ real
    ends = ((total + side).astype(np.int64) >> 1 for side in (-spread, spread))
    least, most = (end + bias for end in ends)
    return least, most


@dataclass(frozen=True, eq=False)
class MatMul(Op, name="matmul"):
    """All inner products of two sets of rows: [n, d] x [m, d] -> [n, m]."""

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        lo, hi = combine(np.multiply, (a.lo, a.hi), (b.lo, b.hi))
        width = a.shape[-1]
        total = [
            np.broadcast_to(exact(np.asarray(bound)), (int(width),)).sum() for bound in (lo, hi)
        ]
        shape = (a.shape[0], b.shape[0])
        if not a.is_integer:
            return real(shape, *total)
        return integer(shape, total[0], total[1], a.unit * b.unit)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] @ inputs[1].T

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        if not types[0].is_integer:
            return writer.node("MatMul", inputs[0], writer.node("Transpose", inputs[1]))
        rows = byte_planes(writer, types[0], inputs[0])
        columns = [
            (writer.node("Transpose", plane), zero, shift)
            for plane, zero, shift in byte_planes(writer, types[1], inputs[1])
        ]
        total = ""
        for a, a_zero, a_shift in rows:
            for b, b_zero, b_shift in columns:
                product = writer.cast(writer.node("MatMulInteger", a, b, a_zero, b_zero), "INT64")
                shift = a_shift + b_shift
                if shift:
                    product = writer.node(
                        "Mul", product, writer.constant(np.int64(1) << np.int64(shift))
                    )
                total = writer.node("Add", total, product) if total else product
        return total


def byte_planes(writer: GraphWriter, known: Type, value: str) -> list[tuple[str, str, int]]:
    """Split int64 rows into uint8 planes (name, zero point, shift) for MatMulInteger.

    Only uint8 x uint8 products are exact on every CPU, so a signed byte is stored with zero
    point 128; wider integers are cut into unsigned low bytes and a signed top byte.
    """
    lo, hi = int(known.lo.min()), int(known.hi.max())
    planes, shift = [], 0
    while not (lo >= -128 and hi <= 127) and not (lo >= 0 and hi <= 255):
        low = writer.cast(value, "UINT8")  # a cast keeps the low byte: ONNX defines it so
        planes.append((low, zero_point(writer, 0), shift))
        lift, eight = writer.constant(np.int64(1) << 62), writer.constant(np.uint64(8), "UINT64")
        value = writer.call("ShiftRight8", value, lift, eight, writer.constant(np.int64(1) << 54))
        lo, hi, shift = lo >> 8, hi >> 8, shift + 8
    zero = 0 if lo >= 0 else 128
    if zero:
        value = writer.node("Add", value, writer.constant(np.int64(zero)))
    planes.append((writer.cast(value, "UINT8"), zero_point(writer, zero), shift))
    return planes


def zero_point(writer: GraphWriter, zero: int) -> str:
    """The uint8 scalar constant that MatMulInteger takes as zero point."""
    return writer.constant(np.uint8(zero), "UINT8")


@dataclass(frozen=True, eq=False)
class Mul(Op, name="mul"):
    """Element by element product, with NumPy's broadcasting."""

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        shape = a.shape if len(a.shape) >= len(b.shape) and a.shape[-1] != 1 else b.shape
        lo, hi = combine(np.multiply, (a.lo, a.hi), (b.lo, b.hi))
        if a is b:  # one value times itself is never negative
            lo = np.maximum(lo, 0)
        if not a.is_integer:
            return real(shape, lo, hi)
        return integer(shape, lo, hi, a.unit * b.unit)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1]

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return writer.node("Mul", *inputs)


@dataclass(frozen=True, eq=False)
class Add(Op, name="add"):
    """`sum_i factors[i] * x_i + offset`: constants multiply and are added, nothing else.

    `scale` is the real value of one unit of the result for integers (factors are then integers,
    as many units of the result as one unit of that operand is), None for real numbers.
    """

    factors: tuple[Array, ...]
    offset: Array
    scale: Array | None = None

    def infer(self, *inputs: Type) -> Type:
        lo = hi = exact(np.asarray(self.offset))
        for factor, x in zip(self.factors, inputs, strict=True):
            low, high = combine(np.multiply, (factor, factor), (x.lo, x.hi))
            lo, hi = lo + low, hi + high
        shape = max((x.shape for x in inputs), key=lambda s: (len(s), s[-1] != 1, s[0] != 1))
        if len(inputs) > 1 and all(len(x.shape) == 2 for x in inputs):
            shape = tuple(_wider([x.shape[axis] for x in inputs]) for axis in (0, 1))
        if self.scale is None:
            return real(shape, lo, hi)
        return integer(shape, lo, hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        total = self.offset
        for factor, x in zip(self.factors, inputs, strict=True):
            total = total + (x if np.ndim(factor) == 0 and factor == 1 else factor * x)
        return total

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        total = ""
        for factor, x in zip(self.factors, inputs, strict=True):
            if total and np.ndim(factor) == 0 and factor == -1:
                total = writer.node("Sub", total, x)
                continue
            if np.ndim(factor) or factor != 1:
                x = writer.node("Mul", x, writer.constant(factor))
            total = writer.node("Add", total, x) if total else x
        if np.any(self.offset):
            total = writer.node("Add", total, writer.constant(self.offset))
        return total


def _wider(extents: list[str | int]) -> str | int:
    return next((extent for extent in extents if extent != 1), 1)


@dataclass(frozen=True, eq=False)
class Sum(Op, name="sum"):
    """Accumulate over the last axis: [rows, d] -> [rows]."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        width = x.shape[-1]
        lo, hi = (np.broadcast_to(exact(bound), (int(width),)).sum() for bound in (x.lo, x.hi))
        return like(x, x.shape[:-1], lo, hi)

    def run(self, *inputs: Array) -> Array:
        total: Array = inputs[0].sum(axis=-1)
        return total

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        # ReduceSum loses bits of int64 above 2^53; a product with ones does not.
        width = int(types[0].shape[-1])
        ones = np.ones(width, np.int64 if types[0].is_integer else np.float64)
        return writer.node("MatMul", inputs[0], writer.constant(ones))


@dataclass(frozen=True, eq=False)
class Clip(Op, name="clip"):
    """Limit to [lo, hi] (units of the input); an infinite bound is absent."""

    lo: Array
    hi: Array

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = (np.clip(bound, self.lo, self.hi) for bound in (x.lo, x.hi))
        return replace(x, lo=lo.astype(x.lo.dtype), hi=hi.astype(x.hi.dtype))

    def run(self, *inputs: Array) -> Array:
        return np.clip(inputs[0], self.lo, self.hi).astype(inputs[0].dtype)

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        value = inputs[0]
        if types[0].is_integer:
            return emit_limits(writer, value, types[0], self.lo, self.hi)
        for op, bound, absent in (("Max", self.lo, -np.inf), ("Min", self.hi, np.inf)):
            if np.any(bound != absent):
                value = writer.node(op, value, writer.constant(bound))
        return value


@dataclass(frozen=True, eq=False)
class Axis(Op, name="axis"):
    """Insert an axis of extent 1, so that two sets of rows meet in all pairs; no arithmetic."""

    axis: int

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        shape = (*x.shape[: self.axis], 1, *x.shape[self.axis :])
        return replace(x, shape=shape)

    def run(self, *inputs: Array) -> Array:
        return np.expand_dims(inputs[0], self.axis)

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return writer.node("Unsqueeze", inputs[0], writer.constant(np.array([self.axis])))


@dataclass(frozen=True, eq=False)
class Store(Op, name="store"):
    """A place where a value is kept in memory: identity now, a rounding after `quantize`.

    `role` says for what (`input`, `activation`, `mu`, `s`, `s_self`, `residual`, `normal`,
    `logit`) and so in which kind of scale; `bits` in how many, 0 where the settings' feature bits
    decide.
    """

    role: str
    bits: int = 0

    def same(self, other: Store) -> bool:
        """Whether both keep a value in the same format."""
        return (self.role, self.bits) == (other.role, other.bits)

    def infer(self, *inputs: Type) -> Type:
        return inputs[0]

    def run(self, *inputs: Array) -> Array:
        return inputs[0]

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return inputs[0]


def scalar(value: float) -> FloatArray:
    """A 0-d float64 array, the form in which operations keep single numbers."""
    return np.asarray(value, np.float64)
