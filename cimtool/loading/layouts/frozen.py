"""Layout `frozen`: the row is mu as it is, and one Linear gives a log-variance for the whole row.

For encoders that are not trained any more: their rows keep their ranks by distance where the
log-variance is constant.
"""

from __future__ import annotations

import numpy as np

from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, arranged, linear
from cimtool.loading.weights import Weights


class Frozen(Layout, name="frozen"):
    """Key `logvar` alone, one output; rows of unit norm."""

    description = "the layer logvar alone, whose one output is the log-variance of a whole row"
    layers = ("logvar",)
    unit_rows = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the log-variance is the only layer."""
        return weights.layers == (weights.layer("logvar"),)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the layer; CimError if it is missing or has more than one output."""
        name = weights.layer("logvar")
        layer = linear(weights, name, None, 1)
        weights.refuse_others([name], cls.name)
        width = layer.weight.shape[0]
        builder = TowerBuilder(width)
        logvar = builder.add("logvar", layer, "x")
        return builder.tower("x", arranged(builder, logvar, np.zeros((1, width), np.int64)))
