"""Operations of the integer program alone: in from float32, from one format to another, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir import format as fixed
from cimtool.ir.limits import emit_limits
from cimtool.ir.op import Op
from cimtool.ir.types import INT_LIMIT, Type, combine, integer, real

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter


@dataclass(frozen=True, eq=False)
class Quantize(Op, name="quantize"):
    """float32 rows to integers in [lo, hi], half to even; `scale` powers of two, per channel.

    The only float arithmetic before a program's last line: the division is exact.
    """

    scale: Array
    lo: int
    hi: int

    def infer(self, *inputs: Type) -> Type:
        return integer(inputs[0].shape, self.lo, self.hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        return fixed.quantize(inputs[0], self.scale, self.lo, self.hi)

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        kind = _code_kind(self.lo, self.hi)
        scale = np.asarray(self.scale)
        codes = writer.node(
            "QuantizeLinear",
            inputs[0],
            writer.constant(scale, "FLOAT"),
            writer.constant(np.zeros(scale.shape, np.int64), kind),
            axis=1,
        )
        known = np.iinfo(kind.lower())
        wide = writer.cast(codes, "INT64")
        reached = integer(types[0].shape, known.min, known.max, self.scale)
        return emit_limits(writer, wide, reached, np.asarray(self.lo), np.asarray(self.hi))


def _code_kind(lo: int, hi: int) -> str:
    """The narrowest element type of QuantizeLinear that holds the codes."""
    bits = 8 if (lo >= -128 and hi <= 127) or (lo >= 0 and hi <= 255) else 16
    return f"{'INT' if lo < 0 else 'UINT'}{bits}"


@dataclass(frozen=True, eq=False)
class Requant(Op, name="requant"):
    """`clip((x * multiplier + 2^(shift-1)) >> shift, lo, hi)`, multiplier and shift per channel.

    `scale` is the real value of one unit of the result.
    """

    multiplier: Array
    shift: Array
    lo: int
    hi: int
    scale: Array

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = combine(np.multiply, (x.lo, x.hi), (self.multiplier, self.multiplier))
        integer(x.shape, lo, hi, 1.0)  # the product itself must fit
        ends = [self.run(np.asarray(bound, np.int64)) for bound in (x.lo, x.hi)]
        return integer(x.shape, ends[0], ends[1], self.scale)

    def run(self, *inputs: Array) -> Array:
        return fixed.requant(inputs[0], self.multiplier, self.shift, self.lo, self.hi)  # type: ignore[arg-type]

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        step = [1 << int(shift) for shift in np.ravel(self.shift)]
        periods = np.array([2**62 // d for d in step], np.int64).reshape(self.shift.shape)
        addend = np.array([2**62 // d * d + d // 2 for d in step], np.int64)
        shifted = writer.call(
            "Requant",
            inputs[0],
            writer.constant(self.multiplier),
            writer.constant(addend.reshape(self.shift.shape)),
            writer.constant(self.shift.astype(np.uint64), "UINT64"),
            writer.constant(periods),
        )
        unlimited = replace(self, lo=-INT_LIMIT, hi=INT_LIMIT).infer(types[0])
        return emit_limits(writer, shifted, unlimited, np.asarray(self.lo), np.asarray(self.hi))


@dataclass(frozen=True, eq=False)
class Dequantize(Op, name="dequantize"):
    """Integers below 2^24 times a power of two: exact in float32."""

    scale: Array

    def infer(self, *inputs: Type) -> Type:
        lo, hi = inputs[0].real_bounds()
        return real(inputs[0].shape, lo, hi)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] * self.scale

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        scale = writer.constant(self.scale, "FLOAT")
        return writer.node("Mul", writer.cast(inputs[0], "FLOAT"), scale)
