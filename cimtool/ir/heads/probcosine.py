"""Head `probcosine`: the cosine of two Gaussians, as BayesVLM has it (arXiv 2412.06014).

Of independent g ~ N(mu, diag s) and h ~ N(nu, diag t), each divided by its root mean square norm,
r^2 = E|g|^2 = sum mu^2 + s and q^2 that of h:

    E[g.h] / (r q)       = sum mu nu / (r q)
    Var[g.h] / (r q)^2   = sum (s t + mu^2 t + s nu^2) / (r q)^2
    logit                = (a E + b) / sqrt(1 + pi/8 a^2 Var)

Mean and variance of the product g.h are exact; that |g| |h| stands for r q is BayesVLM's
approximation, close if norms vary little beside their mean. r and q are numbers of one item, so
an item stores mu / r and s / r^2, and the first two lines are matrix products. The third line takes
Newton's iteration for each pair, in the digital unit. Without a the score is E: one product, and
no variance is stored. The softmax over items that follows in BayesVLM keeps the order of a query's
items and is left out; so is its covariance between dimensions, which its code leaves out too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cimtool.base.errors import ArgumentError
from cimtool.ir.arithmetic import Axis, MatMul, Mul, Store, Sum, plus
from cimtool.ir.heads.base import CosineHead, ScoreConstants
from cimtool.ir.program import MODALITIES, Builder, Graph
from cimtool.ir.source import CosineScore, InverseRoot, ProbitScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class ProbCosine(CosineHead, name="probcosine"):
    """The expected cosine, or with the scale `a` and the offset `b` the logit that it gives."""

    surrogate = "probcosine"
    needs_variance = MODALITIES

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head of a and b, if they are known; CimError for b alone."""
        if known.a is None and known.b is not None:
            raise ArgumentError(
                '{}: gives b without a for head "probcosine" (logit = (a E + b) / sqrt(1 + pi/8 '
                "a^2 Var)); give {a} too, or leave out {b}",
                known.file,
            )
        return cls(known.a, known.b)

    @property
    def products(self) -> tuple[str, ...]:
        cosine = super().products
        return cosine if self.a is None else (*cosine, "s.s_mu2.s", "s.mu2")

    @property
    def described(self) -> str:
        return "probcosine" if self.a is None else f"probcosine, a {self.a:g}, b {self.b or 0:g}"

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        assert s is not None
        mu, s = (builder.add(f"{x}_rows", Store("residual", 16), x) for x in (mu, s))
        squares = builder.add("mu_sum_squares", Sum(), builder.add("mu_squared", Mul(), mu, mu))
        total = builder.add("norm2", plus(1, 1), squares, builder.add("s_total", Sum(), s))
        root = builder.add("root", Axis(1), builder.add("norm_inverse", InverseRoot(), total))
        unit = builder.add("mu_unit", Mul(), mu, root)
        outputs = {"mu": builder.add("mu_stored", Store("mu"), unit)}
        if self.a is not None:
            square = builder.add("root_squared", Mul(), root, root)
            scaled = builder.add("s_unit", Mul(), s, square)
            outputs["s"] = builder.add("s_stored", Store("s"), scaled)
        return outputs

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        product = b.add("mu.mu", MatMul(), "text.mu", "video.mu")
        if self.a is None:
            return b.graph({"logit": b.add("logit", CosineScore(), product)})
        squares_t, squares_v = (
            b.add(f"{m}.mu_squared", Mul(), f"{m}.mu", f"{m}.mu") for m in MODALITIES
        )
        variance = b.add(
            "variance",
            plus(1, 1, 1),
            b.add("s.s", MatMul(), "text.s", "video.s"),
            b.add("mu2.s", MatMul(), squares_t, "video.s"),
            b.add("s.mu2", MatMul(), "text.s", squares_v),
        )
        op = ProbitScore(self.a, self.b or 0.0)
        cosine = b.add("cosine", plus(1), product)
        return b.graph({"logit": b.add("logit", op, cosine, variance)})
