"""A head: the logarithm of a Gaussian kernel of two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.ir.heads.base import distance
from cimtool.ir.heads.euclidean import Euclidean
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import DistanceScore
from cimtool.ir.types import Type


@dataclass(frozen=True)
class GaussianKernel(Euclidean, name="gaussian-kernel"):
    """`score = -|mu_t - mu_v|^2 / 2`, of the same features as the Euclidean head."""

    surrogate = "Gaussian kernel"

    def score(self, inputs: Mapping[str, Type]) -> Graph:
        b = Builder("score", inputs)
        return b.graph({"logit": b.add("logit", DistanceScore(-0.5), distance(b))})
