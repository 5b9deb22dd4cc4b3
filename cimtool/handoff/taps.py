"""Taps cut to the wires of an array: what each read of it must show, and what a layer must."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.files import place_in
from cimtool.handoff.c.expected import REAL_ROWS, embedding_codes
from cimtool.handoff.converter_taps import Taps, layer_sum, taps
from cimtool.handoff.hex_lines import NUMBER_BITS, bus_digits
from cimtool.handoff.layers import DrivenLayer, Lanes, write_bus, write_numbers
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator

TAPS_FILE = "taps.json"


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
            _write_reads(layer, seen, g, within, row, lanes, own)
        total = layer_sum(layer.op, seen.shift_add)
        write_numbers(own / "layer_sum.hex", total)
        for place, after in layer.requantisations.items():
            after_folder = place_in(folder, place)
            after_folder.mkdir()
            write_numbers(after_folder / "requantised.hex", after.run(total))


def _write_reads(
    layer: DrivenLayer, seen: Taps, g: int, within: int, row: int, lanes: Lanes, folder: Path
) -> None:
    """Write what the reads of one row group show in each array beside the other."""
    shown = {}
    for name in ("sums", "codes"):
        values = getattr(seen, name)[:, g]
        of_arrays = layer.of_arrays(values.reshape(-1, values.shape[-1]))
        shown[name] = bus_digits(of_arrays, lanes.sums)
    added = layer.layout.in_arrays(seen.shift_add[:, g])
    shown["shift_add"] = bus_digits(added, NUMBER_BITS)
    for c, array in enumerate(layer.arrays(row)):
        place = folder / array
        place.mkdir(exist_ok=True)
        for name, lines in shown.items():
            (place / f"g{within}.{name}.hex").write_bytes(lines[c].tobytes())


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
    simulator = Simulator(program, fast=False)
    features = {}
    for graph in (program.text, program.video):
        name, op = next(iter(graph.operations(Quantize).items()))
        codes = embedding_codes(op, int(graph.types[name].shape[1]))
        if inputs is not None:
            codes = np.concatenate([codes, op.run(getattr(inputs, graph.name)[:REAL_ROWS])])
        rows = (codes * op.scale).astype(np.float32)
        features[graph.name] = simulator.encode(graph.name, rows)
        yield f"{graph.name}/codes.hex", codes, ("vector", "row")
        for name, values in features[graph.name].items():
            yield f"{graph.name}/{name}.hex", values, ("vector", "dimension")[: values.ndim]
    if program.gallery_items is None:
        seen = _score_values(program.score)
        text, video = (features[m] for m in MODALITIES)
        blocks = list(simulator.iter_score(text, video, list(seen.values())))
        for name, value in seen.items():
            found = np.concatenate([values[value] for _, values in blocks])
            yield f"score/{name}.hex", found, ("text_vector", "video_vector")


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
    # The integer before its unit is multiplied on, and what was rounded to it.
    (logit,) = score.by_name[score.outputs["logit"]].inputs
    if isinstance(score.by_name[logit].op, Requant):
        (seen["polynomial"],) = score.by_name[logit].inputs
    return seen | {"logit": logit}
