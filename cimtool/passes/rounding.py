"""Round weights for a small error of a layer's output, and correct the bias for what is left.

Rounding each weight to the nearest integer minimises the error of the weights. The error of the
output `x . W` over the rows that the layer sees, with their second moments `H = sum x x^T`, is
`tr (T - Q)^T H (T - Q)`. GPTQ rounds one weight after another, and each compensates the errors of
those before it (Frantar et al., GPTQ, ICLR 2023; the same as Babai's nearest plane).

Rows are integers, so that H is exact, and real numbers are added in a fixed order: the same rows
and weights give the same integers on every machine. A BLAS adds in an order that depends on the
CPU; the loops here add in the order written, and numba fuses no multiplication with an addition.

What rounding adds to a layer's mean output is taken off in its bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import jit
from cimtool.base.threads import side_by_side
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import round_half_up
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Node
from cimtool.passes.weight_grids import WeightGrid
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.simulation.simulator import Runner

RIDGE = 0.01
"""Share of the mean second moment that is added to each, so that none is 0."""

SHRINKAGE_STEPS = 1024
"""Steps that the shrinkage is rounded to: it must not depend on the last bits of a CPU's sums."""

PANEL = 32
"""Columns of a matrix that are factored before the rest is updated."""

BLOCK = 32
"""Columns of weights that are rounded at a time: their errors stay in a core's cache."""


def least_error_weights(
    target: FloatArray, rows: IntArray, grid: WeightGrid, centred: bool
) -> IntArray:
    """Whole weights [K, N] of a grid with which `rows` [n, K] err little, in one pass.

    `target` [K, N] are the real weights in units of the whole ones. With `centred` a mean error
    does not count, as a bias takes it off.
    """
    moments = second_moments(rows, centred)
    squares = moments.diagonal().copy()
    moments *= 1 - shrinkage(rows, centred)
    ridge = RIDGE * math.fsum(squares) / len(squares) or 1
    moments[np.diag_indices_from(moments)] = squares + ridge
    # Inputs that count most come last in the order: rounded first, they have least to make up for.
    order = np.argsort(squares, kind="stable")
    upper = unit_triangle(moments[np.ix_(order, order)])
    weights = np.empty_like(target)
    weights[order] = rounded_back(target[order], upper, grid.rows(order))
    return weights.astype(np.int64)


def second_moments(rows: IntArray, centred: bool) -> FloatArray:
    """`sum x x^T` [K, K] over rows [n, K] of integers, or over their differences from the mean."""
    real = rows.astype(np.float64)
    moments: FloatArray = real.T @ real  # whole numbers below 2^53: exact in any order
    if centred:
        sums = rows.sum(axis=0).astype(np.float64)
        moments -= np.multiply.outer(sums, sums) / len(rows)
    return moments


def shrinkage(rows: IntArray, centred: bool) -> float:
    """The share 0 to 1 by which products of different inputs are taken to be chance.

    Few rows show products that unseen rows do not have. Schaefer and Strimmer (2005), for
    correlations: the sum of their variances over that of their squares.
    """
    n = len(rows)
    x = rows - rows.mean(axis=0) if centred else rows.astype(np.float64)
    size = np.sqrt(np.square(x).mean(axis=0))
    x = x[:, size > 0] / size[size > 0]
    squares = np.square(x.T @ x / n)
    variances = (np.square(x).T @ np.square(x) / n - squares) / max(n - 1, 1)
    for matrix in (squares, variances):
        np.fill_diagonal(matrix, 0)
    total = float(squares.sum())
    share = min(max(float(variances.sum()) / total, 0.0), 1.0) if total else 1.0
    return math.ceil(share * SHRINKAGE_STEPS) / SHRINKAGE_STEPS


def unit_triangle(matrix: FloatArray) -> FloatArray:
    """`U` [K, K], unit upper triangular, of `matrix = U^T D U`, which is positive definite."""
    upper = matrix.copy()
    _factor(upper, PANEL)
    return upper


@jit
def _factor(a, panel):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Turn the upper half of a symmetric matrix into U, a panel of rows at a time."""
    size = len(a)
    scaled = np.empty((panel, size))
    for start in range(0, size, panel):
        end = min(start + panel, size)
        for k in range(start, end):
            pivot = a[k, k]
            for j in range(k, size):
                scaled[k - start, j] = a[k, j]
                a[k, j] = a[k, j] / pivot
            for i in range(k + 1, end):
                factor = scaled[k - start, i]
                for j in range(i, size):
                    a[i, j] -= factor * a[k, j]
        for i in range(end, size):
            row = a[i]
            k = start
            while k + 3 < end:
                f0, f1 = scaled[k - start, i], scaled[k + 1 - start, i]
                f2, f3 = scaled[k + 2 - start, i], scaled[k + 3 - start, i]
                u0, u1, u2, u3 = a[k], a[k + 1], a[k + 2], a[k + 3]
                for j in range(i, size):
                    row[j] -= f0 * u0[j] + f1 * u1[j] + f2 * u2[j] + f3 * u3[j]
                k += 4
            while k < end:
                f0, u0 = scaled[k - start, i], a[k]
                for j in range(i, size):
                    row[j] -= f0 * u0[j]
                k += 1


def rounded_back(target: FloatArray, upper: FloatArray, grid: WeightGrid) -> FloatArray:
    """Whole numbers [K, N] of a grid for `target` [K, N], the last row first.

    Errors of earlier ones are compensated in the next, weighted by `upper`:
    `q_k = round(t_k + sum_{j>k} U_kj (t_j - q_j))`, halves up.
    """
    found = np.empty_like(target)

    def block(columns: slice) -> None:
        part = np.ascontiguousarray(target[:, columns])
        steps = np.ascontiguousarray(np.broadcast_to(grid.steps, target.shape)[:, columns])
        _round(part, upper, steps, float(grid.limit), grid.precision)
        found[:, columns] = part

    width = target.shape[1]
    side_by_side(block, [slice(k, min(k + BLOCK, width)) for k in range(0, width, BLOCK)])
    return found


@jit
def _round(t, upper, steps, limit, precision):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Round the columns of `t` in place."""
    size, width = t.shape
    errors = np.zeros((size, width))
    total, whole = np.empty(width), 2.0**precision
    for k in range(size - 1, -1, -1):
        total[:] = t[k]
        weights = upper[k]
        j = k + 1
        while j + 3 < size:
            w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
            e0, e1, e2, e3 = errors[j], errors[j + 1], errors[j + 2], errors[j + 3]
            for c in range(width):
                total[c] += w0 * e0[c] + w1 * e1[c] + w2 * e2[c] + w3 * e3[c]
            j += 4
        while j < size:
            w0, e0 = weights[j], errors[j]
            for c in range(width):
                total[c] += w0 * e0[c]
            j += 1
        for c in range(width):
            element = min(max(total[c] / steps[k, c], -limit), limit)
            if limit >= whole:
                unit = 2.0 ** max(math.frexp(element)[1] - precision, 0)
                element = np.floor(element / unit + 0.5) * unit
            q = np.floor(element + 0.5) * steps[k, c]
            errors[k, c] = t[k, c] - q
            t[k, c] = q


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
