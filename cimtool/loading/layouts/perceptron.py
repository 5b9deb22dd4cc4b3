"""Layout `perceptron`: Linear layers with one activation between them, and one after the last.

Weights do not show activations, so the checkpoint (or a layer map) says them in plain values:

    activation          between the layers: relu, tanh, leaky-relu or none
    output_activation   after the last layer; none where it is not said
    negative_slope      of leaky-relu; torch's 0.01 where it is not said

The last layer gives `mu`. Where there are layers named `mu` and `logvar` instead, both are linear
in what the others give, the last of which has `activation` behind it as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cimtool.base.errors import CimError
from cimtool.base.named import unknown
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.op import Op
from cimtool.ir.program import Builder
from cimtool.ir.source import Exp, LeakyRelu, Tanh
from cimtool.loading.layout import Layout, Projector
from cimtool.loading.linear import linear, relu
from cimtool.loading.weights import Weights

ACTIVATIONS = ("leaky-relu", "none", "relu", "tanh")
NEGATIVE_SLOPE = 0.01


@dataclass(frozen=True)
class PerceptronTower:
    """Hidden layers with `between` behind each, then `mu` with `after` behind it, and `logvar`.

    An activation is None where there is none, `logvar` where `mu` is a point.
    """

    hidden: tuple[Mvm, ...]
    between: Op | None
    mu: Mvm
    after: Op | None = None
    logvar: Mvm | None = None

    @property
    def width(self) -> int:
        """Extent of an input row."""
        return int((*self.hidden, self.mu)[0].weight.shape[0])

    @property
    def dimension(self) -> int:
        """Extent of mu, and of s."""
        return int(self.mu.weight.shape[1])

    def build(self, builder: Builder, x: str) -> tuple[str, str | None]:
        """Add the nodes; return the names of `mu` and of `s`, None where there is no variance."""
        for n, layer in enumerate(self.hidden, start=1):
            x = builder.add(f"fc{n}", layer, x)
            if self.between is not None:
                x = builder.add(f"act{n}", self.between, x)
        if self.after is None:
            mu = builder.add("mu", self.mu, x)
        else:
            mu = builder.add("mu", self.after, builder.add("mu_sum", self.mu, x))
        if self.logvar is None:
            return mu, None
        return mu, builder.add("s", Exp(), builder.add("logvar", self.logvar, x))


class Perceptron(Layout, name="perceptron"):
    """Layers in the file's order, whatever their names; only the heads are told by name."""

    description = (
        "Linear layers alone, with a text `activation` beside the weights or in a layer map"
    )
    layers = ("mu", "logvar")

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """By the activation that is said, and by nothing but Linear layers."""
        return "activation" in weights.values and all(
            _is_linear(weights, layer) for layer in weights.layers
        )

    @classmethod
    def tower(cls, weights: Weights) -> Projector:
        """Read the chain; CimError where shapes do not chain or an activation is not known."""
        between, after = (_said(weights, key) for key in ("activation", "output_activation"))
        heads = [weights.layer(role) for role in cls.layers]
        if heads[1] not in weights.layers:
            *hidden, last = _chain(weights, list(weights.layers))
            return PerceptronTower(tuple(hidden), between, last, after)
        if after is not None:
            raise CimError(
                f"{_place(weights, 'output_activation')}: output_activation is "
                f"{weights.values['output_activation']}, and the heads {' and '.join(heads)} are "
                "linear; expected none"
            )
        hidden = _chain(weights, [name for name in weights.layers if name not in heads])
        width = hidden[-1].weight.shape[1] if hidden else None
        mu = _linear(weights, heads[0], width)
        logvar = _linear(weights, heads[1], mu.weight.shape[0], mu.weight.shape[1])
        return PerceptronTower(tuple(hidden), between, mu, None, logvar)


def _is_linear(weights: Weights, layer: str) -> bool:
    parameters = {name for name in ("weight", "bias") if weights.has(layer, name)}
    others = [key for key in weights.arrays if key.rpartition(".")[0] == layer]
    return len(others) == len(parameters) and len(weights.shape(layer, "weight")) == 2


def _linear(weights: Weights, layer: str, width: int | None, out: int | None = None) -> Mvm:
    """A layer that takes `width` numbers, any where None; its bias may be left out."""
    if width is None:
        width = weights.get(layer, "weight", (None, None)).shape[1]
    return linear(weights, layer, width, out, has_bias=weights.has(layer, "bias"))


def _chain(weights: Weights, names: list[str]) -> list[Mvm]:
    """The layers, each as wide as the one before gives; CimError where the order is not known."""
    if not weights.ordered and len({re.sub(r"\d+", "#", name) for name in names}) > 1:
        raise CimError(
            f"{weights.file}: the order of the layers {', '.join(names)} cannot be told, as the "
            "file sorts them by name; expected names that differ in numbers only, or a .pth file"
        )
    layers: list[Mvm] = []
    for name in names:
        width = layers[-1].weight.shape[1] if layers else None
        layers.append(_linear(weights, name, width))
    return layers


def _said(weights: Weights, key: str) -> Op | None:
    """The activation that a plain value names."""
    name = weights.values.get(key, "none")
    match name:
        case "none":
            return None
        case "relu":
            return relu()
        case "tanh":
            return Tanh()
        case "leaky-relu":
            return LeakyRelu(_slope(weights))
    raise unknown(f"{_place(weights, key)}: {key}", str(name), ACTIVATIONS)


def _slope(weights: Weights) -> float:
    slope = weights.values.get("negative_slope", NEGATIVE_SLOPE)
    if isinstance(slope, bool) or not isinstance(slope, int | float) or not 0 < slope < 1:
        raise CimError(
            f"{_place(weights, 'negative_slope')}: negative_slope is {slope}; expected a number "
            "between 0 and 1"
        )
    return float(slope)


def _place(weights: Weights, key: str) -> str:
    """The file that says a plain value: the map, or else the checkpoint."""
    return weights.named.file if key in weights.named.values else weights.file
