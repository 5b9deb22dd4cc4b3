"""Gradients of logits by the outputs of layers, backwards through the lowered program.

With `s_tv` the logits of all pairs and random signs `r`, the gradient `g_t` of
`sum_v r_tv s_tv / sqrt(m)` by a layer's output for item t has the mean square over the signs of the
gradients of the m single pairs: `E g_t g_t^T = sum_v (ds_tv/dy_t)(ds_tv/dy_t)^T / m` (Hutchinson
1990). So a few backward passes tell how the squared error of all logits grows with errors of the
output.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array, FloatArray
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    SumOfMaxima,
)
from cimtool.ir.backends import GRADIENTS
from cimtool.ir.program import Graph, Program, as_inputs, features_of
from cimtool.passes.base import Job, room_for
from cimtool.passes.moments import Factors, SecondMoments
from cimtool.simulation.simulator import Runner

ROWS = 512
"""Calibration rows of each modality, all pairs of which are derived."""

DRAWS = 8
"""Random signs of each pair."""

GRADIENT_BITS = 16
"""Bits of the largest gradient of a layer: integers have the same products on every machine."""


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """Gradients of logits by a layer's output, in a unit of their own, for n calibration rows.

    `drawn` [DRAWS n, N] are int32 numbers: those of the sums over all pairs of an item, each with a
    random sign. `mean` [n, N] are those of the mean logit of each item's pairs. There is an even
    number of items.
    """

    drawn: Array
    mean: FloatArray

    @cached_property
    def factors(self) -> Factors:
        """The factors of the second moments of those drawn, the same however often they round."""
        return SecondMoments.of(self.drawn, centred=False).factors()


def logit_gradients(program: Program, job: Job) -> dict[str, LayerGradients]:
    """Gradients of logits by the output of every layer, by the layer's name.

    `program` is lowered. They are of the first calibration rows, at most ROWS of each modality. A
    layer that no logit reads has none.
    """
    values, items = {}, {}
    for graph in (program.text, program.video):
        names = ["x", *(node.name for node in graph.nodes)]
        rows = job.rows(graph.name)
        count = min(len(rows), ROWS, room_for(graph, job, names))
        count -= count % 2 if count > 1 else 0
        values[graph.name] = Runner(graph).values({"x": rows[:count]}, names)
        items[graph.name] = {k: values[graph.name][name] for k, name in graph.outputs.items()}
    score = program.score
    inputs = as_inputs("text", items["text"]) | as_inputs("video", items["video"])
    of_pairs = Runner(score).values(inputs, [*score.inputs, *(node.name for node in score.nodes)])
    (logit,) = score.outputs.values()

    pairs, stream = of_pairs[logit].shape, Generator(Philox(key=0))
    signs = [np.asarray(stream.integers(0, 2, size=pairs) * 2.0 - 1.0) for _ in range(DRAWS)]
    by_features = [
        backwards(score, of_pairs, {logit: one}, score.inputs) for one in (*signs, np.ones(pairs))
    ]
    gradients = {}
    for graph, others in ((program.text, pairs[1]), (program.video, pairs[0])):
        *drawn, of_all = (_by_layers(graph, values[graph.name], seen) for seen in by_features)
        for name, mean in of_all.items():
            found = np.concatenate([one[name] for one in drawn]) / math.sqrt(others)
            bits = GRADIENT_BITS - math.frexp(float(np.abs(found).max(initial=0.0)))[1]
            whole = np.rint(np.ldexp(found, bits)).astype(np.int32)
            mean = np.ldexp(mean / others, bits)
            gradients[f"{graph.name}.{name}"] = LayerGradients(whole, mean)
    return gradients


def _by_layers(
    graph: Graph, values: Mapping[str, Array], by_features: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """Gradients by the outputs of a projector's layers, from those by the score's inputs."""
    starts: dict[str, FloatArray] = {}
    for name, gradient in features_of(graph, by_features).items():
        _add_to(starts, graph.outputs[name], gradient)
    found = backwards(graph, values, starts, graph.operations(Mvm))
    return {name: gradient.astype(np.float32) for name, gradient in found.items()}


def backwards(
    graph: Graph, values: Mapping[str, Array], starts: Mapping[str, FloatArray], of: Collection[str]
) -> dict[str, FloatArray]:
    """Gradients by those values named in `of` that change what has a gradient in `starts`.

    `values` are those of all nodes and inputs of the graph.
    """
    waiting, found = dict(starts), {}
    behind = set(of)  # values of `of`, and all that depend on them
    for node in graph.nodes:
        if not behind.isdisjoint(node.inputs):
            behind.add(node.name)
    for node in reversed(graph.nodes):
        gradient = waiting.pop(node.name, None)
        if gradient is None:
            continue
        if node.name in of:
            found[node.name] = gradient
        if behind.isdisjoint(node.inputs):
            continue
        inputs = [values[name] for name in node.inputs]
        of_inputs = GRADIENTS.of(node.op)(node.op, inputs, gradient)
        for name, of_input in zip(node.inputs, of_inputs, strict=True):
            _add_to(waiting, name, of_input)
    return found | {name: gradient for name, gradient in waiting.items() if name in of}


def _add_to(found: dict[str, FloatArray], name: str, gradient: FloatArray) -> None:
    found[name] = found[name] + gradient if name in found else gradient


def _joined(gradient: FloatArray, x: Array) -> FloatArray:
    """The gradient of an operand [...] that NumPy's broadcasting repeated."""
    while gradient.ndim > x.ndim:
        gradient = gradient.sum(axis=0)
    ones = tuple(k for k in range(x.ndim) if x.shape[k] == 1 != gradient.shape[k])
    return np.asarray(gradient.sum(axis=ones, keepdims=True)) if ones else gradient


@GRADIENTS.rule(Store)
def _store(op: Store, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    return [gradient]


@GRADIENTS.rule(Mvm)
def _mvm(op: Mvm, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    return [gradient @ op.weight.T]


@GRADIENTS.rule(MatMul)
def _matmul(op: MatMul, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    a, b = inputs
    return [gradient @ b, gradient.T @ a]


@GRADIENTS.rule(BatchMatMul)
def _batch_matmul(
    op: BatchMatMul, inputs: Sequence[Array], gradient: FloatArray
) -> list[FloatArray]:
    a, b = inputs
    of_batch = gradient.reshape(-1, op.rows, op.columns)
    rows, columns = (x.reshape(-1, n, x.shape[1]) for x, n in ((a, op.rows), (b, op.columns)))
    of_rows, of_columns = of_batch @ columns, of_batch.swapaxes(1, 2) @ rows
    return [of_rows.reshape(a.shape), of_columns.reshape(b.shape)]


@GRADIENTS.rule(Mul)
def _mul(op: Mul, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    a, b = inputs
    return [_joined(gradient * b, a), _joined(gradient * a, b)]


@GRADIENTS.rule(Add)
def _add(op: Add, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    return [_joined(gradient * factor, x) for factor, x in zip(op.factors, inputs, strict=True)]


@GRADIENTS.rule(Sum)
def _sum(op: Sum, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    return [np.broadcast_to(gradient[..., None], inputs[0].shape)]


@GRADIENTS.rule(SumOfMaxima)
def _sum_of_maxima(
    op: SumOfMaxima, inputs: Sequence[Array], gradient: FloatArray
) -> list[FloatArray]:
    """The largest number of each row of a pair has the pair's gradient, the others none."""
    (x,) = inputs
    parts = x.reshape(len(x), -1, op.columns)
    found = np.zeros(parts.shape)
    of_rows = np.repeat(gradient, op.rows, axis=0)[..., None]
    np.put_along_axis(found, parts.argmax(axis=2)[..., None], of_rows, axis=2)
    return [found.reshape(x.shape)]


@GRADIENTS.rule(Clip)
def _clip(op: Clip, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    (x,) = inputs
    return [gradient * ((op.lo <= x) & (x <= op.hi))]


@GRADIENTS.rule(Axis)
def _axis(op: Axis, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    return [np.squeeze(gradient, op.axis)]


@GRADIENTS.rule(Arrange)
def _arrange(op: Arrange, inputs: Sequence[Array], gradient: FloatArray) -> list[FloatArray]:
    """A number that comes to several places has the sum of their gradients."""
    (x,) = inputs
    places = op.places.reshape(-1)
    order = np.argsort(places, kind="stable")
    used, starts = np.unique(places[order], return_index=True)
    of_items = gradient.reshape(-1, len(places))[:, order]
    found = np.zeros((len(of_items), op.rows * x.shape[1]))
    found[:, used] = np.add.reduceat(of_items, starts, axis=1)
    return [found.reshape(x.shape)]
