"""Layout `perceptron`: Linear layers with one activation between them, and one after the last.

Weights do not show activations, so the checkpoint (or a layer map) names them in plain values:

    activation          between the layers: relu, tanh, leaky-relu or none
    output_activation   after the last layer; by default none
    negative_slope      of leaky-relu; by default torch's 0.01

The last layer gives `mu`. If there are layers named `mu` and `logvar`, both are linear heads on the
output of the others; `activation` then also follows the last of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, linear, read_activation
from cimtool.loading.weights import Weights


class Perceptron(Layout, name="perceptron"):
    """Layers in the file's order, with any names; only the heads are recognised by name."""

    description = (
        "Linear layers alone, with a text `activation` beside the weights or in a layer map"
    )
    layers = ("mu", "logvar")
    any_names = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the activation is named and all layers are Linear."""
        return "activation" in weights.values and all(
            _is_linear(weights, layer) for layer in weights.layers
        )

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the chain; CimError if shapes do not chain or an activation is not known."""
        between, after = (
            read_activation(weights, key, "none") for key in ("activation", "output_activation")
        )
        heads = [weights.layer(role) for role in cls.layers]
        has_variance = heads[1] in weights.layers
        if has_variance and after is not None:
            raise CimError(
                f"{weights.place('output_activation')}: output_activation is "
                f"{weights.values['output_activation']}, and the heads {' and '.join(heads)} are "
                "linear; expected none"
            )
        names = [name for name in weights.layers if not (has_variance and name in heads)]
        if not weights.in_order(names):
            raise CimError(
                f"{weights.file}: the order of the layers {', '.join(names)} is not known, as the "
                "file sorts them by name; expected names that differ in numbers only, or a .pth "
                "file"
            )
        *hidden, last = _chain(weights, [*names, heads[0]] if has_variance else names)
        logvar = _linear(weights, heads[1], *last.weight.shape) if has_variance else None
        builder, x = TowerBuilder((*hidden, last)[0].weight.shape[0]), "x"
        for n, layer in enumerate(hidden, start=1):
            x = builder.add(f"fc{n}", layer, x)
            if between is not None:
                x = builder.add(f"act{n}", between, x)
        mu = builder.add("mu" if after is None else "mu_sum", last, x)
        if after is not None:
            mu = builder.add("mu", after, mu)
        return builder.tower(mu, None if logvar is None else builder.add("logvar", logvar, x))


def _is_linear(weights: Weights, layer: str) -> bool:
    parameters = {name for name in ("weight", "bias") if weights.has(layer, name)}
    others = [key for key in weights.arrays if key.rpartition(".")[0] == layer]
    return len(others) == len(parameters) and len(weights.shape(layer, "weight")) == 2


def _linear(weights: Weights, layer: str, width: int | None, out: int | None = None) -> Mvm:
    """A layer that takes `width` numbers (None: any number); it may have no bias."""
    return linear(weights, layer, width, out, has_bias=weights.has(layer, "bias"))


def _chain(weights: Weights, names: Sequence[str]) -> list[Mvm]:
    """The layers; CimError if one does not take the width that the layer before gives."""
    layers: list[Mvm] = []
    for name in names:
        width = layers[-1].weight.shape[1] if layers else None
        layers.append(_linear(weights, name, width))
    return layers
