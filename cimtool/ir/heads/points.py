"""Heads of points without a variance: `cosine` and `euclidean`.

cosine:     score = mu_t.mu_v / (|mu_t| |mu_v|), an inner product of rows that are normalised before
euclidean:  score = -|mu_t - mu_v|^2 = 2 mu_t.mu_v - sum mu_t^2 - sum mu_v^2, near ones first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.ir.arithmetic import MatMul, Store
from cimtool.ir.heads.base import Head, distance, point_features
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import CosineScore, DistanceScore, L2Normalize
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Cosine(Head, name="cosine"):
    """The cosine of both means; each is normalised once, when its item is encoded."""

    surrogate = "cosine"
    scores_raw = True

    @property
    def limited(self) -> Mapping[str, str]:
        """The cosine itself, at twice what unit rows can give."""
        return {"cosine": "mu.mu"}

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        last = builder.by_name.get(mu)
        if last is None or not isinstance(last.op, L2Normalize) or last.op.least:
            mu = builder.add("mu_unit", L2Normalize(), mu)
        return {"mu": builder.add("mu_stored", Store("mu"), mu)}

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        product = b.add("mu.mu", MatMul(), "text.mu", "video.mu")
        return b.graph({"logit": b.add("logit", CosineScore(), product)})


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
