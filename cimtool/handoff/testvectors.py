"""Exporter `testvectors`: stimuli, and the numbers that a chip must show at each of its taps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.files import place_in, sha256
from cimtool.base.progress import Countdown
from cimtool.bundle.bundle import MANIFEST, Bundle
from cimtool.bundle.exporter import Exporter, Request, names_listed
from cimtool.bundle.serial import narrowed
from cimtool.handoff.formats import hex_lines
from cimtool.handoff.layers import sum_bits
from cimtool.handoff.requantiser import requantisations
from cimtool.handoff.stimuli import (
    FIXED_ROWS,
    RANDOM_ROWS,
    REAL_ROWS,
    chosen_layers,
    end_to_end,
    input_stores,
    layer_stimuli,
    real_rows,
    requantised,
)
from cimtool.handoff.taps import layer_sum, taps
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import cell_digits
from cimtool.ir.program import Graph, Node, Program
from cimtool.ir.types import Type
from cimtool.loading.embeddings import Embeddings
from cimtool.report.page import render_file

FORMAT_VERSION = 2
LAYOUT, README = "layout.json", "README.txt"


class TestVectors(Exporter, name="testvectors"):
    """Test vectors, described in a layout file."""

    counted = True
    takes = ("layers", "inputs")

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The files that an earlier export's `layout.json` lists; none without this file."""
        arrays = names_listed(folder / LAYOUT)
        kinds = product(arrays, ("npy", "mem"))
        return {LAYOUT, README, *map(".".join, kinds)} if arrays else set()

    @classmethod
    def expected_bytes(cls, bundle: Bundle, request: Request) -> dict[str, int]:
        """The bytes of sums, codes and cells of the chosen layers, in both kinds of file."""
        chosen = chosen_layers(bundle.program, request.layers)
        vectors = FIXED_ROWS + RANDOM_ROWS + (0 if request.inputs is None else REAL_ROWS)
        return {graph.layer(node): _bytes_of(op, vectors) for graph, node, op in chosen}

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write the vectors of the layers and rows in the request.

        Raises CimError if no layer has such a name.
        """
        program, inputs = bundle.program, request.inputs
        chosen = chosen_layers(program, request.layers)
        real = real_rows(program, inputs)
        stimuli, layers = {}, {}
        files: dict[str, Any] = {}
        countdown, total = Countdown(request.say), len(chosen)
        for count, (graph, node, op) in enumerate(chosen, 1):
            name = graph.layer(node)
            x, stimuli[name] = layer_stimuli(graph, node, op, real)
            layers[name] = _described(op)
            files |= _written(folder, _of_layer(graph, node, op, x))
            countdown.tell(f"{name}: written, layer {count} of {total}", count, total)
        request.say("writing codes, features and logits of embeddings")
        files |= _written(folder, _of_ends(program, inputs))
        layout = {
            "format_version": FORMAT_VERSION,
            "bundle": bundle.model.name,
            "manifest_sha256": sha256(bundle.folder / MANIFEST),
            "stimuli": stimuli,
            "layers": layers,
            "files": files,
        }
        (folder / LAYOUT).write_text(json.dumps(layout, indent=1) + "\n", "utf-8")
        explanation = render_file("cimtool.handoff", "testvectors.txt", files=files)
        (folder / README).write_text(explanation + "\n", "utf-8")


@dataclass(frozen=True)
class Vectors:
    """An array of integers that is written as `NAME.npy` and `NAME.mem`.

    A line of `NAME.mem` is a number in two's complement of `bits` bits, in `ceil(bits / 4)` hex
    digits, as `$readmemh` reads it. The last of `axes` runs fastest.
    """

    name: str
    values: IntArray
    axes: tuple[str, ...]
    bits: int
    signed: bool
    what: str


def _typed(name: str, values: IntArray, axes: tuple[str, ...], known: Type, what: str) -> Vectors:
    return Vectors(name, values, axes, known.bits, known.signed, what)


def _written(folder: Path, arrays: Iterable[Vectors]) -> dict[str, dict[str, Any]]:
    """Write arrays one after another; return their entries for the layout file, by name."""
    described = {}
    for one in arrays:
        np.save(place_in(folder, f"{one.name}.npy"), narrowed(one.values))
        lines = hex_lines(one.values.reshape(-1, 1), one.bits)
        place_in(folder, f"{one.name}.mem").write_bytes(lines)
        facts = {name: value for name, value in vars(one).items() if name != "values"}
        described[one.name] = facts | {"shape": one.values.shape}
    return described


def _bytes_of(op: CrossbarMvm, vectors: int) -> int:
    """The bytes of a layer's sums, codes and cells, in both files."""
    crossbar, bits = op.crossbar, sum_bits(op)
    columns = op.weight.shape[1] * crossbar.slices + crossbar.unit_column
    widths = (bits, crossbar.converter.bits or bits)
    each = sum(-(-b // 8) + -(-b // 4) + 1 for b in widths)
    code = crossbar.weights
    cells = op.weight.size * code.slices * (1 + code.paired)
    size: int = vectors * len(op.stored.groups) * len(crossbar.cycles) * columns * each
    return size + int(cells) * (2 + -(-code.cell_maximum.bit_length() // 4))


def _of_layer(graph: Graph, node: Node, op: CrossbarMvm, x: IntArray) -> Iterator[Vectors]:
    """The stimuli `x` [n, K] of a layer and the numbers at its taps."""
    name, crossbar = graph.layer(node), op.crossbar
    seen = taps(op, x)
    total = layer_sum(op, seen.shift_add)
    yield _typed(f"{name}.inputs", x, ("vector", "row"), graph.types[node.inputs[0]], "inputs")
    lo, hi = crossbar.digit_limits
    digit_bits = max(hi.bit_length(), (-lo).bit_length()) + (lo < 0)
    bits = sum_bits(op)
    all_converted = all(one.law is not None for one in op.layer.columns)
    code_bits = (crossbar.converter.bits if all_converted else None) or bits
    signed = crossbar.signed_sums or code_bits == bits
    wide = int(np.abs(seen.shift_add).max()).bit_length() + 1
    wide = min(64, max(wide, crossbar.accumulator_bits + crossbar.places))
    for tap, axes, width, negative, what in (
        ("digits", ("vector", "cycle", "row"), digit_bits, lo < 0, "tap 1, digits driven"),
        ("sums", ("vector", "group", "cycle", "column"), bits, True, "tap 2, column sums"),
        ("codes", ("vector", "group", "cycle", "column"), code_bits, signed, "tap 3, codes"),
        ("shift_add", ("vector", "group", "column"), wide, True, "tap 4, after shift-and-add"),
    ):
        yield Vectors(f"{name}.{tap}", getattr(seen, tap), axes, width, negative, what)
    cells = cell_digits(op.stored, slice(None)).astype(np.int64)
    most = crossbar.weights.cell_maximum.bit_length()
    axes, what = (
        ("row", "column", "slice", "polarity"),
        "contents of the cells, as they are written",
    )
    yield Vectors(f"{name}.cells", cells, axes, most, False, what)
    if crossbar.weights.complements:
        flags = np.stack([s.flipped for s in op.layer.cells.slices], axis=1).astype(np.int64)
        complement = crossbar.weights.complement
        what = f"which columns hold complements; they count as {complement} * sum of digits - sum"
        yield Vectors(f"{name}.flipped", flags, ("group", "slice", "column"), 1, False, what)
    if crossbar.references != "fixed" and crossbar.law is not None:
        shape = len(op.stored.groups), op.weight.shape[1]
        every = [np.broadcast_to(one.offset, shape) for one in op.layer.columns]
        offsets = np.stack(every, axis=1)
        axes, cycles = ("group", "slice", "column"), crossbar.reference_cycles
        if crossbar.scope.gains:
            steps = [np.broadcast_to(one.step, shape) for one in op.layer.columns]
            what = "steps of converters, in 2^-places of a digit; 0: lossless"
            yield _constants(f"{name}.steps", np.stack(steps, axis=1), axes, what)
        if cycles > 1:
            axes = ("group", "slice", "cycle", "column")
            offsets = offsets.reshape(len(offsets), -1, cycles, offsets.shape[2])
        what = "offsets that converters subtract from a column sum, in 2^-places of a digit"
        yield _constants(f"{name}.offsets", offsets, axes, what)
    yield from _levels(name, op)
    what = "added once to the row groups' sum"
    yield _constants(f"{name}.bias", op.layer.bias, ("column",), what)
    bits, what = graph.types[node.name].bits + 1, "all row groups and bias"
    yield Vectors(f"{name}.layer_sum", total, ("vector", "column"), bits, True, what)
    for after, values in requantised(graph, node, total):
        file, what = f"{name}.requantised.{after}", f"tap 5, after requantisation of {name}"
        yield _typed(file, values, ("vector", "column"), graph.types[after], what)
    yield from _before_tap_5(graph, node, op)


REQUANTISER = {
    "multiplier": "the factor of the sum",
    "shift": "the binary places that are then dropped, rounding halves up",
    "lo": "the lowest value",
    "hi": "the highest value",
}


def _before_tap_5(graph: Graph, node: Node, op: CrossbarMvm) -> Iterator[Vectors]:
    """The constants between a layer's sums and each of its requantised values."""
    for one in requantisations(graph, node, op.weight.shape[1]):
        name = f"{graph.layer(node)}.requantised.{one.name}"
        if len(one.affine):
            what = "factor, addend, lowest and highest value of each stage before the multiplier"
            yield _constants(f"{name}.affine", one.affine, ("stage", "column", "number"), what)
        for part, what in REQUANTISER.items():
            yield _constants(f"{name}.{part}", getattr(one, part), ("column",), what)


def _constants(name: str, values: IntArray, axes: tuple[str, ...], what: str) -> Vectors:
    return Vectors(name, values, axes, int(np.abs(values).max()).bit_length() + 1, True, what)


def _levels(name: str, op: CrossbarMvm) -> Iterator[Vectors]:
    """The thresholds and values of every slice's converters, if they have levels."""
    given = [one and one.levels for one in op.references]
    laws = [law for law in given if law is not None]
    if not laws:
        return
    for what, text in (
        ("thresholds", "the lowest sum of each code except the first, minus its offset, in steps"),
        ("levels", "the value of each code, minus its offset, in steps"),
    ):
        shape = len(getattr(laws[0], what))
        # A lossless slice has no levels and gets zeros.
        rows = [np.zeros(shape, np.int64) if law is None else getattr(law, what) for law in given]
        numbers = np.stack(rows)
        yield _constants(f"{name}.{what}", numbers, ("slice", "code"), text)


def _described(op: CrossbarMvm) -> dict[str, Any]:
    """Facts of a layer that a test bench needs beside its arrays."""
    crossbar, layer = op.crossbar, op.layer
    every = [one.one_step for one in layer.columns]
    cycles, steps = crossbar.reference_cycles, list[Any](every)
    if cycles > 1:
        steps = [every[k : k + cycles] for k in range(0, len(every), cycles)]
    return {
        "rows": len(op.weight),
        "columns": op.weight.shape[1],
        "row_groups": [[group.start, group.stop] for group in layer.cells.groups],
        "idle_rows": layer.cells.idle_rows.tolist(),
        "fraction_bits": layer.cells.fraction_bits,
        "places": layer.cells.places,
        "slices": [
            {"shift": s.shift, "sign": s.sign, "factor": s.factor, "step": step}
            for s, step in zip(layer.cells.slices, steps, strict=False)
        ],
        "unit_step": steps[-1] if crossbar.unit_column else None,
        "cycles": [
            {"shift": cycle.shift, "bits": cycle.bits, "sign": cycle.sign}
            for cycle in crossbar.cycles
        ],
        "crossbar": crossbar.to_json(),
    }


def _of_ends(program: Program, inputs: Embeddings | None) -> Iterator[Vectors]:
    """Codes of embeddings, the features they give, and the logits of all pairs."""
    score, logit = program.score, []
    if program.gallery_items is None:
        # The integer logit before its unit is applied.
        logit = [*score.by_name[score.outputs["logit"]].inputs]
    codes, features, scores = end_to_end(program, inputs, REAL_ROWS, turns=False, values=logit)
    for graph in (program.text, program.video):
        stores = [*input_stores(graph)]
        parts = np.split(codes[graph.name], len(stores), axis=1)
        for number, (store, part) in enumerate(zip(stores, parts, strict=True), 1):
            name = f"{graph.name}.codes" + f"_{number}" * (number > 1)
            what = f"quantised embeddings of {graph.name}" + f", {store}" * (len(stores) > 1)
            yield _typed(name, part, ("vector", "row"), graph.types[store], what)
        for name, values in features[graph.name].items():
            axes = ("vector", "dimension")[: values.ndim]
            known, what = graph.types[graph.outputs[name]], f"the feature {name}"
            yield _typed(f"{graph.name}.{name}", values, axes, known, what)
    for value in logit:
        axes, what = ("text_vector", "video_vector"), "integer logits"
        yield _typed("score.logit", scores[value], axes, score.types[value], what)
