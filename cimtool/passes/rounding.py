"""Round weights for a small error of a layer's output, and correct the bias for what is left.

Rounding each weight to the nearest integer minimises the error of the weights. The error of the
output `x . W` over the rows that the layer sees, with their second moments `H = sum x x^T`, is
`tr (T - Q)^T H (T - Q)`. GPTQ rounds one weight after another, and each compensates the errors of
those before it (Frantar et al., GPTQ, ICLR 2023; the same as Babai's nearest plane).

Rows are integers, so that H is exact, and real numbers are added in a fixed order: the same rows
and weights give the same integers on every machine. A BLAS adds in an order that depends on the
CPU; the loops here add in the order written, and numba fuses no multiplication with an addition.

With few bits the scale of a column matters as much: its largest weight clips if that makes the
rest finer. Each column has the share of its range that errs least, and a factor for the layer
takes off the bias that this leaves on rows that did not round the weights.

What rounding adds to a layer's mean output is taken off in its bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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


SHARES = (1.0, 0.85, 0.7, 0.55)
"""Shares of a column's largest weight that the largest integer may stand for: the rest clips.

The search ends at the first one with which no column errs less.
"""

GAIN_STEPS = 1 << 14
"""Steps that the gain is rounded to: it must not depend on the last bits of a CPU's sums."""

MOST_GAIN = 2.0
"""Outputs that lost more than half of their size are mostly error."""

GAIN_ROWS = 32
"""Halves of fewer rows do not tell the size of outputs."""


def least_error_weights(
    target: FloatArray, rows: IntArray, grid: WeightGrid, centred: bool, least: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Whole weights [K, N] of a grid with which `rows` [n, K] err little, and units [N].

    `target` [K, N] are the real weights in units in which the grid's largest number reaches each
    column's. The units returned are multiples of these: 1 if rows share exponents, which have their
    units already. Else each column takes one of SHARES, `least` [N] or more, that errs least; then
    all get the `gain`. With `centred` a mean error does not count, as a bias takes it off.
    """
    moments = LayerMoments.of(rows, centred)
    if grid.shared:
        weights, _ = moments.rounded(target, grid)
        return weights.astype(np.int64), np.ones(target.shape[1])
    weights, units = moments.least_error(target, grid, least)
    return weights.astype(np.int64), units * gain(target, units, rows, grid, centred)


def gain(
    target: FloatArray, units: FloatArray, rows: IntArray, grid: WeightGrid, centred: bool
) -> float:
    """The factor that gives the outputs of unseen rows their size back.

    Other weights make up for what clipping takes off a large one, but only on the rows that they
    were rounded for. On unseen rows outputs are too small, and so are distances between items. So
    each half of the rows rounds the weights, and the other half tells the products of the real
    outputs with themselves and with the rounded ones. 1 for fewer than GAIN_ROWS rows.
    """
    if len(rows) < GAIN_ROWS:
        return 1.0
    halves = rows[0::2], rows[1::2]
    squares = products = 0.0
    for own, other in (halves, halves[::-1]):
        rounded, _ = LayerMoments.of(own, centred).rounded(target / units, grid)
        seen = second_moments(other, centred) @ target
        squares += float((target * seen).sum())
        products += float((rounded * units * seen).sum())
    if products <= squares / MOST_GAIN:
        return MOST_GAIN if squares > 0 else 1.0
    return round(squares / products * GAIN_STEPS) / GAIN_STEPS


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """Second moments of a layer's input rows, as `U^T D U` of inputs taken in an `order` [K].

    `upper` [K, K] is U, unit upper triangular, and `pivots` [K] the diagonal of D.
    """

    order: IntArray
    upper: FloatArray
    pivots: FloatArray

    @classmethod
    def of(cls, rows: IntArray, centred: bool) -> LayerMoments:
        """The moments of `rows` [n, K], shrunk, and each with a RIDGE."""
        moments = second_moments(rows, centred)
        squares = moments.diagonal().copy()
        moments *= 1 - shrinkage(rows, centred)
        ridge = RIDGE * math.fsum(squares) / len(squares) or 1
        moments[np.diag_indices_from(moments)] = squares + ridge
        # Inputs that count most come last: rounded first, they have least to make up for.
        order = np.argsort(squares, kind="stable")
        return cls(order, *unit_triangle(moments[np.ix_(order, order)]))

    def least_error(
        self, target: FloatArray, grid: WeightGrid, least: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Whole weights [K, N] of a grid, and for each column the share that errs least."""
        units = np.ones(target.shape[1])
        errors = np.full(len(units), np.inf)
        weights = np.zeros_like(target)
        for share in SHARES:
            tried = np.maximum(share, least)
            rounded, squares = self.rounded(target / tried, grid)
            squares *= np.square(tried)
            better = squares < errors
            if not better.any():
                break
            weights[:, better] = rounded[:, better]
            units[better], errors[better] = tried[better], squares[better]
        return weights, units

    def rounded(self, target: FloatArray, grid: WeightGrid) -> tuple[FloatArray, FloatArray]:
        """Whole weights [K, N] of a grid for `target` [K, N]; each column's square error."""
        weights = np.empty_like(target)
        weights[self.order], errors = rounded_back(
            target[self.order], self.upper, self.pivots, grid.rows(self.order)
        )
        return weights, errors


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


def unit_triangle(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`U` [K, K], unit upper triangular, and the diagonal of `D` [K]: `matrix = U^T D U`.

    The matrix is positive definite.
    """
    upper, pivots = matrix.copy(), np.empty(len(matrix))
    _factor(upper, pivots, PANEL)
    return upper, pivots


@jit
def _factor(a, pivots, panel):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Turn the upper half of a symmetric matrix into U, a panel of rows at a time."""
    size = len(a)
    scaled = np.empty((panel, size))
    for start in range(0, size, panel):
        end = min(start + panel, size)
        for k in range(start, end):
            pivot = a[k, k]
            pivots[k] = pivot
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


def rounded_back(
    target: FloatArray, upper: FloatArray, pivots: FloatArray, grid: WeightGrid
) -> tuple[FloatArray, FloatArray]:
    """Whole numbers [K, N] of a grid for `target` [K, N], the last row first.

    Errors of earlier ones are compensated in the next, weighted by `upper`:
    `q_k = round(t_k + sum_{j>k} U_kj (t_j - q_j))`, halves up. What each leaves, squared and times
    its pivot, adds up to the second result [N]: `(t - q)^T U^T D U (t - q)`.
    """
    found, errors = np.empty_like(target), np.empty(target.shape[1])

    def block(columns: slice) -> None:
        part = np.ascontiguousarray(target[:, columns])
        steps = np.ascontiguousarray(np.broadcast_to(grid.steps, target.shape)[:, columns])
        limit = float(grid.limit)
        errors[columns] = _round(part, upper, pivots, steps, limit, grid.precision)
        found[:, columns] = part

    width = target.shape[1]
    side_by_side(block, [slice(k, min(k + BLOCK, width)) for k in range(0, width, BLOCK)])
    return found, errors


@jit
def _round(  # type: ignore[no-untyped-def]  # pragma: no cover
    t, upper, pivots, steps, limit, precision
):
    """Round the columns of `t` in place; return the square error of each."""
    size, width = t.shape
    errors = np.zeros((size, width))
    total, squares, whole = np.empty(width), np.zeros(width), 2.0**precision
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
            left = total[c] - q
            squares[c] += pivots[k] * left * left
            errors[k, c] = t[k, c] - q
            t[k, c] = q
    return squares


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
