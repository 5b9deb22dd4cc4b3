"""Stimuli of layers and of whole programs: the inputs of test vectors and of taps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import nearest
from cimtool.handoff.converter_taps import worst_column
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Graph, Node, Program
from cimtool.ir.types import rows_of_item
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.modality_names import layer_matches
from cimtool.simulation.simulator import Runner

FIXED_ROWS, RANDOM_ROWS, REAL_ROWS = 8, 2, 2
SEED = 0

LayerNode = tuple[Graph, Node, CrossbarMvm]
"""A layer on crossbars: its graph, its node and the operation."""


def chosen_layers(program: Program, pattern: str, gallery: bool = False) -> list[LayerNode]:
    """The layers whose names match a pattern; CimError where none does.

    Of both projectors, and with `gallery` those that hold one. Raises CimError too where items have
    several rows on the way, as tokens: stimuli are of one.
    """
    for graph in (program.text, program.video):
        _require_one_row(graph)
    layers = {
        f"{graph.name}.{name}": (graph, graph.by_name[name], op)
        for graph in (program.graphs if gallery else (program.text, program.video))
        for name, op in graph.operations(CrossbarMvm).items()
    }
    chosen = [layer for name, layer in layers.items() if layer_matches(name, pattern)]
    if not chosen:
        raise ArgumentError(
            '{layers} "{}" matches no layer; expected one of {}{}',
            pattern,
            ", ".join(layers),
            nearest(pattern, layers),
        )
    return chosen


def _require_one_row(graph: Graph) -> None:
    """Raise CimError for a projector whose input, or a value, is several rows of an item."""
    for node in graph.nodes:
        rows, _ = rows_of_item(graph.types[node.name].shape[0])
        if rows > 1 or node.name in graph.embeddings:
            raise CimError(
                f"{graph.layer(node)}: parts of an item (tokens, groups of channels) are rows of "
                "their own, which test vectors and hand-offs do not cover; expected one row an item"
            )


def real_rows(program: Program, inputs: Embeddings | None) -> dict[str, dict[str, Array]]:
    """The values of every node of both projectors for the first rows of embeddings."""
    if inputs is None:
        return {}
    return {
        graph.name: Runner(graph, fast=False).values(
            {"x": getattr(inputs, graph.name)[:REAL_ROWS]}, ["x", *graph.by_name]
        )
        for graph in (program.text, program.video)
    }


def input_limits(graph: Graph, node: Node, op: CrossbarMvm) -> tuple[IntArray, IntArray]:
    """The least and the largest input [K] that each row of a layer is proved to get."""
    known, rows = graph.types[node.inputs[0]], len(op.weight)
    return np.broadcast_to(known.lo, rows), np.broadcast_to(known.hi, rows)


def layer_stimuli(
    graph: Graph, node: Node, op: CrossbarMvm, real: Mapping[str, Mapping[str, Array]]
) -> tuple[IntArray, list[str]]:
    """Inputs [n, K] of a layer, each row in the range that it is proved to get, and their names."""
    lo, hi = input_limits(graph, node, op)
    zero = np.clip(0, lo, hi)
    odd = np.arange(len(zero)) % 2 == 1
    first, last = zero.copy(), zero.copy()
    first[0], last[-1] = hi[0], hi[-1]
    named = {
        "zero": zero,
        "largest": hi,
        "smallest": lo,
        "one hot, first row": first,
        "one hot, last row": last,
        "checkerboard, odd rows": np.where(odd, hi, lo),
        "checkerboard, even rows": np.where(odd, lo, hi),
        "worst-case column": worst_column(op, lo, hi),
    }
    rng = np.random.default_rng(SEED)
    for index in range(RANDOM_ROWS):
        named[f"random {index}"] = rng.integers(lo, hi, endpoint=True)
    for index, row in enumerate(real.get(graph.name, {}).get(node.inputs[0], ())):
        named[f"real row {index}"] = row
    return np.stack(list(named.values())), list(named)


def requantised(graph: Graph, layer: Node, total: IntArray) -> Iterator[tuple[str, IntArray]]:
    """The first requantised values behind a layer, through what takes its sums alone."""
    values = {layer.name: total}
    for node in graph.nodes:
        if len(node.inputs) == 1 and node.inputs[0] in values:
            value = node.op.run(values[node.inputs[0]])
            if isinstance(node.op, Requant):
                yield node.name, value
            else:
                values[node.name] = value


def embedding_codes(op: Quantize, width: int) -> IntArray:
    """Codes [n, width] of embeddings: the same everywhere, then random ones."""
    rng = np.random.default_rng(SEED)
    rows = [np.full(width, code) for code in (0, op.hi, op.lo)]
    rows += [rng.integers(op.lo, op.hi, width, endpoint=True) for _ in range(RANDOM_ROWS)]
    return np.stack(rows)
