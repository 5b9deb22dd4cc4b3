"""A layout: two linear layers, `cells_in` and `cells_out`, with a hard tanh between them."""

from __future__ import annotations

from acme.operation import HardTanh
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, linear
from cimtool.loading.weights import Weights


class HardTanhPerceptron(Layout, name="hard-tanh"):
    """Checkpoints of ACME's trainer: points `mu = cells_out(hard_tanh(cells_in(x)))`."""

    description = "layers cells_in and cells_out"
    layers = ("cells_in", "cells_out")

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        names = [weights.layer(role) for role in cls.layers]
        first = linear(weights, names[0])
        last = linear(weights, names[1], first.weight.shape[1])
        weights.refuse_others(names, cls.name)
        builder = TowerBuilder(first.weight.shape[0])
        hidden = builder.add("hard", HardTanh(), builder.add("cells_in", first, "x"))
        return builder.tower(builder.add("mu", last, hidden))
