"""Correct biases: what rounding adds to a layer's mean output is taken off in its bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import round_half_up
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Node
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.simulation.simulator import Runner

LayerOp = Mvm | CrossbarMvm
Adjust = Callable[[Node, LayerOp, Array], tuple[LayerOp, Array]]
"""The layer to put in the place of a node's own, and its output, for the node's input rows."""


def adjust_layers(graph: Graph, rows: Array, adjust: Adjust) -> Graph:
    """Run a projector on `rows` once, replacing layers on the way: later ones see the change.

    Values are freed after their last use.
    """
    values = {"x": rows}
    last = {name: node.name for node in graph.nodes for name in node.inputs}
    nodes = []
    for node in graph.nodes:
        inputs = [values[i] for i in node.inputs]
        if isinstance(node.op, LayerOp):
            layer, values[node.name] = adjust(node, node.op, inputs[0])
            node = replace(node, op=layer)
        else:
            values[node.name] = output_of(node.op, graph, node, *inputs)
        nodes.append(node)
        for name in (node.name, *node.inputs):
            if last.get(name, node.name) == node.name:
                values.pop(name, None)
    return replace(graph, nodes=tuple(nodes))


def layer_means(graph: Graph, rows: Array) -> dict[str, FloatArray]:
    """Mean real output [N] of every layer of a projector over rows of its input."""
    layers = [node.name for node in graph.nodes if isinstance(node.op, LayerOp)]

    def sums(values: dict[str, Array]) -> dict[str, tuple[int, Array]]:
        return {name: (len(value), value.sum(axis=0)) for name, value in values.items()}

    blocks = Runner(graph).over_blocks(rows, layers, sums)
    means = {}
    for name in layers:
        counts, totals = zip(*(block[name] for block in blocks), strict=True)
        scale = graph.types[name].scale
        means[name] = np.sum(totals, axis=0) / sum(counts) * (1.0 if scale is None else scale)
    return means


def correct_bias(graph: Graph, rows: Array, means: Mapping[str, FloatArray]) -> Graph:
    """Move each layer's bias so that its mean over `rows` is that in `means`, first layer first.

    A layer without a mean stays as it is.
    """

    def adjust(node: Node, layer: LayerOp, x: Array) -> tuple[LayerOp, Array]:
        if node.name not in means:
            return layer, output_of(layer, graph, node, x)
        return with_mean(layer, graph, node, x, means[node.name])

    return adjust_layers(graph, rows, adjust)


def output_of(op: Op, graph: Graph, node: Node, *inputs: Array) -> Array:
    """The output of an operation in the place of a graph's node."""
    types = tuple(graph.types[i] for i in node.inputs)
    return fast_kernel(op, types)(*inputs)


def with_mean(
    layer: LayerOp, graph: Graph, node: Node, x: Array, mean: FloatArray
) -> tuple[LayerOp, Array]:
    """The layer with the bias that gives its output over input rows `x` this mean; the output."""
    output = output_of(layer, graph, node, x)
    offset = round_half_up(mean / graph.types[node.name].unit - output.mean(axis=0))
    return replace(layer, bias=layer.bias + offset), output + offset
