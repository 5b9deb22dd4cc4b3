"""Head `csd`: the closed-form sampled distance of PCME++, a line in the mean squared distance.

logit = b - a ed        ed = sum (mu_t - mu_v)^2 + s_t + s_v        (arXiv 2305.18171)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from cimtool.base.errors import ArgumentError
from cimtool.ir.heads.base import Head, ScoreConstants, distance, distance_features
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Csd(Head, name="csd"):
    """`logit = b - a ed`: the sigmoid of the mean distance for the mean of sigmoids."""

    a: float
    b: float

    surrogate = "csd"
    needs_variance = True
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
