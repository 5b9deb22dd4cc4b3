"""A layout: two linear layers, `cells_in` and `cells_out`, with a hard tanh between them."""

from __future__ import annotations

from dataclasses import dataclass

from acme.operation import HardTanh
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Builder
from cimtool.loading.layout import Layout, Projector
from cimtool.loading.linear import linear
from cimtool.loading.weights import Weights


@dataclass(frozen=True)
class HardTower:
    """`mu = cells_out(hard_tanh(cells_in(x)))`, a point without a variance."""

    first: Mvm
    last: Mvm

    @property
    def width(self) -> int:
        return int(self.first.weight.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.last.weight.shape[1])

    def build(self, builder: Builder, x: str) -> tuple[str, None]:
        hidden = builder.add("cells_in", self.first, x)
        return builder.add("mu", self.last, builder.add("hard", HardTanh(), hidden)), None


class HardTanhPerceptron(Layout, name="hard-tanh"):
    """Checkpoints of ACME's trainer."""

    description = "layers cells_in and cells_out"
    layers = ("cells_in", "cells_out")

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        return any(weights.layer(role) in weights.layers for role in cls.layers)

    @classmethod
    def tower(cls, weights: Weights) -> Projector:
        names = [weights.layer(role) for role in cls.layers]
        width = weights.get(names[0], "weight", (None, None)).shape[1]
        first = linear(weights, names[0], width)
        last = linear(weights, names[1], first.weight.shape[1])
        weights.refuse_others(names, cls.name)
        return HardTower(first, last)
