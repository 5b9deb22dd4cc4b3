"""A lowered graph in torch, rounded where the compiled program rounds: one rule an operation.

Gradients pass straight through each rounding; the integers are those of the contract, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.arrays import Array
from cimtool.ir.arithmetic import (
    Add,
    Axis,
    Clip,
    Mvm,
    Store,
)
from cimtool.ir.backends import STRAIGHT_THROUGH
from cimtool.ir.op import Arithmetic, Op
from cimtool.ir.program import Graph, Node


def tensor(x: Array) -> Tensor:
    """A float32 tensor of its own."""
    return torch.tensor(np.asarray(x), dtype=torch.float32)


def round_ste(x: Tensor, half_even: bool = False) -> Tensor:
    """Round to integers, halves up (or to even); the derivative is 1."""
    whole = torch.round(x) if half_even else torch.floor(x + 0.5)
    return x + (whole - x).detach()


@dataclass(frozen=True, eq=False)
class StoredFormat:
    """The format of a stored value: integers from `lo` to `hi` of `scale` (one, or one a channel).

    A value beyond the limits is clipped and has no gradient.
    """

    lo: int
    hi: int
    scale: Tensor
    half_even: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Return the real numbers [n, K] that the stored integers stand for."""
        return round_ste((x / self.scale).clamp(self.lo, self.hi), self.half_even) * self.scale


def column_integers(effective: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Round weights [N, K] to integers up to `largest`; return them and each output's unit [N, 1].

    The unit is the largest weight's share, as in compilation; it has no gradient of its own.
    """
    top = effective.detach().abs().amax(dim=1, keepdim=True)
    unit = torch.where(top > 0, top, 1.0) / largest
    return round_ste(effective / unit), unit


@dataclass(frozen=True, eq=False)
class LayerErrors:
    """Errors of a layer's arrays, in units of integer weights and of their sums.

    `weights` are the mean and the deviation [N, K] of each weight's error, None on perfect arrays;
    `sums` is the deviation of each sum's.
    """

    weights: tuple[Tensor, Tensor] | None
    sums: float


PERFECT = LayerErrors(None, 0.0)


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """A layer as deployed: trained weights times `gain` [N, 1], biases times it plus `offset`.

    That is batch normalisation, the common mean and bias correction; `largest` is the largest
    integer weight.
    """

    gain: Tensor
    offset: Tensor
    largest: int
    errors: LayerErrors


@dataclass(frozen=True, eq=False)
class GraphPlan:
    """A lowered graph, the format of each stored value and the plan of each layer."""

    graph: Graph
    stores: Mapping[str, StoredFormat]
    layers: Mapping[str, LayerPlan]


LayerParameters = Mapping[str, tuple[Tensor, Tensor]]
"""Trained weights [N, K] and biases [N] of a graph's layers, by node."""


@dataclass(frozen=True)
class Site:
    """An operation's place in a graph, with what all layers of the graph share."""

    node: Node
    plan: GraphPlan
    parameters: LayerParameters
    draws: torch.Generator | None


def forward(
    plan: GraphPlan,
    inputs: Mapping[str, Tensor],
    parameters: LayerParameters,
    draws: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Compute a graph's outputs as its compiled form would, differentiable in `parameters`.

    With `draws` the layers err as their plans say, drawn anew for each call.
    """
    values = dict(inputs)
    for node in plan.graph.nodes:
        rule, site = STRAIGHT_THROUGH.of(node.op), Site(node, plan, parameters, draws)
        values[node.name] = rule(node.op, site, *(values[name] for name in node.inputs))
    return {name: values[value] for name, value in plan.graph.outputs.items()}


@STRAIGHT_THROUGH.rule(Store)
def _store(op: Store, site: Site, x: Tensor) -> Tensor:
    return site.plan.stores[site.node.name](x)


@STRAIGHT_THROUGH.rule(Mvm)
def _mvm(op: Mvm, site: Site, x: Tensor) -> Tensor:
    """A layer on integer inputs and weights: `x` [n, K] holds multiples of its store's scale."""
    name, draws = site.node.name, site.draws
    layer, (weight, bias) = site.plan.layers[name], site.parameters[name]
    step = site.plan.stores[site.node.inputs[0]].scale
    whole, unit = column_integers(weight * layer.gain * step, layer.largest)
    errors = layer.errors
    if draws is not None and errors.weights is not None:
        mean, deviation = errors.weights
        whole = whole + mean + deviation * _normal(deviation, draws)
    sums = functional.linear(x / step, whole)
    if draws is not None and errors.sums:
        sums = sums + errors.sums * _normal(sums, draws)
    return sums * unit[:, 0] + bias * layer.gain[:, 0] + layer.offset


def _normal(like: Tensor, draws: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draws)


@STRAIGHT_THROUGH.rule(Arithmetic)
def _as_defined(op: Op, site: Site, *inputs: Any) -> Any:
    """The operation itself, whose definition takes tensors as it takes arrays."""
    return op.run(*inputs)


@STRAIGHT_THROUGH.rule(Add)
def _add(op: Add, site: Site, *inputs: Tensor) -> Tensor:
    total = tensor(op.offset)
    for factor, x in zip(op.factors, inputs, strict=True):
        total = total + tensor(factor) * x
    return total


@STRAIGHT_THROUGH.rule(Clip)
def _clip(op: Clip, site: Site, x: Tensor) -> Tensor:
    return torch.clamp(x, tensor(op.lo), tensor(op.hi))


@STRAIGHT_THROUGH.rule(Axis)
def _axis(op: Axis, site: Site, x: Tensor) -> Tensor:
    return x.unsqueeze(op.axis)
