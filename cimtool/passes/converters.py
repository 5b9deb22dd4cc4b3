"""Crossbars: put layers on them, and fit the range of each converter.

The row group (all columns over the rows summed in one conversion) is the unit of numerics; which
macro holds which columns is placement, and changes no number.

A slice whose column sums can be proved to fit at step 1 needs no converter model. The references of
the others (of each slice and polarity, and of the unit column) are chosen together so that clipping
and rounding make the layer's output scatter least, on calibration rows. The mean error is taken off
in the digital bias.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.bounds import full_scale
from cimtool.hardware.figures import SettableReference
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import REFERENCE_BITS, AdcReferences, ReferenceScope
from cimtool.hardware.settings import Settings
from cimtool.hardware.skipping import driven_shares
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.integer import Requant
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Graph, Node, Program, rewrite_each
from cimtool.passes.base import Job, Pass, both_projectors, rows_with_room
from cimtool.passes.bias_correction import LayerOp, adjust_layers, layer_means, output_of, with_mean
from cimtool.passes.fitting import (
    Limits,
    Tried,
    column_errors,
    lossy_columns,
    scatter_of,
    tried_columns,
)
from cimtool.passes.formats import refit


@dataclass(frozen=True)
class TilePass(Pass):
    """Put every layer on crossbars, converters still lossless."""

    name = "tiled"
    doing = "tiling onto crossbars"
    requires = Level.INTEGER
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        def mvm(builder: Builder, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
            assert op.scale is not None
            settings = job.settings.of_layer(f"{builder.name}.{node.name}")
            crossbar = settings.crossbar(settings.input_code(builder.types[inputs[0]]))
            stored = StoredWeights(op.weight, crossbar)
            tiled = CrossbarMvm(stored, op.bias, op.scale, crossbar.no_references)
            return builder.add(node.name, tiled, *inputs)

        def tiled(graph: Graph, job: Job) -> Graph:
            return _counted(rewrite_each(graph, Mvm, mvm), job)

        return program.with_projectors(*both_projectors(program, job, tiled))


def _counted(graph: Graph, job: Job) -> Graph:
    """The graph with the shares of cycles that the first rows drive, where a layer skips others."""
    if "zero-inputs" not in job.settings.skips:
        return graph

    def adjust(node: Node, layer: LayerOp, x: Array) -> tuple[LayerOp, Array]:
        assert isinstance(layer, CrossbarMvm)
        found = replace(layer, driven=driven_shares(x, layer.stored))
        return found, output_of(layer, graph, node, x)

    return adjust_layers(graph, rows_with_room(graph, job, "zero inputs are counted"), adjust)


FIT_ROWS = 64
"""Calibration rows whose column sums decide a converter's step."""

MOST_STEPS = 6
"""Steps of a layer of which the few are chosen that a converter has settings for."""


@dataclass(frozen=True)
class FitConvertersPass(Pass):
    """Set every converter that is not provably lossless, from the first `rows`."""

    rows: int = FIT_ROWS

    name = "converters fitted"
    doing = "fitting converters"
    requires = Level.CROSSBAR
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        def fit(graph: Graph, job: Job) -> Graph:
            return _fit_graph(graph, job, self.rows)

        fitted = program.with_projectors(*both_projectors(program, job, fit))
        if said := _finer_than_full_scale(fitted, job.settings):
            job.note(said)
        return fitted


def _finer_than_full_scale(program: Program, settings: Settings) -> str:
    """A warning if steps take a range that can be set, and no source says that it can."""
    if settings.references != "fixed" or any(o.reference == "step" for o in settings.settable):
        return ""
    found: dict[str, tuple[float, float]] = {}
    for graph in (program.text, program.video):
        for name, op in graph.operations(CrossbarMvm).items():
            crossbar, law = op.crossbar, op.crossbar.law
            if law is not None:
                digit = 1 << crossbar.fraction_bits
                whole = full_scale(law, crossbar, op.weight.shape[0]) / (digit << REFERENCE_BITS)
                steps = [digit if one is None else int(one.step.min()) for one in op.references]
                found[f"{graph.name}.{name}"] = min(steps) / digit, whole
    finer = {name: whole / step for name, (step, whole) in found.items() if step < whole}
    if not finer:
        return ""
    name = max(finer, key=lambda one: finer[one])
    step, whole = found[name]
    return (
        f'warning: references = "fixed" takes for granted that the range of converters is set for '
        f"each layer: in {len(finer)} of {len(found)} layers steps are up to {finer[name]:.4g} "
        f"times finer than if codes covered all that an array can sum ({name}: {step:g} in place "
        f"of {whole:g}), and no source says of this target that its range can be set; references = "
        '"full-scale" compiles for a range that cannot'
    )


def _fit_graph(graph: Graph, job: Job, fit_rows: int) -> Graph:
    layers = graph.operations(CrossbarMvm).items()
    if all(op.crossbar.law is None for _, op in layers):
        return graph
    lossy = frozenset(name for name, op in layers if any(lossy_columns(op)))
    if lossy:
        graph = _fit_layers(graph, lossy, job, fit_rows)
    return rewrite_each(graph, Requant, refit)


def _fit_layers(graph: Graph, lossy: Collection[str], job: Job, fit_rows: int) -> Graph:
    """The graph with references in the layers whose converters may lose something."""
    rows, settable = rows_with_room(graph, job, "converters are fitted"), job.settings.settable
    means = layer_means(graph, rows)

    def adjust(node: Node, layer: LayerOp, x: Array) -> tuple[LayerOp, Array]:
        if isinstance(layer, CrossbarMvm) and node.name in lossy:
            found = fit_references(layer, x[:fit_rows], settable=settable)
            return with_mean(replace(layer, references=found), graph, node, x, means[node.name])
        return layer, output_of(layer, graph, node, x)

    return adjust_layers(graph, rows, adjust)


def fit_references(
    op: CrossbarMvm,
    x: IntArray,
    scope: ReferenceScope | None = None,
    settable: Sequence[SettableReference] = (),
) -> tuple[AdcReferences | None, ...]:
    """The references of each slice, and of a unit column, for inputs like `x` [n, K].

    None if provably lossless; else they are set for as much as `scope` says, left out as much as
    the layer's can be, to values that are `settable`.
    """
    scope = scope or op.crossbar.scope
    limits: Limits = {one.reference: one for one in settable} if scope.set and scope.chosen else {}
    columns = list(column_errors(op, x, scope, limits))
    if not scope.set:
        columns = [one and _best_few(one, op.scale) for one in columns]
    scale = np.broadcast_to(op.scale, op.weight.shape[1])[tried_columns(op)]
    found = _chosen(columns, scale)[1]
    step = limits.get("step")
    if step is None or step.bounds or step.settings is None or scope.levels:
        return found
    steps = sorted({int(one.step[0, 0]) for one in found if one is not None})
    if len(steps) <= step.settings:
        return found
    columns = list(column_errors(op, x, scope, limits, _apart(steps)))
    choices = combinations(_apart(steps), step.settings)
    tried = [_chosen([one and one.at_steps(few) for one in columns], scale) for few in choices]
    return min(tried, key=lambda one: one[0])[1]


def _apart(steps: list[int]) -> list[int]:
    """At most MOST_STEPS of the steps: the ones nearest to the step below them are left out."""
    kept = list(steps)
    while len(kept) > MOST_STEPS:
        ratios = [after / one for one, after in pairwise(kept)]
        del kept[ratios.index(min(ratios)) + 1]
    return kept


def _chosen(
    columns: Sequence[Tried | None], scale: Array
) -> tuple[float, tuple[AdcReferences | None, ...]]:
    """(scatter, references) of the joint choice among those tried; None if lossless."""
    fitted = [column for column in columns if column is not None]
    scatter, places = _joint_choice(fitted, scale)
    chosen = iter(places)
    return scatter, tuple(None if c is None else c.references[next(chosen)] for c in columns)


def _best_few(column: Tried, scale: Array) -> Tried:
    """The step that alone makes the output scatter least, and its neighbours."""
    best = int(np.argmin([np.dot(vector, vector) for vector in scatter_of(column.errors, scale)]))
    kept = slice(max(best - 1, 0), best + 2)
    return Tried(column.references[kept], column.errors[kept].copy())


def _joint_choice(columns: list[Tried], scale: Array) -> tuple[float, list[int]]:
    """(scatter, places) of the tried references of each column with which the sum scatters least.

    The search starts from the best of each column alone, and from the choice among fixed
    references. It changes one column at a time, until no change of one column is better.
    """
    if not columns:
        return 0.0, []
    scatter = scatter_of(np.concatenate([column.errors for column in columns]), scale)
    products = scatter @ scatter.T
    ends = np.cumsum([len(column.errors) for column in columns])
    places = [range(end - len(c.errors), end) for c, end in zip(columns, ends, strict=True)]
    squares = np.diag(products)
    found = [_descent([min(steps, key=lambda i: squares[i]) for steps in places], places, products)]
    if any(c.free for c in columns) and all(len(c.references) > c.free for c in columns):
        fixed = [steps[c.free :] for c, steps in zip(columns, places, strict=True)]
        start = _descent([min(s, key=lambda i: squares[i]) for s in fixed], fixed, products)
        found.append(_descent(start, places, products))
    sums = [float(products[np.ix_(one, one)].sum()) for one in found]
    chosen = found[sums.index(min(sums))]
    return min(sums), [i - steps.start for i, steps in zip(chosen, places, strict=True)]


def _descent(start: list[int], places: list[range], products: Array) -> list[int]:
    """One of each of the `places`, from `start` on, one better at a time."""
    squares, chosen = np.diag(products), start
    before: list[int] = []
    while chosen != before:
        before = list(chosen)
        for k, steps in enumerate(places):
            others = products[:, [*chosen[:k], *chosen[k + 1 :]]].sum(axis=1)
            costs = squares + 2 * others
            best = min(steps, key=lambda i: costs[i])
            chosen[k] = best if costs[best] < costs[chosen[k]] else chosen[k]
    return chosen
