"""Scores that are one statistic of a pair, moved and scaled; the polynomial's is in `source`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.op import Level, Op
from cimtool.ir.types import Type, combine, real


@dataclass(frozen=True, eq=False)
class DistanceScore(Op, name="distance_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """`factor * ed + offset` of a squared distance [n, m]."""

    factor: float
    offset: float = 0.0

    scores_statistics = True

    def infer(self, *inputs: Type) -> Type:
        (ed,) = inputs
        lo, hi = combine(np.multiply, (np.asarray(self.factor),) * 2, (ed.lo, ed.hi))
        return real(ed.shape, lo + self.offset, hi + self.offset)

    def run(self, *inputs: Array) -> Array:
        return self.factor * inputs[0] + self.offset


@dataclass(frozen=True, eq=False)
class CosineScore(Op, name="cosine_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """The inner products [n, m] of rows at unit norm, as they are."""

    def infer(self, *inputs: Type) -> Type:
        return inputs[0]

    def run(self, *inputs: Array) -> Array:
        return inputs[0]
