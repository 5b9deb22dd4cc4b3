"""Scores that are one statistic of a pair, moved and scaled; the polynomial's is in `source`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.op import Op
from cimtool.ir.types import Type, combine, real

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter


@dataclass(frozen=True, eq=False)
class DistanceScore(Op, name="distance_score"):
    """`factor * ed + offset` of a squared distance [n, m]."""

    factor: float
    offset: float = 0.0

    def infer(self, *inputs: Type) -> Type:
        (ed,) = inputs
        lo, hi = combine(np.multiply, (np.asarray(self.factor),) * 2, (ed.lo, ed.hi))
        return real(ed.shape, lo + self.offset, hi + self.offset)

    def run(self, *inputs: Array) -> Array:
        return self.factor * inputs[0] + self.offset

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        scaled = writer.node("Mul", inputs[0], writer.constant(np.float64(self.factor)))
        return writer.node("Add", scaled, writer.constant(np.float64(self.offset)))


@dataclass(frozen=True, eq=False)
class CosineScore(Op, name="cosine_score"):
    """The inner products [n, m] of rows at unit norm, as they are."""

    def infer(self, *inputs: Type) -> Type:
        return inputs[0]

    def run(self, *inputs: Array) -> Array:
        return inputs[0]

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return inputs[0]
