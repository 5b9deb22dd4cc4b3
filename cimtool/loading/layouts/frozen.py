"""Layout `frozen`: the row is mu as it is, at unit norm, with a variance beside it.

    logvar              one Linear with one output: the log-variance of the whole row
    factor, spread      a Linear without a bias, and a vector: s = |factor x|^2 spread

For encoders that are not trained any more: their rows keep their ranks by distance if the variance
is constant. The second form is the posterior of a projection with Kronecker factors
(`cimtool.training.posterior`): a quadratic form of the row, times a constant for each dimension.
"""

from __future__ import annotations

import numpy as np

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Axis, Mul, Sum, scalar
from cimtool.ir.heads import VARIANCE, TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, arranged, linear
from cimtool.loading.weights import Weights

FACTOR, SPREAD = "factor", "spread"
"""The layers of a posterior."""


class Frozen(Layout, name="frozen"):
    """Key `logvar` alone, one output, or `factor` and `spread`; rows of unit norm."""

    description = (
        "the layer logvar alone, whose one output is the log-variance of a whole row, or the "
        "layers factor and spread"
    )
    layers = ("logvar", FACTOR, SPREAD)
    unit_rows = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the log-variance is the only layer, or the two layers of a posterior are."""
        return set(weights.layers) in (
            {weights.layer("logvar")},
            {weights.layer(FACTOR), weights.layer(SPREAD)},
        )

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the layers; CimError if one is missing or does not fit."""
        if weights.layer(FACTOR) in weights.layers:
            return _posterior(weights)
        name = weights.layer("logvar")
        layer = linear(weights, name, None, 1)
        weights.refuse_others([name], cls.name)
        width = layer.weight.shape[0]
        builder = TowerBuilder(width)
        logvar = builder.add("logvar", layer, "x")
        return builder.tower("x", arranged(builder, logvar, np.zeros((1, width), np.int64)))


def _posterior(weights: Weights) -> Graph:
    """The variance of a row as a sum of squares; CimError for a spread that is not above 0."""
    names = [weights.layer(role) for role in (FACTOR, SPREAD)]
    layer = linear(weights, names[0], has_bias=False)
    width = layer.weight.shape[0]
    spread = weights.get(names[1], "weight", (width,))
    if spread.min() <= 0:
        raise CimError(
            f"{weights.file}: {weights.key(names[1], 'weight')} holds {spread.min():g}; expected "
            "variances above 0"
        )
    weights.refuse_others(names, Frozen.name, ("weight",))
    builder = TowerBuilder(width)
    projected = builder.add("factor", layer, "x")
    squares = builder.add("factor_squared", Mul(), projected, projected)
    leverage = builder.add("leverage", Axis(1), builder.add("leverage_sum", Sum(), squares))
    variance = builder.add(VARIANCE, Add((spread,), scalar(0.0)), leverage)
    return builder.graph({"mu": "x", "s": variance})
