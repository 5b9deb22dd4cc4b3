"""Stimuli of layers and of whole programs: the inputs of test vectors and of taps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import TypeVar

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import layer_matches
from cimtool.base.named import nearest
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, Graph, Node, Program
from cimtool.ir.types import rows_of_item
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Features, Runner, Simulator

FIXED_ROWS, RANDOM_ROWS, REAL_ROWS = 10, 2, 2
"""Numbers of stimuli of a layer, by kind."""

END_ROWS = 8
"""Random rows of embeddings that a hand-off runs end to end, and at most this many given rows."""

SEED = 0

T = TypeVar("T")

LayerNode = tuple[Graph, Node, CrossbarMvm]
"""A layer on crossbars: its graph, its node and the operation."""


def chosen_layers(program: Program, pattern: str, gallery: bool = False) -> list[LayerNode]:
    """The layers of both projectors that match a pattern; with `gallery`, also gallery layers.

    Raises CimError if no layer matches, and if items have several rows in a layer, such as tokens.
    """
    for graph in (program.text, program.video):
        for node in graph.nodes:
            rows, _ = rows_of_item(graph.types[node.name].shape[0])
            if rows > 1 or node.name in graph.embeddings:
                raise CimError(
                    f"{graph.layer(node)}: an item has several rows (tokens, groups of channels), "
                    "which test vectors and hand-offs do not cover; expected one row per item"
                )
    layers = {
        f"{graph.name}.{name}": (graph, graph.by_name[name], op)
        for graph in (program.graphs if gallery else (program.text, program.video))
        for name, op in graph.operations(CrossbarMvm).items()
    }
    return [*matching(layers, pattern).values()]


def matching(layers: Mapping[str, T], pattern: str) -> dict[str, T]:
    """The layers whose names match a pattern; CimError if there are none."""
    chosen = {name: one for name, one in layers.items() if layer_matches(name, pattern)}
    if not chosen:
        raise ArgumentError(
            '{layers} "{}" matches no layer; expected one of {}{}',
            pattern,
            ", ".join(layers),
            nearest(pattern, layers),
        )
    return chosen


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
    """The smallest and the largest input [K] that each row of a layer provably gets."""
    known, rows = graph.types[node.inputs[0]], len(op.weight)
    return np.broadcast_to(known.lo, rows), np.broadcast_to(known.hi, rows)


def layer_stimuli(
    graph: Graph, node: Node, op: CrossbarMvm, real: Mapping[str, Mapping[str, Array]]
) -> tuple[IntArray, list[str]]:
    """Inputs [n, K] of a layer, each row in its proved range, and the names of the inputs."""
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
        "largest sum": largest_sum(op.weight, lo, hi),
        "smallest sum": largest_sum(-op.weight, lo, hi),
    }
    rng = np.random.default_rng(SEED)
    for index in range(RANDOM_ROWS):
        named[f"random {index}"] = rng.integers(lo, hi, endpoint=True)
    for index, row in enumerate(real.get(graph.name, {}).get(node.inputs[0], ())):
        named[f"real row {index}"] = row
    return np.stack(list(named.values())), list(named)


def requantised(graph: Graph, layer: Node, total: IntArray) -> Iterator[tuple[str, IntArray]]:
    """The first requantised values after a layer, through operations of one input."""
    values = {layer.name: total}
    for node in graph.nodes:
        if len(node.inputs) == 1 and node.inputs[0] in values:
            value = node.op.run(values[node.inputs[0]])
            if isinstance(node.op, Requant):
                yield node.name, value
            else:
                values[node.name] = value


def end_to_end(
    program: Program, inputs: Embeddings | None, count: int, turns: bool, values: Collection[str]
) -> tuple[dict[str, IntArray], dict[str, Features], dict[str, IntArray]]:
    """The codes of `embedding_rows` and their features by modality, and `values` of their scores.

    If the arrays hold a gallery, the program has no score of pairs, and there are no values.
    """
    simulator = Simulator(program, fast=False)
    codes: dict[str, IntArray] = {}
    features: dict[str, Features] = {}
    scores: dict[str, IntArray] = {}
    for graph in (program.text, program.video):
        codes[graph.name], rows = embedding_rows(graph, inputs, count, turns)
        features[graph.name] = simulator.encode(graph.name, rows)
    if program.gallery_items is None:
        text, video = (features[m] for m in MODALITIES)
        blocks = [found for _, found in simulator.iter_score(text, video, list(values))]
        scores = {value: np.concatenate([one[value] for one in blocks]) for value in values}
    return codes, features, scores


def embedding_rows(
    graph: Graph, inputs: Embeddings | None, count: int, turns: bool
) -> tuple[IntArray, Array]:
    """Codes [n, codes] of embeddings, and the rows [n, width] that are quantised to them.

    Codes of several stores come one after another. First rows with one code: 0, the highest, the
    lowest. With `turns`, a row that alternates between the ends. Then `count` random rows, and the
    first `count` rows of `inputs` if given; at last the ends of further stores.
    """
    stores = input_stores(graph)
    (name, op), *others = stores.items()
    width, rng = graph.extent(name), np.random.default_rng(SEED)
    rows = [np.full(width, code) for code in (0, op.hi, op.lo)]
    if turns:
        rows.append(np.where(np.arange(width) % 2 == 1, op.hi, op.lo))
    rows += [rng.integers(op.lo, op.hi, width, endpoint=True) for _ in range(count)]
    codes = np.stack(rows)
    if inputs is not None:
        codes = np.concatenate([codes, op.run(getattr(inputs, graph.name)[:count])])
    x = (codes * op.scale).astype(np.float32)
    for _, other in others:
        ends = np.stack([np.full(width, code) * other.scale for code in (other.hi, other.lo)])
        x = np.concatenate([x, ends.astype(np.float32)])
    return np.concatenate([store.run(x) for store in stores.values()], axis=1), x


def input_stores(graph: Graph) -> dict[str, Quantize]:
    """The stores of a projector's input by their names, in the order of their codes in a row.

    Layers with bits of their own, and sums past layers, read a store each.
    """
    stores = graph.operations(Quantize)
    read = graph.by_name[next(iter(stores))].inputs
    return {name: op for name, op in stores.items() if graph.by_name[name].inputs == read}


def largest_sum(weight: IntArray, lo: IntArray, hi: IntArray) -> IntArray:
    """The input [K] within lo..hi [K] with the largest product with a column of weights [K, N]."""
    upward, downward = np.maximum(weight, 0), np.minimum(weight, 0)
    column = int((hi @ upward + lo @ downward).argmax())
    found: IntArray = np.where(weight[:, column] > 0, hi, lo)
    return found


def worst_column(op: CrossbarMvm, lo: IntArray, hi: IntArray) -> IntArray:
    """The input [K] within lo..hi [K] with the largest possible column sum.

    The largest is over all slices, columns, row groups and cycles; rows of other groups are as near
    to zero as their limits allow.
    """
    zero: IntArray = np.clip(0, lo, hi)
    largest, worst = None, zero
    for most, x_most, least, x_least in driven_ends(op, lo, hi):
        for column, group in product(op.stored.cells.slices, op.stored.groups):
            digits = column.digits[group].astype(np.int64)
            upward, downward = (limit(digits, 0) for limit in (np.maximum, np.minimum))
            sums = most[group] @ upward + least[group] @ downward
            j = int(sums.argmax())
            if largest is None or sums[j] > largest:
                largest, worst = int(sums[j]), zero.copy()
                worst[group] = np.where(digits[:, j] > 0, x_most[group], x_least[group])
    return worst


def driven_ends(
    op: CrossbarMvm, lo: IntArray, hi: IntArray
) -> Iterator[tuple[IntArray, IntArray, IntArray, IntArray]]:
    """Yield for each cycle the largest and the smallest digit [K] of inputs in lo..hi.

    Each digit is followed by its input.
    """
    start = int(lo.min())
    ranges, row = np.unique(np.stack([lo, hi + 1]) - start, axis=1, return_inverse=True)
    values = np.arange(start, int(hi.max()) + 1)
    for driven in op.crossbar.digits(values[:, None])[:, :, 0]:
        most, least = (
            np.array([at + end(driven[at:to]) for at, to in ranges.T], np.int64)[row.ravel()]
            for end in (np.argmax, np.argmin)
        )
        yield driven[most].astype(np.int64), values[most], driven[least], values[least]
