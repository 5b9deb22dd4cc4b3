"""The numbers on the way through a layer, at the taps where a chip can be probed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.files import place_in
from cimtool.handoff.hex_lines import NUMBER_BITS, write_bus, write_numbers
from cimtool.handoff.kinds import STEPS_FILE, steps_text
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource, Lanes
from cimtool.handoff.stimuli import END_ROWS, end_to_end
from cimtool.hardware.contract import group_sums
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.ir.integer import Requant
from cimtool.ir.program import Graph, Program
from cimtool.loading.embeddings import Embeddings

TAPS_FILE = "taps.json"


@dataclass(frozen=True)
class Taps:
    """The numbers of one layer for inputs [n, K]; sums count 2^-fraction_bits of a digit.

    `digits` [n, cycles, K] are driven; `sums` and `codes` [n, groups, cycles, columns] are those of
    every slice's N columns and then of the unit column, if there is one; codes of a lossless column
    are its sums. `shift_add` [n, groups, N] is what each row group adds to the layer's sum, in
    2^-places of a digit.
    """

    digits: IntArray
    sums: IntArray
    codes: IntArray
    shift_add: IntArray


def taps(op: CrossbarMvm | NoisyMvm, x: IntArray) -> Taps:
    """Compute the taps of a layer for integer inputs `x` [n, K].

    On a die sums have the noise of reads, and count in the places of the die's cells.
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
    """The layer's output [n, N] from what its row groups add."""
    places = op.crossbar.places
    total: IntArray = shift_add.sum(axis=1) + (1 << places >> 1) >> places
    return total + op.layer.bias


def write_taps(layers: Iterable[DrivenLayer], lanes: Lanes, folder: Path) -> None:
    """Write `folder`/LAYER/ for each layer: its inputs, and what its arrays and its sums show."""
    for layer in layers:
        own = place_in(folder, layer.name)
        own.mkdir()
        seen = taps(layer.op, layer.x)
        for g, (row, within, group) in enumerate(layer.groups()):
            first = row * layer.image.array_rows
            rows = slice(group.start - first, group.stop - first)
            of_row = own / f"r{row}"
            of_row.mkdir(exist_ok=True)
            for name, values, bits in (
                ("inputs", layer.x[:, group], lanes.inputs),
                ("digits", seen.digits[:, :, group], lanes.digits),
            ):
                driven = np.zeros((*values.shape[:-1], layer.image.array_rows), np.int64)
                driven[..., rows] = values
                lines = driven.reshape(-1, layer.image.array_rows)
                write_bus(of_row / f"g{within}.{name}.hex", lines, bits)
            layer.write_arrays(own, row, f"g{within}.sums", seen.sums[:, g], lanes.sums)
            layer.write_arrays(own, row, f"g{within}.codes", seen.codes[:, g], lanes.sums)
            added = layer.layout.in_arrays(seen.shift_add[:, g])
            for array, numbers in zip(layer.arrays(row), added, strict=True):
                write_bus(own / array / f"g{within}.shift_add.hex", numbers, NUMBER_BITS)
        total = layer_sum(layer.op, seen.shift_add)
        write_numbers(own / "layer_sum.hex", total)
        for place, after in layer.requantisations.items():
            after_folder = place_in(folder, place)
            after_folder.mkdir()
            write_numbers(after_folder / "requantised.hex", after.run(total))


def write_ends(
    program: Program, layers: list[DrivenLayer], inputs: Embeddings | None, folder: Path
) -> None:
    """Write what the whole program shows of embeddings, and the names of all vectors.

    `folder`/text/ and video/ have the codes of embeddings and their features, score/ the statistics
    ed and vd, the polynomial, and the integer logit of all pairs.
    """
    described = {}
    for name, values, axes in _ends(program, inputs):
        file = place_in(folder, name)
        file.parent.mkdir(exist_ok=True)
        write_numbers(file, values)
        described[name] = {"axes": axes, "shape": values.shape}
    vectors = {layer.name: layer.stimuli for layer in layers}
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


def _score_values(score: Graph) -> dict[str, str]:
    """The values of a score that have a tap, by the names of their files."""
    seen = {name: name for name in ("ed", "vd") if name in score.by_name}
    # The integer logit before it is multiplied by its unit, and the polynomial rounded to it.
    (logit,) = score.by_name[score.outputs["logit"]].inputs
    if isinstance(score.by_name[logit].op, Requant):
        (seen["polynomial"],) = score.by_name[logit].inputs
    return seen | {"logit": logit}


def _write(source: HandoffSource, folder: Path) -> None:
    """Write the taps, and beside their folder the steps that they are shown in."""
    write_taps(source.layers_told("taps"), source.lanes, folder)
    write_ends(source.bundle.program, source.layers, source.request.inputs, folder)
    (folder.parent / STEPS_FILE).write_text(steps_text(source.layers, source.lanes), "utf-8")


TAPS_PART = HandoffPart(
    folder="taps",
    title="What every read of every array must show, and what layers and the score must, in the "
    "order of `steps.txt` beside this folder",
    write=_write,
    files={
        TAPS_FILE: "shapes and widths of the values of encoders and score",
        "LAYER/rR/gG.*.hex": "inputs and digits of a row group, a vector (and cycle) a line",
        "LAYER/rR.cC/gG.*.hex": "sums, codes and shift_add of its lanes",
        "LAYER/layer_sum.hex": "all row groups and bias",
        "LAYER/qN/requantised.hex": "what each requantisation of these sums makes of them",
    },
)
