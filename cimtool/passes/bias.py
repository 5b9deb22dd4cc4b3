"""Bias correction: what rounding adds to a layer's mean output is taken off in its bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cimtool.arrays import Array, FloatArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import round_half_up
from cimtool.ir.program import Graph
from cimtool.simulate import Runner


def layer_means(graph: Graph, rows: Array) -> dict[str, FloatArray]:
    """Mean real output [N] of every layer of a graph over rows of its input."""
    layers = [node.name for node in graph.nodes if isinstance(node.op, Mvm | CrossbarMvm)]
    values = Runner(graph).values({"x": rows}, layers)
    return {
        name: values[name].mean(axis=0) * (1.0 if scale is None else scale)
        for name in layers
        for scale in (graph.types[name].scale,)
    }


def correct_bias(graph: Graph, rows: Array, means: Mapping[str, FloatArray]) -> Graph:
    """Move each layer's bias so that its mean over `rows` is that in `means`, first layer first."""
    for name in means:
        node = graph.by_name[name]
        op = node.op
        if not isinstance(op, Mvm | CrossbarMvm):
            raise TypeError(f"{graph.layer(node)} is no layer of integers")
        produced = Runner(graph).values({"x": rows}, [name])[name].mean(axis=0)
        offset = round_half_up(means[name] / graph.types[name].unit - produced)
        if not offset.any():
            continue
        corrected = replace(node, op=replace(op, bias=op.bias + offset))
        nodes = tuple(corrected if n is node else n for n in graph.nodes)
        graph = replace(graph, nodes=nodes)
    return graph
