"""Heads of points without a variance: `cosine` and `euclidean`.

cosine:     c = mu_t.mu_v / (|mu_t| |mu_v|), an inner product of rows that are normalised before,
            or a c + b, as of SigLIP (arXiv 2303.15343)
euclidean:  score = -|mu_t - mu_v|^2 = 2 mu_t.mu_v - sum mu_t^2 - sum mu_v^2, near ones first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cimtool.base.errors import ArgumentError
from cimtool.ir.arithmetic import MatMul, Store
from cimtool.ir.heads.base import (
    CosineHead,
    Head,
    ScoreConstants,
    distance,
    point_features,
    unit_norm,
)
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import CosineScore, DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Cosine(CosineHead, name="cosine"):
    """The cosine c of both means; each is normalised once, when its item is encoded.

    With a scale `a` and an offset `b` the score is `a c + b`.
    """

    surrogate = "cosine"
    scores_raw = True

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head of a and b, if they are known; CimError for one alone."""
        if (known.a is None) != (known.b is None):
            raise ArgumentError(
                '{}: gives one of a and b for head "cosine" (logit = a cosine + b); give both, {a} '
                "and {b}, or none",
                known.file,
            )
        return cls(known.a, known.b)

    @property
    def described(self) -> str:
        return "cosine" if self.a is None else f"cosine, {self.a:g} c + {self.b:g}"

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        return {"mu": builder.add("mu_stored", Store("mu"), unit_norm(builder, mu))}

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        product = b.add("mu.mu", MatMul(), "text.mu", "video.mu")
        op = CosineScore() if self.a is None or self.b is None else CosineScore(self.a, self.b)
        return b.graph({"logit": b.add("logit", op, product)})


@dataclass(frozen=True)
class Euclidean(Head, name="euclidean"):
    """`score = -|mu_t - mu_v|^2`; a variance plays no part."""

    surrogate = "euclidean score"
    scores_raw = True

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        return point_features(builder, mu)

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        return b.graph({"logit": b.add("logit", DistanceScore(-1.0), distance(b))})
