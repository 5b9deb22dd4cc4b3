"""Layout `trunk`: Linear-BatchNorm-activation twice, then a linear head each for mu and logvar.

The activation is ReLU unless a plain value `activation` names another.
"""

from __future__ import annotations

import itertools
import re

from cimtool.base.errors import ArgumentError, CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.op import Op
from cimtool.ir.program import Graph
from cimtool.ir.source import BatchNorm
from cimtool.loading.layout import RELU, Layout, linear, read_batch_norm
from cimtool.loading.weights import UnknownLayers, Weights

_MU = re.compile(r"(^|[._])(mu|mean)([._]|$)")
_LOGVAR = re.compile(r"(^|[._])(log_?var|log_?variance|log_?sigma2|sigma|var)([._]|$)")


def trunk_tower(
    fc1: Mvm,
    bn1: BatchNorm,
    fc2: Mvm,
    bn2: BatchNorm,
    mu: Mvm,
    logvar: Mvm,
    activation: Op | None = RELU,
) -> Graph:
    """Two hidden layers of Linear, BatchNorm and activation, and two linear heads [n, d]."""
    builder, x = TowerBuilder(fc1.weight.shape[0]), "x"
    for n, (fc, bn) in enumerate(((fc1, bn1), (fc2, bn2)), start=1):
        x = builder.add(f"bn{n}", bn, builder.add(f"fc{n}", fc, x))
        if activation is not None:
            x = builder.add(f"relu{n}", activation, x)
    return builder.tower(builder.add("mu", mu, x), builder.add("logvar", logvar, x))


class Trunk(Layout, name="trunk"):
    """Layers by order and shape, with any names; only the heads are recognised by name."""

    description = "two Linear each with a BatchNorm1d, then the heads mu and logvar"
    layers = ("fc1", "bn1", "fc2", "bn2", "mu", "logvar")
    assumed = "relu"

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if a layer has BatchNorm's running statistics."""
        return any(_has_statistics(weights, layer) for layer in weights.layers)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the six layers; CimError if their order or kind is unclear or a shape is wrong."""
        roles = _assign(weights)
        fc_bias = _have_bias(weights, roles["fc1"], roles["fc2"])
        head_bias = _have_bias(weights, roles["mu"], roles["logvar"])
        fc1 = linear(weights, roles["fc1"], has_bias=fc_bias)
        hidden = fc1.weight.shape[1]
        fc2 = linear(weights, roles["fc2"], hidden, has_bias=fc_bias)
        last = fc2.weight.shape[1]
        mu = linear(weights, roles["mu"], last, has_bias=head_bias)
        logvar = linear(weights, roles["logvar"], last, mu.weight.shape[1], head_bias)
        bn1 = read_batch_norm(weights, roles["bn1"], hidden)
        bn2 = read_batch_norm(weights, roles["bn2"], last)
        weights.refuse_others([roles[role] for role in cls.layers], cls.name)
        return trunk_tower(fc1, bn1, fc2, bn2, mu, logvar, cls.activation(weights))


def _have_bias(weights: Weights, *layers: str) -> bool:
    """True if any of the layers has a bias; if another has none, its key is missing."""
    return any(weights.has(layer, "bias") for layer in layers)


def _assign(weights: Weights) -> dict[str, str]:
    """The file's layer for each of the layout's: from the map, else by name, order, shape."""
    norms = [n for n in weights.layers if _is_norm(weights, n)]
    linears = [n for n in weights.layers if n not in norms and _is_linear(weights, n)]
    roles = dict(weights.named.layers)
    free = [layer for layer in linears if layer not in roles.values()]
    for role, pattern in (("mu", _MU), ("logvar", _LOGVAR)):
        if role not in roles:
            roles[role] = _head(weights, role, pattern, free)
            free.remove(roles[role])
    norms = [layer for layer in norms if layer not in roles.values()]
    hidden = [role for role in ("fc1", "fc2") if role not in roles]
    normed = [role for role in ("bn1", "bn2") if role not in roles]
    _count(weights, "Linear before the heads", free, hidden)
    _count(weights, "BatchNorm1d", norms, normed)
    return _ordered(weights, roles, (hidden, free), (normed, norms))


def _has_statistics(weights: Weights, layer: str) -> bool:
    return weights.has(layer, "running_mean") or weights.has(layer, "running_var")


def _is_norm(weights: Weights, layer: str) -> bool:
    return _has_statistics(weights, layer) or (
        weights.has(layer, "weight") and len(weights.shape(layer, "weight")) == 1
    )


def _is_linear(weights: Weights, layer: str) -> bool:
    if weights.has(layer, "weight"):
        return len(weights.shape(layer, "weight")) == 2
    return weights.has(layer, "bias")


def _head(weights: Weights, role: str, pattern: re.Pattern[str], linears: list[str]) -> str:
    named = [layer for layer in linears if pattern.search(layer)]
    if len(named) == 1:
        return named[0]
    for layer in [] if named else weights.layers:
        if pattern.search(layer) and not _has_statistics(weights, layer):
            weights.get(layer, "weight", (None, None))
    found = f"{', '.join(named)} all look like it" if named else "none is named like it"
    raise UnknownLayers(
        ArgumentError(
            "{}: which Linear under {} is {} is not clear: {} (there are {})",
            weights.file,
            weights.prefix,
            role,
            found,
            ", ".join(linears) or "none",
        ),
        ArgumentError('name it with {layer_map} ({} = "...")', role),
    )


def _count(weights: Weights, what: str, found: list[str], roles: list[str]) -> None:
    if len(found) != len(roles):
        raise UnknownLayers(
            ArgumentError(
                "{}: {} has {} {} ({}), and layout trunk {} for {}",
                weights.file,
                weights.prefix,
                len(found),
                what,
                ", ".join(found) or "none",
                len(roles),
                ", ".join(roles),
            ),
            ArgumentError("name them with {layer_map}"),
        )


def _ordered(
    weights: Weights,
    roles: dict[str, str],
    *groups: tuple[list[str], list[str]],
) -> dict[str, str]:
    """Give the layers of each group (roles, layers) their roles by order, or else by shape.

    Raises CimError if the file's order says nothing (safetensors sorts by name, and the names
    are not a series) and the shapes allow more than one order.
    """
    names = [role for group, _ in groups for role in group]
    orders = itertools.product(*(itertools.permutations(layers) for _, layers in groups))
    choices = [roles | dict(zip(names, itertools.chain(*o), strict=True)) for o in orders]
    fitting = [choice for choice in choices if _chain_fits(weights, choice)]
    unsorted = [group for group, layers in groups if not weights.in_order(layers)]
    untold = list(itertools.chain(*unsorted))
    if len({tuple(choice[role] for role in untold) for choice in fitting}) > 1:
        raise ArgumentError(
            "{}: the order of the layers under {} is not known, as the file sorts them by name; "
            "say it with {layer_map} ({})",
            weights.file,
            weights.prefix,
            ", ".join(untold),
        )
    return (fitting or choices)[0]


def _chain_fits(weights: Weights, roles: dict[str, str]) -> bool:
    try:
        shapes = {role: weights.shape(layer, "weight") for role, layer in roles.items()}
    except CimError:  # a layer without weight: reported by name when it is read
        return False
    if not all(shapes.values()):  # a scalar: reported when it is read
        return False
    hidden = {shapes["fc1"][0], shapes["bn1"][0], shapes["fc2"][-1]}
    last = {shapes["fc2"][0], shapes["bn2"][0], shapes["mu"][-1], shapes["logvar"][-1]}
    return len(hidden) == len(last) == 1
