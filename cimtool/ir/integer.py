"""Operations of the integer program alone: in from float32, from one format to another, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.ir import format as fixed
from cimtool.ir.op import Level, Op
from cimtool.ir.types import INT_LIMIT, Type, integer, product_bounds, real


@dataclass(frozen=True, eq=False)
class Quantize(Op, name="quantize", levels=Level.INTEGER.to(Level.DIE)):
    """float32 rows to integers in [lo, hi], half to even; `scale` powers of two, per channel.

    It is the only float arithmetic before a program's last line, and the division is exact. If the
    model brings its own quantizer, the scale is any float32, and every backend divides alike.
    """

    scale: Array
    lo: int
    hi: int

    def infer(self, *inputs: Type) -> Type:
        return integer(inputs[0].shape, self.lo, self.hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        return fixed.quantize(inputs[0], self.scale, self.lo, self.hi)


@dataclass(frozen=True, eq=False)
class Requant(Op, name="requant", levels=Level.INTEGER.to(Level.DIE)):
    """`clip((x * multiplier + 2^(shift-1)) >> shift, lo, hi)`, multiplier and shift per channel.

    `scale` is the real value of one unit of the result.
    """

    multiplier: IntArray
    shift: IntArray
    lo: int
    hi: int
    scale: Array

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        ends = int(self.multiplier.min()), int(self.multiplier.max())
        if x.magnitude * max(-ends[0], ends[1]) >= INT_LIMIT:
            lo, hi = product_bounds((x.lo, x.hi), (self.multiplier, self.multiplier))
            integer(x.shape, lo, hi, 1.0)  # each channel's product itself must fit
        lo, hi = (self.run(np.asarray(bound, np.int64)) for bound in (x.lo, x.hi))
        return integer(x.shape, lo, hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        return fixed.requant(inputs[0], self.multiplier, self.shift, self.lo, self.hi)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Dequantize(Op, name="dequantize", levels=Level.INTEGER.to(Level.DIE)):
    """Integers below 2^24 times a power of two, in float64; float32 holds them exactly."""

    scale: Array

    def infer(self, *inputs: Type) -> Type:
        lo, hi = inputs[0].real_bounds()
        return real(inputs[0].shape, lo, hi)

    def run(self, *inputs: Array) -> Array:
        return inputs[0] * self.scale
