"""Bias correction: what rounding adds to a layer's mean output is taken off in its bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cimtool.base.arrays import Array, FloatArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import round_half_up
from cimtool.ir.op import Op
from cimtool.ir.program import Graph
from cimtool.simulation.kernels.operations import prepare
from cimtool.simulation.simulator import Runner

Layer = Mvm | CrossbarMvm
Adjust = Callable[[str, Layer, Array], tuple[Layer, Array]]
"""Gets a layer's name, the layer and its input rows; returns the layer to use, and its output."""


def adjust_layers(graph: Graph, rows: Array, adjust: Adjust) -> Graph:
    """Run a projector on `rows` once, replacing layers on the way: later ones see the change."""
    values = {"x": rows}
    nodes = []
    for node in graph.nodes:
        inputs = [values[i] for i in node.inputs]
        if isinstance(node.op, Layer):
            layer, values[node.name] = adjust(node.name, node.op, inputs[0])
            node = replace(node, op=layer)
        else:
            values[node.name] = outputs(graph, node.name, node.op, *inputs)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def layer_means(graph: Graph, rows: Array) -> dict[str, FloatArray]:
    """Mean real output [N] of every layer of a graph over rows of its input."""
    layers = [node.name for node in graph.nodes if isinstance(node.op, Layer)]
    values = Runner(graph).values({"x": rows}, layers)
    means = {}
    for name in layers:
        scale = graph.types[name].scale
        means[name] = values[name].mean(axis=0) * (1.0 if scale is None else scale)
    return means


def correct_bias(graph: Graph, rows: Array, means: Mapping[str, FloatArray]) -> Graph:
    """Move each layer's bias so that its mean over `rows` is that in `means`, first layer first."""

    def adjust(name: str, layer: Layer, x: Array) -> tuple[Layer, Array]:
        return centred(layer, graph, name, x, means[name])

    return adjust_layers(graph, rows, adjust)


def outputs(graph: Graph, name: str, op: Op, *inputs: Array) -> Array:
    """What `op` gives in the place of the node `name` of a graph."""
    types = tuple(graph.types[i] for i in graph.by_name[name].inputs)
    return prepare(op, types)(*inputs)


def centred(
    layer: Layer, graph: Graph, name: str, x: Array, mean: FloatArray
) -> tuple[Layer, Array]:
    """The layer with the bias that gives its output over input rows `x` this mean; the output."""
    produced = outputs(graph, name, layer, x)
    offset = round_half_up(mean / graph.types[name].unit - produced.mean(axis=0))
    return replace(layer, bias=layer.bias + offset), produced + offset
