"""Errors of each crossbar layer, and the range of its converters that column sums fill."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.base.threads import side_by_side
from cimtool.hardware.converted_layer import ConvertedColumns
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import item_products
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import MODALITIES, Graph, Program, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.passes.fitting import GroupSums
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, stage_of
from cimtool.simulation.simulator import Runner, Simulator, block_height

LAYER_ROWS = 128
"""Rows of each modality on which a layer's output is compared."""

SUM_ROWS = 16
"""Rows of these that make the column sums: each has a hundred thousand in a slice of a layer."""

BINS = 32
"""Bins of a histogram of column sums, all as wide as one another."""

SquareSums = tuple[float, float, float, float]
"""Squared signal and noise of a layer: with all errors that arrive, and with its own alone."""

MEMORY_ITEMS = 1024
"""Items of a gallery in the memory whose columns are measured."""

FINE_BINS = 1 << 14
"""Most bins over the proved range in which sums are counted, then joined to BINS."""


@dataclass(frozen=True, kw_only=True)
class ColumnSums:
    """All column sums of one slice (or polarity, or the unit column) of a layer.

    Sums count 2^-fraction_bits of a digit, as in the integer contract. `step` is the converter's
    step in digits, None if the conversion is lossless; `clipped` is the share of the
    `conversions` beyond the codes. `used` is the used part of the range: the largest of (code of
    the highest sum) / (highest code) and, where codes are signed, (code of the lowest sum) /
    (lowest code); without a step the sums and their proved bounds stand for the codes. Bin i of the
    histogram holds `counts[i]` sums of `edges[i]` <= sum < `edges[i + 1]`.
    """

    column: str
    adc_bits: int | None
    step: float | None
    fraction_bits: int
    conversions: int
    clipped: float
    used: float
    lowest: int
    highest: int
    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class LayerFinding:
    """One layer of `inputs` x `outputs` weights; ratios of signal to noise in dB.

    `sqnr_db` compares its output in the compiled program with that in the lowered one, so that all
    errors that arrive count; `own_sqnr_db` with what the float weights make of the compiled layer's
    own inputs, so that only its weights and converters count. None if there is no noise. The
    weights of a product in the memory are integers to begin with, so that its converters alone make
    noise; it has no `sqnr_db`.
    """

    graph: str
    layer: str
    inputs: int
    outputs: int
    sqnr_db: float | None
    own_sqnr_db: float | None
    converters: tuple[ColumnSums, ...]


def layer_findings(
    stages: Sequence[Stage],
    data: Embeddings,
    rows: int = LAYER_ROWS,
    simulator: Simulator | None = None,
) -> tuple[LayerFinding, ...]:
    """Look at every layer on the first `rows` rows of each modality.

    `stages` hold that of LowerPass; the last is the compiled program, of which a `simulator` that
    is ready may be given. If a gallery is in the memory, products with its first MEMORY_ITEMS
    items follow.
    """
    lowered = stage_of(stages, LowerPass).program
    compiled = Simulator(stages[-1].program) if simulator is None else simulator
    embeddings = {"text": data.text[:rows], "video": data.video[:rows]}

    def found(modality: str) -> list[LayerFinding]:
        return list(_of_projector(lowered, compiled, modality, embeddings[modality]))

    of_projectors = chain.from_iterable(side_by_side(found, MODALITIES))
    return (*of_projectors, *_of_memory(compiled, embeddings["text"]))


def _layers(graph: Graph) -> dict[str, tuple[str, CrossbarMvm]]:
    """The input and the operation of each layer of a graph."""
    return {n.name: (n.inputs[0], n.op) for n in graph.nodes if isinstance(n.op, CrossbarMvm)}


def _of_items(graph: Graph) -> dict[str, tuple[str, CrossbarMvm]]:
    """The layers that store items; a map to fewer dimensions stores none."""
    storing = item_products(graph)
    return {name: one for name, one in _layers(graph).items() if name in storing}


def _names(layers: Mapping[str, tuple[str, CrossbarMvm]]) -> list[str]:
    """The values that layers read and make."""
    return list(dict.fromkeys([*layers, *(value for value, _ in layers.values())]))


def _of_projector(
    lowered: Program, compiled: Simulator, modality: str, x: Array
) -> Iterator[LayerFinding]:
    source: Graph = getattr(lowered, modality)
    graph: Graph = getattr(compiled.program, modality)
    layers = _layers(graph)
    floats, names = Simulator(lowered), _names(layers)
    height = min(block_height(source, len(x), list(layers)), block_height(graph, len(x), names))
    powers: dict[str, list[SquareSums]] = {name: [] for name in layers}
    first: dict[str, IntArray] = {}
    for block in blocks(len(x), height):
        real = floats.values(modality, x[block], list(layers))
        values = compiled.values(modality, x[block], names)
        for value in {value for value, _ in layers.values()}:
            seen = [first[value], values[value]] if value in first else [values[value]]
            first[value] = np.concatenate(seen)[:SUM_ROWS]
        for name, (value, _) in layers.items():
            trained = source.by_name[name].op
            assert isinstance(trained, Mvm)
            output = values[name] * graph.types[name].unit
            alone = (values[value] * graph.types[value].unit) @ trained.weight + trained.bias
            powers[name].append((*_powers(real[name], output), *_powers(alone, output)))
    for name, (value, op) in layers.items():
        signal, noise, own_signal, own_noise = np.sum(powers[name], axis=0)
        every, own = _decibels(signal, noise), _decibels(own_signal, own_noise)
        inputs, outputs = op.weight.shape
        sums = describe_columns(op, first[value])
        yield LayerFinding(modality, f"{modality}.{name}", inputs, outputs, every, own, sums)


def _of_memory(compiled: Simulator, x: Array) -> Iterator[LayerFinding]:
    """The products of a score, or of a shortlist, with the items that are in the memory."""
    graphs = {graph.name: graph for graph in compiled.program.graphs[len(MODALITIES) :]}
    held = {name: layers for name, graph in graphs.items() if (layers := _of_items(graph))}
    if not held:
        return
    queries = as_inputs("text", compiled.encode("text", x))
    for graph, layers in held.items():
        values = Runner(graphs[graph]).values(queries, _names(layers))
        for name, (value, op) in layers.items():
            few, (inputs, outputs) = slice(0, MEMORY_ITEMS), op.weight.shape
            exact = values[value].astype(np.float64) @ op.weight[:, few]
            own = sqnr_db(exact, values[name][:, few])
            stored = StoredWeights(op.weight[:, few], op.crossbar)
            some = replace(op, stored=stored, bias=op.bias[few])
            sums = describe_columns(some, values[value][:SUM_ROWS])
            layer = f"{graph}.{name}"
            yield LayerFinding(graph, layer, inputs, outputs, None, own, sums)


def sqnr_db(signal: FloatArray, found: FloatArray) -> float | None:
    """`10 log10(mean signal^2 / mean (found - signal)^2)`; None if the two do not differ.

    Minus infinity if the signal is zero everywhere.
    """
    return _decibels(*_powers(signal, found))


def _powers(signal: FloatArray, found: FloatArray) -> tuple[float, float]:
    """Sums of squares of a signal, and of the noise in the values computed for it."""
    return float(np.square(signal).sum()), float(np.square(found - signal).sum())


def _decibels(signal: float, noise: float) -> float | None:
    if noise == 0:
        return None
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def describe_columns(op: CrossbarMvm, x: IntArray) -> tuple[ColumnSums, ...]:
    """Describe the column sums of a layer for integer inputs `x` [n, K], one entry per slice.

    If each cycle has its own references, there is one entry per slice and cycle. The unit column,
    if there is one, comes last.
    """
    names = [*slice_names(op), "unit column"]
    cycles = op.crossbar.reference_cycles
    if cycles > 1:
        names = [f"{name}, cycle {c}" for name in names for c in range(cycles)]
    sums = GroupSums(op, x)
    of_names = zip(names, op.layer.columns, op.references, strict=False)
    return tuple(_described(op, sums, *one) for one in of_names)


def slice_names(op: CrossbarMvm) -> list[str]:
    """Names of a layer's slices, least significant first; polarities have a sign."""
    crossbar = op.crossbar
    if crossbar.columns_by_polarity:
        return [f"slice {k // 2} {'+-'[k % 2]}" for k in range(crossbar.slices)]
    return [f"slice {k}" for k in range(crossbar.slices)]


def _described(
    op: CrossbarMvm,
    sums: GroupSums,
    name: str,
    columns: ConvertedColumns,
    references: AdcReferences | None,
) -> ColumnSums:
    crossbar, law = op.crossbar, columns.law
    lo, hi = int(columns.bounds[0].min()), int(columns.bounds[1].max())
    shift = max((hi - lo).bit_length() - FINE_BINS.bit_length() + 1, 0)
    fine = np.zeros((hi - lo >> shift) + 1, np.int64)
    lowest, highest, conversions, clipped, step = hi, lo, 0, 0, None
    codes: list[int] = []
    for r, part in enumerate(sums.of_slice(columns.cells.digits, max(-lo, hi), columns.cycles)):
        part = part.astype(np.int64)
        lowest, highest = min(lowest, int(part.min())), max(highest, int(part.max()))
        conversions += part.size
        fine += np.bincount(part.ravel() - lo >> shift, minlength=len(fine))
        if law is not None and references is not None:
            part = (part << crossbar.reference_bits) - columns.offset[r]
            first, last = (end[min(r, len(end) - 1)] for end in references.unclipped(law))
            clipped += int(np.count_nonzero((part < first) | (part > last)))
            furthest = np.stack([part.min(axis=(0, 1)), part.max(axis=(0, 1))])
            found = law.codes(furthest, columns.step[r])
            codes += [int(found.min()), int(found.max())]
    seen, ends = (lowest, highest), (lo, hi)
    if law is not None and references is not None:
        step = float(references.width.mean()) / (1 << crossbar.places)
        seen, ends = (min(codes), max(codes)), (law.lo, law.hi)
    # The used part of the range around 0, on the side where that is larger.
    used = max((one / end for one, end in zip(seen, ends, strict=True) if end), default=0.0)
    edges, counts = _histogram(fine, lo, shift, lowest, highest)
    return ColumnSums(
        column=name,
        adc_bits=crossbar.converter.bits,
        step=step,
        fraction_bits=crossbar.fraction_bits,
        conversions=conversions,
        clipped=clipped / conversions,
        used=used,
        lowest=lowest,
        highest=highest,
        edges=edges,
        counts=counts,
    )


def _histogram(
    fine: IntArray, lo: int, shift: int, lowest: int, highest: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Edges [BINS + 1] and counts [BINS] over all sums seen, in bins of equal width.

    Bin i of `fine` counts the sums from `lo + (i << shift)` on. A bin joins as many of these as
    are needed to hold everything in BINS.
    """
    first, last = (end - lo >> shift for end in (lowest, highest))
    width = -(-(last + 1 - first) // BINS)
    held = np.zeros(BINS * width, np.int64)
    held[: last + 1 - first] = fine[first : last + 1]
    edges = (np.arange(BINS + 1) * width + first << shift) + lo
    return tuple(edges.tolist()), tuple(held.reshape(BINS, width).sum(axis=1).tolist())


def worst_clipping(found: Sequence[LayerFinding]) -> tuple[str, ColumnSums] | None:
    """The layer and the column that are clipped most often; None if nothing is."""
    columns = [(one.layer, column) for one in found for column in one.converters]
    worst = max(columns, key=lambda pair: pair[1].clipped, default=None)
    return worst if worst is not None and worst[1].clipped else None
