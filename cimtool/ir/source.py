"""Operations of trained models that no CIM hardware has; `fold` and `lower` take them away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from cimtool.arrays import Array
from cimtool.ir.op import Op
from cimtool.ir.types import Type, real
from cimtool.reference.surrogate import Polynomial

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter


@dataclass(frozen=True, eq=False)
class BatchNorm(Op, name="batch_norm"):
    """Batch normalisation at inference: `(x - mean) / sqrt(var + eps) * gamma + beta`."""

    gamma: Array
    beta: Array
    mean: Array
    var: Array
    eps: float

    @property
    def factor(self) -> Array:
        """`gamma / sqrt(var + eps)`, per channel."""
        return cast(Array, self.gamma / np.sqrt(self.var + self.eps))

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape)

    def run(self, *inputs: Array) -> Array:
        return cast(Array, (inputs[0] - self.mean) * self.factor + self.beta)


@dataclass(frozen=True, eq=False)
class Exp(Op, name="exp"):
    """`exp(x)`: from log-variance to variance."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        return real(x.shape, np.exp(x.lo), np.exp(x.hi))

    def run(self, *inputs: Array) -> Array:
        return cast(Array, np.exp(inputs[0]))

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return writer.node("Exp", inputs[0])


@dataclass(frozen=True, eq=False)
class L2Normalize(Op, name="l2_normalize"):
    """Rows divided by their Euclidean norm."""

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape, -1.0, 1.0)

    def run(self, *inputs: Array) -> Array:
        return cast(Array, inputs[0] / np.linalg.norm(inputs[0], axis=-1, keepdims=True))

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        return writer.node("LpNormalization", inputs[0], axis=-1, p=2)


@dataclass(frozen=True, eq=False)
class PolynomialScore(Op, name="polynomial_score"):
    """The trained polynomial of (ed, vd), each [n, m]: the float surrogate of the logit."""

    degree: int
    coeff: tuple[float, ...]
    bias: float
    scale_ed: float
    scale_vd: float

    @property
    def polynomial(self) -> Polynomial:
        """The coefficients as a function of (ed, vd)."""
        return Polynomial(self.degree, self.coeff, self.bias, self.scale_ed, self.scale_vd)

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape)

    def run(self, *inputs: Array) -> Array:
        return self.polynomial.evaluate(inputs[0], inputs[1])

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        ed = writer.node("Mul", inputs[0], writer.constant(np.float64(1 / self.scale_ed)))
        vd = writer.node("Mul", inputs[1], writer.constant(np.float64(1 / self.scale_vd)))
        table = self.polynomial.table()
        total = ""
        for row in reversed(table):
            inner = ""
            for c in reversed(row):
                constant = writer.constant(np.float64(c))
                inner = (
                    writer.node("Add", writer.node("Mul", inner, vd), constant)
                    if inner
                    else constant
                )
            total = writer.node("Add", writer.node("Mul", total, ed), inner) if total else inner
        return total
