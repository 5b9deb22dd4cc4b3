"""Fold: batch normalisation goes into the layer before it, the common mean of mu into the head.

Distances depend on differences of mu only, so one vector may be taken from both sides; the mean
over calibration rows makes ed far less noisy where the means share an offset. A cosine does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.ir.arithmetic import Add, Mvm, Store, scalar
from cimtool.ir.op import Level
from cimtool.ir.program import MODALITIES, Builder, Graph, Node, Program, Rule, keep, rewrite
from cimtool.ir.scores import CosineScore
from cimtool.ir.source import BatchNorm
from cimtool.passes.step import Job, Pass
from cimtool.simulation.simulator import Simulator

CENTRE_BITS = 20
"""The common mean is rounded to so many bits of its largest entry, the same on every CPU."""


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def fold(program: Program, job: Job) -> Program:
    """Return the program without batch normalisation and, for distances, mu centred on both sides.

    What is not finite here is refused by name in `calibrate`.
    """
    centre = None
    if not any(isinstance(node.op, CosineScore) for node in program.score.nodes):
        simulator = Simulator(program)
        means = [simulator.encode(m, job.rows(m))["mu"].mean(axis=0) for m in MODALITIES]
        centre = round_to_bits((means[0] + means[1]) / 2, CENTRE_BITS)
    text, video = (_fold_graph(graph, centre) for graph in (program.text, program.video))
    return replace(program, text=text, video=video)


def round_to_bits(x: FloatArray, bits: int) -> FloatArray:
    """Round to multiples of a power of two, `bits` bits below the largest magnitude."""
    step = 2.0 ** (np.frexp(np.abs(x).max())[1] - bits)
    return np.asarray(np.floor(x / step + 0.5) * step)


def _fold_graph(graph: Graph, centre: FloatArray | None) -> Graph:
    users = _user_counts(graph)

    def batch_norm(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        norm = node.op
        assert isinstance(norm, BatchNorm)
        before = builder.by_name.get(inputs[0])
        offset = norm.beta - norm.mean * norm.factor
        if before is None or not isinstance(before.op, Mvm) or users[node.inputs[0]] > 1:
            return builder.add(node.name, Add((norm.factor,), offset), *inputs)
        layer = before.op
        folded = Mvm(single(layer.weight * norm.factor), single(layer.bias * norm.factor + offset))
        del builder.by_name[inputs[0]], builder.types[inputs[0]]
        return builder.add(inputs[0], folded, *before.inputs)

    def centred(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        assert centre is not None
        before = builder.by_name.get(inputs[0])
        if before is not None and isinstance(before.op, Mvm) and users[node.inputs[0]] == 1:
            layer = Mvm(before.op.weight, before.op.bias - centre)
            del builder.by_name[inputs[0]], builder.types[inputs[0]]
            value = builder.add(inputs[0], layer, *before.inputs)
        else:
            value = builder.add("mu_centred", Add((scalar(1.0),), -centre), *inputs)
        return builder.add(node.name, node.op, value)

    def rule(node: Node) -> Rule:
        if isinstance(node.op, BatchNorm):
            return batch_norm
        if centre is not None and isinstance(node.op, Store) and node.op.role == "mu":
            return centred
        return keep

    return rewrite(graph, rule)


def single(x: Array) -> Array:
    """Round to what float32 holds, so that a bundle keeps folded weights in half the space."""
    return x.astype(np.float32).astype(np.float64)


def _user_counts(graph: Graph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in [i for node in graph.nodes for i in node.inputs] + list(graph.outputs.values()):
        counts[name] = counts.get(name, 0) + 1
    return counts


FOLD = Pass("folded", "folding batch normalisation and the common mean", fold, Level.FLOAT)
