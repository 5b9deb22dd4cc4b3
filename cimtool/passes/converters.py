"""Fit converters: the range of each ADC, from column sums of calibration rows.

A slice whose column sums can be proved to fit at step 1 needs no converter model. The steps of the
others (of each slice and polarity, and of the unit column) are powers of two, chosen together so
that clipping and rounding make the layer's output scatter least. The mean of what they err is taken
off in the digital bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, IntArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.integer import Requant
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Node, Program, rewrite_each
from cimtool.passes.base import Job, Pass
from cimtool.passes.bias import LayerOp, adjust_layers, layer_means, output_of, with_mean
from cimtool.passes.fitting import StepErrors, column_errors
from cimtool.passes.formats import refit

FIT_ROWS = 64
"""Calibration rows whose column sums decide a converter's step."""
MEAN_BITS = 40
"""Bits kept of an error before rows are counted and columns weighted, which takes 16 or so more."""
WEIGHT_STEPS = 255
"""Steps of the largest unit in which the units of columns count."""


@dataclass(frozen=True)
class FitConvertersPass(Pass):
    """Give a step to every converter that is not provably lossless, from the first `rows`."""

    rows: int = FIT_ROWS

    name = "converters fitted"
    doing = "fitting converters"
    requires = Level.CROSSBAR
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        return program.with_projectors(lambda g: _fit_graph(g, job.rows(g.name), self.rows))


def _fit_graph(graph: Graph, rows: Array, fit_rows: int) -> Graph:
    if all(op.crossbar.law is None for op in graph.operations(CrossbarMvm).values()):
        return graph
    means = layer_means(graph, rows)

    def adjust(node: Node, layer: LayerOp, x: Array) -> tuple[LayerOp, Array]:
        if isinstance(layer, CrossbarMvm) and layer.crossbar.law is not None:
            steps, unit_step = fit_steps(layer, x[:fit_rows])
            fitted = replace(layer, steps=steps, unit_step=unit_step)
            if not fitted.exact:
                return with_mean(fitted, graph, node, x, means[node.name])
        return layer, output_of(layer, graph, node, x)

    return rewrite_each(adjust_layers(graph, rows, adjust), Requant, refit)


def fit_steps(op: CrossbarMvm, x: IntArray) -> tuple[tuple[int | None, ...], int | None]:
    """The step exponent of each slice, and of the unit column, for inputs like `x` [n, K].

    None where provably lossless, or there is no unit column.
    """
    columns: list[StepErrors | None] = []
    for tried in column_errors(op, x):
        columns.append(None if tried is None else _best_few(tried, op.scale))
    fitted = [column for column in columns if column is not None]
    chosen = iter(_joint_choice(fitted, op.scale))
    steps = [None if column is None else column.first + next(chosen) for column in columns]
    return tuple(steps[:-1]), steps[-1]


def _best_few(column: StepErrors, scale: Array) -> StepErrors:
    """The step that alone makes the output scatter least, and its neighbours."""
    best = int(np.argmin([np.dot(vector, vector) for vector in _scatter(column.errors, scale)]))
    kept = slice(max(best - 1, 0), best + 2)
    return StepErrors(column.first + kept.start, column.errors[kept].copy())


def _joint_choice(columns: list[StepErrors], scale: Array) -> list[int]:
    """The step of each column, counted from its first, with which the sum scatters least.

    Starts from the best of each alone and improves one column at a time, until no other choice for
    one of them is better.
    """
    if not columns:
        return []
    scatter = _scatter(np.concatenate([column.errors for column in columns]), scale)
    products = scatter @ scatter.T
    squares = np.diag(products)
    ends = np.cumsum([len(column.errors) for column in columns])
    places = [range(end - len(c.errors), end) for c, end in zip(columns, ends, strict=True)]
    chosen = [min(steps, key=lambda i: squares[i]) for steps in places]
    before: list[int] = []
    while chosen != before:
        before = list(chosen)
        for k, steps in enumerate(places):
            others = products[:, [*chosen[:k], *chosen[k + 1 :]]].sum(axis=1)
            costs = squares + 2 * others
            best = min(steps, key=lambda i: costs[i])
            chosen[k] = best if costs[best] < costs[chosen[k]] else chosen[k]
    return [i - steps.start for i, steps in zip(chosen, places, strict=True)]


def _scatter(errors: IntArray, scale: Array) -> Array:
    """Errors [steps, n, N] less their mean over rows, in real units: a vector a step.

    Whole numbers in float64, few enough bits of each that every inner product of two is exact,
    and so the same on every machine; the largest has all these bits.
    """
    _, rows, width = errors.shape
    wide = max(int(np.abs(errors).max()).bit_length() - MEAN_BITS, 0)
    narrowed = errors >> wide
    weights = np.rint(scale / scale.max() * WEIGHT_STEPS).astype(np.int64)
    centred = (narrowed * rows - narrowed.sum(axis=1, keepdims=True)) * weights
    room = (FLOAT_BITS - (rows * width).bit_length()) // 2
    excess = max(int(np.abs(centred).max()).bit_length() - room, 0)
    vectors: Array = (centred >> excess).astype(np.float64).reshape(len(errors), -1)
    return vectors
