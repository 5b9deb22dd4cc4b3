"""The numbers at the taps of a chip, for perfect arrays and for drawn dies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.files import place_in
from cimtool.base.progress import Countdown
from cimtool.bundle.dies import NoiseOptions, conditions_of, dies
from cimtool.handoff.formats import NUMBER_BITS, NumberFile, lane_bits
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.stimuli import END_ROWS, embedding_rows, end_to_end
from cimtool.hardware.contract import group_sums
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.ir.integer import Requant
from cimtool.ir.program import Graph, Program
from cimtool.ir.surrogate import BESIDE_LINE
from cimtool.loading.embeddings import Embeddings

TAPS_FILE = "taps.json"
DIES_FILE = "dies.json"
STATISTICS = (
    "statistics of a noise model, never bit-exact: a chip differs from each of these dies, and no "
    "goal of the Makefile compares them"
)


@dataclass(frozen=True)
class Taps:
    """The numbers of one layer for inputs [n, K]; sums count 2^-fraction_bits of a digit.

    `digits` [n, cycles, K] are driven. In `sums` and `codes` [n, groups, cycles, columns], the
    columns are every slice's N, then the unit column, if any; codes of a lossless column are its
    sums. `shift_add` [n, groups, N] is each row group's contribution to the layer's sum, in
    2^-places of a digit.
    """

    digits: IntArray
    sums: IntArray
    codes: IntArray
    shift_add: IntArray


def taps(op: CrossbarMvm | NoisyMvm, x: IntArray) -> Taps:
    """Compute the taps of a layer for integer inputs `x` [n, K].

    On a die, sums include read noise and have the binary places of the die's cells.
    """
    crossbar, layer, places = op.crossbar, op.layer, column_places(op.layer)
    shape = len(x), len(layer.cells.groups), len(crossbar.cycles), places[-1].stop
    sums, codes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    noisy = op if isinstance(op, NoisyMvm) else None
    carried = None if noisy is None else noisy.carried(x)

    def probed(p: IntArray, r: int, k: int, c: int) -> IntArray:
        at = crossbar.reference_of(k, c)
        column, place = layer.columns[at], places[at]
        fine = p << crossbar.reference_bits
        if noisy is not None and carried is not None:
            p = carried(p, r, k, c)
            fine = noisy.seen(p, r, k, c)
        sums[:, r, c, place] = codes[:, r, c, place] = p
        if column.law is not None:
            codes[:, r, c, place] = column.codes(fine, r)
        return fine if noisy is not None else crossbar.read(p, layer.references[at], r)

    shift_add = np.stack(list(group_sums(x, layer, probed)), axis=1)
    return Taps(crossbar.digits(x).transpose(1, 0, 2), sums, codes, shift_add)


def column_places(layer: ConvertedLayer) -> list[slice]:
    """The places of each of a layer's columns in `Taps.codes`."""
    again = layer.crossbar.reference_cycles
    ends = accumulate((one.cells.digits.shape[1] for one in layer.columns[::again]), initial=0)
    return [slice(*ends_of) for ends_of in pairwise(ends) for _ in range(again)]


def layer_sum(op: CrossbarMvm, shift_add: IntArray) -> IntArray:
    """The layer's output [n, N] from `shift_add`, the contributions of its row groups."""
    places = op.crossbar.places
    total: IntArray = shift_add.sum(axis=1) + (1 << places >> 1) >> places
    return total + op.layer.bias


TAPS = {
    "inputs": NumberFile(
        "{band}/{group}.inputs.hex",
        "inputs of the rows of a row group; rows of other groups have 0",
        ("vector",),
        "row",
        "inputs",
    ),
    "digits": NumberFile(
        "{band}/{group}.digits.hex",
        "tap 1: the digits that drive these rows; other rows, idle ones too, have 0",
        ("vector", "cycle"),
        "row",
        "digits",
    ),
    "sums": NumberFile(
        "{array}/{group}.sums.hex",
        "tap 2: the sums on the bit lines, in 2^-sum_places of a digit",
        ("vector", "cycle"),
        "lane",
        "sums",
    ),
    "codes": NumberFile(
        "{array}/{group}.codes.hex",
        "tap 3: the codes of the converters; where a step is 0, the sum",
        ("vector", "cycle"),
        "lane",
        "sums",
    ),
    "shift_add": NumberFile(
        "{array}/{group}.shift_add.hex",
        "tap 4: what the row group adds to the sum of each weight's column, with all corrections "
        "(offset, complement, leak) but the bias, in 2^-(sum_places + reference_places) of a digit",
        ("vector",),
        "weight",
    ),
    "layer_sum": NumberFile(
        "{layer}/layer_sum.hex",
        "the sum of all row groups, rounded half-up to whole digits, plus the bias",
        ("vector", "column"),
    ),
    "requantised": NumberFile(
        "{requantisation}/requantised.hex",
        "tap 5: these sums after a requantisation",
        ("vector", "column"),
    ),
}
"""The files of `taps/` that have numbers of layers."""


def write_taps(source: HandoffSource, folder: Path) -> None:
    """Write the files of TAPS for each layer, and the values from end to end (`write_ends`)."""
    lanes = source.lanes
    for layer in source.layers_told("taps"):
        seen = taps(layer.op, layer.x)
        for g, (row, within, group) in enumerate(layer.groups()):
            first, of_group = row * layer.image.array_rows, f"g{within}"
            rows = slice(group.start - first, group.stop - first)
            for name, values, bits in (
                ("inputs", layer.x[:, group], lanes.inputs),
                ("digits", seen.digits[:, :, group], lanes.digits),
            ):
                driven = np.zeros((*values.shape[:-1], layer.image.array_rows), np.int64)
                driven[..., rows] = values
                TAPS[name].write(folder, driven, bits, band=f"{layer.name}/r{row}", group=of_group)
            for name, values in (("sums", seen.sums[:, g]), ("codes", seen.codes[:, g])):
                layer.write_arrays(TAPS[name], folder, row, values, bits=lanes.sums, group=of_group)
            added = layer.layout.in_arrays(seen.shift_add[:, g])
            for array, numbers in zip(layer.arrays(row), added, strict=True):
                place = f"{layer.name}/{array}"
                TAPS["shift_add"].write(folder, numbers, array=place, group=of_group)
        total = layer_sum(layer.op, seen.shift_add)
        TAPS["layer_sum"].write(folder, total, layer=layer.name)
        for place, after in layer.requantisations.items():
            TAPS["requantised"].write(folder, after.run(total), requantisation=place)
    write_ends(source, folder)


def write_ends(source: HandoffSource, folder: Path) -> None:
    """Write the whole program's values for embeddings, and the names of all vectors.

    `folder`/text/ and video/ have the codes of embeddings and their features, score/ the statistics
    ed, vd and vd_beside_line, the polynomial, and the integer logit of all pairs.
    """
    described = {}
    for name, values, axes in _ends(source.bundle.program, source.request.inputs):
        NumberFile("{end}", "", axes).write(folder, values, end=name)
        described[name] = {"axes": axes, "shape": values.shape}
    vectors = {layer.name: layer.stimuli for layer in source.layers}
    text = json.dumps({"vectors": vectors, "ends": described}, indent=1)
    (folder / TAPS_FILE).write_text(text + "\n", "utf-8")


def _ends(
    program: Program, inputs: Embeddings | None
) -> Iterator[tuple[str, IntArray, tuple[str, ...]]]:
    """Yield the file, the numbers and the axes of each value from end to end."""
    seen = {} if program.gallery_items is not None else _score_values(program.score)
    codes, features, scores = end_to_end(
        program, inputs, END_ROWS, turns=True, values=seen.values()
    )
    for m, of_modality in features.items():
        yield f"{m}/codes.hex", codes[m], ("vector", "row")
        for name, values in of_modality.items():
            yield f"{m}/{name}.hex", values, ("vector", "dimension")[: values.ndim]
    for name, value in seen.items():
        yield f"score/{name}.hex", scores[value], ("text_vector", "video_vector")


def end_values(program: Program) -> dict[str, str]:
    """The values of a program, as `text.mu_stored`, by the names of their files."""
    found = {
        f"{graph.name}/{name}.hex": f"{graph.name}.{value}"
        for graph in (program.text, program.video)
        for name, value in graph.outputs.items()
    }
    if program.gallery_items is None:
        scores = _score_values(program.score).items()
        found |= {f"score/{name}.hex": f"score.{value}" for name, value in scores}
    return found


def ends_bytes(source: HandoffSource) -> int:
    """The bytes of the values from end to end."""
    program, numbers, rows = source.bundle.program, 0, []
    for graph in (program.text, program.video):
        codes, _ = embedding_rows(graph, source.request.inputs, END_ROWS, turns=True)
        outputs = (graph.types[value].shape[1:] for value in graph.outputs.values())
        each = sum(math.prod(n for n in shape if isinstance(n, int)) for shape in outputs)
        numbers += codes.size + len(codes) * each
        rows.append(len(codes))
    if program.gallery_items is None:
        numbers += math.prod(rows) * len(_score_values(program.score))
    return numbers * (NUMBER_BITS // 4 + 1)


def _score_values(score: Graph) -> dict[str, str]:
    """The values of a score with a tap, by the names of their files."""
    seen = {name: name for name in ("ed", "vd", BESIDE_LINE) if name in score.by_name}
    # The integer logit before its unit is applied, and the polynomial before it is rounded to that.
    (logit,) = score.by_name[score.outputs["logit"]].inputs
    if isinstance(score.by_name[logit].op, Requant):
        (seen["polynomial"],) = score.by_name[logit].inputs
    return seen | {"logit": logit}


TAPS_PART = HandoffPart(
    folder="taps",
    title="The right values for every read of every array, for layers and for the score, in the "
    "order of `steps.txt` beside this folder",
    write=write_taps,
    size=ends_bytes,
    files={
        TAPS_FILE: "shapes and widths of the values of encoders and score",
        "text/*.hex": "codes of embeddings and their features, a number a line",
        "video/*.hex": "the same of the other side",
        "score/*.hex": "ed, vd, vd_beside_line, polynomial and logit of all pairs, those that the "
        "score has, a number a line",
    },
    formats=TAPS,
)


def dies_described(options: NoiseOptions) -> dict[str, Any]:
    """The sentence on dies, and the options with which they are drawn."""
    return {
        "what": STATISTICS,
        **vars(options),
        "model": options.model and str(options.model),
    }


def write_dies(source: HandoffSource, folder: Path) -> None:
    """Draw the dies of the request, and write `folder`/dD/LAYER/ for each layer of each die.

    Raises CimError if no die can be drawn for the bundle.
    """
    options = source.request.noise
    assert options is not None
    conditions = conditions_of(source.bundle, options)
    layers: dict[str, dict[str, Any]] = {}
    countdown, total = Countdown(source.request.say), options.trials
    for index, die in enumerate(dies(source.bundle, conditions, total)):
        graphs = {graph.name: graph for graph in die.program.graphs}
        for layer in source.layers:
            name = f"d{index}/{layer.name}"
            place_in(folder, name).mkdir(parents=True)
            op = graphs[layer.graph.name].operations(NoisyMvm)[layer.node.name]
            layers[name] = _write_die(layer, op, folder, f"d{index}")
        countdown.tell(f"die {index + 1} of {total}: written", index + 1, total)
    described = dies_described(options) | {"read": conditions.when, "layers": layers}
    (folder / DIES_FILE).write_text(json.dumps(described, indent=1) + "\n", "utf-8")


DIE = {
    "die_cells": NumberFile(
        "{die}/{array}/cells.hex",
        "what the cells of a die came to, in 2^-fraction_bits of a digit (`dies.json`); of a pair, "
        "the difference",
        ("row",),
        "lane",
        "die_cells",
    ),
    "die_sums": NumberFile(
        "{die}/{array}/{group}.sums.hex",
        "the sums on its bit lines with read noise, in 2^-fraction_bits of a digit",
        ("vector", "cycle"),
        "lane",
        "die_sums",
    ),
    "die_codes": NumberFile(
        "{die}/{array}/{group}.codes.hex",
        "the codes of its converters",
        ("vector", "cycle"),
        "lane",
        "die_codes",
    ),
    "die_layer_sum": NumberFile(
        "{die}/{layer}/layer_sum.hex",
        "the sum of all row groups and bias, on this die",
        ("vector", "column"),
    ),
}
"""The files of `dies/`; `dies.json` has the widths of lanes for each layer of each die."""


def _write_die(layer: DrivenLayer, op: NoisyMvm, folder: Path, die: str) -> dict[str, Any]:
    """Write a layer's cells on a die, sums and codes; return the format of the numbers."""
    cells = np.concatenate([one.digits for one in op.cells.slices], axis=1).astype(np.int64)
    seen, image = taps(op, layer.x), layer.image
    bits = {
        name: lane_bits(int(values.min()), int(values.max()))
        for name, values in (("cells", cells), ("sums", seen.sums), ("codes", seen.codes))
    }
    for row in range(-(-image.rows // image.array_rows)):
        of_row = cells[row * image.array_rows : (row + 1) * image.array_rows]
        layer.write_arrays(DIE["die_cells"], folder, row, of_row, bits=bits["cells"], die=die)
    for g, (row, within, _) in enumerate(layer.groups()):
        for name, values in (("sums", seen.sums[:, g]), ("codes", seen.codes[:, g])):
            file, of_group = DIE[f"die_{name}"], f"g{within}"
            layer.write_arrays(file, folder, row, values, bits=bits[name], group=of_group, die=die)
    DIE["die_layer_sum"].write(folder, op.run(layer.x), layer=layer.name, die=die)
    return {"lane_bits": bits, "fraction_bits": op.cells.fraction_bits, "leak": op.cells.leak}


DIES_PART = HandoffPart(
    folder="dies",
    title="Dies drawn from a noise model: the values of their cells, and their taps for the inputs "
    f"of `taps/`: {STATISTICS}",
    write=write_dies,
    asked=lambda source: source.request.noise is not None,
    files={
        DIES_FILE: "the noise and the time of reading; for each layer of each die, the bits of a "
        "lane and the binary places of cells and sums",
    },
    formats=DIE,
)
