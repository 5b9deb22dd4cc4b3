"""A lowered graph in torch: one rule an operation, rounded where the compiled program rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.ir.arithmetic import Add, Axis, Clip, MatMul, Mul, Mvm, Store, Sum
from cimtool.ir.op import Op
from cimtool.training.hardware.plan import GraphPlan, LayerPlan, tensor
from cimtool.training.hardware.straight_through import column_integers

Parameters = Mapping[str, tuple[Tensor, Tensor]]
"""Trained weights [N, K] and biases [N] of a graph's layers, by node."""


def forward(
    plan: GraphPlan,
    inputs: Mapping[str, Tensor],
    parameters: Parameters,
    draws: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Compute a graph's outputs as its compiled form would, differentiable in `parameters`.

    With `draws` the layers err as their plans say, drawn anew for each call.
    """
    values = dict(inputs)
    for node in plan.graph.nodes:
        own = [values[name] for name in node.inputs]
        if isinstance(node.op, Store):
            values[node.name] = plan.stores[node.name](own[0])
        elif isinstance(node.op, Mvm):
            step = plan.stores[node.inputs[0]].scale
            layer = plan.layers[node.name]
            values[node.name] = _product(own[0], step, layer, *parameters[node.name], draws)
        else:
            values[node.name] = RULES[type(node.op)](node.op, own)
    return {name: values[value] for name, value in plan.graph.outputs.items()}


def _product(
    x: Tensor,
    step: Tensor,
    layer: LayerPlan,
    weight: Tensor,
    bias: Tensor,
    draws: torch.Generator | None,
) -> Tensor:
    """A layer on integer inputs and weights: `x` [n, K] holds multiples of `step`."""
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


def _matmul(op: Op, x: Sequence[Tensor]) -> Tensor:
    return x[0] @ x[1].T


def _mul(op: Op, x: Sequence[Tensor]) -> Tensor:
    return x[0] * x[1]


def _add(op: Any, x: Sequence[Tensor]) -> Tensor:
    total = tensor(op.offset)
    for factor, value in zip(op.factors, x, strict=True):
        total = total + tensor(factor) * value
    return total


def _sum(op: Op, x: Sequence[Tensor]) -> Tensor:
    return x[0].sum(dim=-1)


def _clip(op: Any, x: Sequence[Tensor]) -> Tensor:
    return torch.clamp(x[0], tensor(op.lo), tensor(op.hi))


def _axis(op: Any, x: Sequence[Tensor]) -> Tensor:
    return x[0].unsqueeze(op.axis)


RULES: dict[type[Op], Callable[[Any, Sequence[Tensor]], Tensor]] = {
    MatMul: _matmul,
    Mul: _mul,
    Add: _add,
    Sum: _sum,
    Clip: _clip,
    Axis: _axis,
}
