"""Head `euclidean`: the squared distance of two points, negative so that near ones rank first.

score = -|mu_t - mu_v|^2 = 2 mu_t.mu_v - sum mu_t^2 - sum mu_v^2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.ir.arithmetic import Mul, Store, Sum
from cimtool.ir.heads.base import Head, distance
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Euclidean(Head, name="euclidean"):
    """`score = -|mu_t - mu_v|^2`; a variance plays no part."""

    surrogate = "euclidean score"
    scores_raw = True

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        mu = builder.add("mu_stored", Store("mu"), mu)
        squares = builder.add("mu_squared", Mul(), mu, mu)
        return {"mu": mu, "ed_self": builder.add("ed_self", Sum(), squares)}

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        return b.graph({"logit": b.add("logit", DistanceScore(-1.0), distance(b))})
