"""Heads of the closed-form sampled distance of PCME++: `csd` and `csd-ranking`.

csd:          logit = b - a ed, ed = sum (mu_t - mu_v)^2 + s_t + s_v        (arXiv 2305.18171)
csd-ranking:  score = -(sum (mu_t - mu_v)^2 + s_v)

A text's own sum of s_t is the same for all videos, so both rank the videos of a text alike, as
ProLIP's retrieval does without the query's variance (arXiv 2410.18857).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cimtool.base.errors import ArgumentError
from cimtool.ir.heads.base import Head, ScoreConstants, distance, distance_features, point_features
from cimtool.ir.program import MODALITIES, Builder, Graph
from cimtool.ir.source import DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Csd(Head, name="csd"):
    """`logit = b - a ed`: the sigmoid of the mean distance for the mean of sigmoids."""

    a: float
    b: float

    surrogate = "csd"
    needs_variance = MODALITIES
    is_sampled = True

    @property
    def described(self) -> str:
        return f"csd, {self.b:g} - {self.a:g} ed"

    @classmethod
    def trained(cls, known: ScoreConstants) -> Self:
        """The head of the teacher's a and b; CimError if one is not known."""
        if known.a is None or known.b is None:
            raise ArgumentError(
                '{}: does not give a and b, which head "csd" needs (logit = b - a ed); give them '
                "with {a} and {b}",
                known.file,
            )
        return cls(known.a, known.b)

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        assert s is not None
        return distance_features(builder, mu, s)

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        score = b.add("logit", DistanceScore(-self.a, self.b), distance(b))
        return b.graph({"logit": score})


@dataclass(frozen=True)
class CsdRanking(Head, name="csd-ranking"):
    """`csd` for texts that ask: without their variance, which no projector has to give."""

    surrogate = "csd without the query's variance"
    needs_variance = ("video",)

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        if builder.name not in self.needs_variance:
            return point_features(builder, mu)
        assert s is not None
        return distance_features(builder, mu, s)

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        return b.graph({"logit": b.add("logit", DistanceScore(-1.0), distance(b))})
