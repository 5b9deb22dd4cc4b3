"""A head: the logarithm of a Laplacian kernel of two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acme.operation import L1Distance
from cimtool.ir.arithmetic import Store
from cimtool.ir.heads.base import Head
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class LaplacianKernel(Head, name="laplacian-kernel"):
    """`score = -|mu_t - mu_v|_1`, of the means as they are stored."""

    surrogate = "Laplacian kernel"
    scores_raw = True

    def features(self, builder: Builder, mu: str, s: str | None) -> dict[str, str]:
        return {"mu": builder.add("mu_stored", Store("mu"), mu)}

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        distance = b.add("l1", L1Distance(), "text.mu", "video.mu")
        return b.graph({"logit": b.add("logit", DistanceScore(-1.0), distance)})
