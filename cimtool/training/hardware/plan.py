"""The decisions of a compilation, as training repeats them on changing weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cimtool.base.arrays import Array
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.format import integer_limits
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Graph
from cimtool.ir.source import BatchNorm
from cimtool.passes.pipeline import Stage
from cimtool.training.hardware.straight_through import Rounding


@dataclass(frozen=True, eq=False)
class LayerErrors:
    """Errors of a layer's arrays, in units of integer weights and of their sums.

    `weights` are the mean and the deviation [N, K] of each weight's error, None on perfect arrays;
    `sums` is the deviation of each sum's.
    """

    weights: tuple[Tensor, Tensor] | None
    sums: float


PERFECT = LayerErrors(None, 0.0)
LayerErrorsOf = Callable[[str, CrossbarMvm], LayerErrors]
"""The errors of the layer of a name, as it lies on crossbars."""


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
    stores: Mapping[str, Rounding]
    layers: Mapping[str, LayerPlan]


def plan_graph(
    stages: Mapping[str, Stage], name: str, settings: Settings, errors_of: LayerErrorsOf
) -> GraphPlan:
    """The plan of one graph (`text`, `video` or `score`) from all stages of a compilation."""
    trained, lowered, quantized = (
        getattr(stages[stage].program, name) for stage in ("trained", "lowered", "quantized")
    )
    last = getattr(list(stages.values())[-1].program, name)
    stores, layers = {}, {}
    for node in lowered.nodes:
        if isinstance(node.op, Store):
            stores[node.name] = _rounding(quantized, node.name)
        if isinstance(node.op, Mvm):
            full = lowered.layer(node)
            _, largest = integer_limits(settings.of_layer(full).weight_bits, True)
            deployed = last.by_name[node.name].op
            errors = errors_of(full, deployed)
            rounded = quantized.by_name[node.name].op
            layers[node.name] = _layer(trained, node.name, rounded, largest, errors)
    return GraphPlan(lowered, stores, layers)


def _rounding(quantized: Graph, name: str) -> Rounding:
    op = quantized.by_name[name].op
    assert isinstance(op, Quantize | Requant)
    return Rounding(op.lo, op.hi, tensor(op.scale), isinstance(op, Quantize))


def _layer(trained: Graph, name: str, rounded: Mvm, largest: int, errors: LayerErrors) -> LayerPlan:
    before, gain = trained.by_name[name].op, folded_gain(trained, name)
    assert isinstance(before, Mvm)
    assert rounded.scale is not None
    # Not the deployed bias: what that adds takes off converters' mean error, which is not here.
    offset = rounded.bias * rounded.scale - before.bias * gain
    return LayerPlan(tensor(np.reshape(gain, (-1, 1))), tensor(offset), largest, errors)


def folded_gain(trained: Graph, name: str) -> Array:
    """Factor [N] by which folding multiplies each output of a layer: its BatchNorm's, else 1."""
    readers = [node.op for node in trained.nodes if name in node.inputs]
    layer = trained.by_name[name].op
    assert isinstance(layer, Mvm)
    if len(readers) == 1 and isinstance(readers[0], BatchNorm):
        return readers[0].factor
    return np.ones(layer.bias.shape)


def tensor(x: Array) -> Tensor:
    """A float32 tensor of its own."""
    return torch.tensor(np.asarray(x), dtype=torch.float32)
