"""`steps.txt`: the order in which arrays are written and read, and the settings of each read.

A word says what a line is, and how many words and decimal numbers follow it, so that `$fscanf`
reads it. STEPS says what they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.handoff.kinds import law_numbers, macro_kinds
from cimtool.handoff.layers import DrivenLayer, Lanes

STEPS_FILE = "steps.txt"
STEPS_VERSION = 1
CONVERTERS = ("none", "equal steps", "table", "levels")

STEPS = {
    "handoff": "format version",
    "array": "rows and columns of cells in an array",
    "lanes": "bits of a lane of inputs, of digits, and of sums and codes",
    "layer": "LAYER; its kind of macro, rows, columns; vectors, row groups, slices that are "
    "converted, cycles",
    "cells": "LAYER; bits of a cell, polarities, rows of cells of a weight, weights side by side, "
    "baseline, complement, offset; 1 for a unit column, a reference column, flags; 1 where each "
    "polarity is converted",
    "inputs": "LAYER; bits, addend, 1 for digits of the magnitude with the sign",
    "converter": "LAYER; kind (0 none, 1 equal steps, 2 one table, 3 levels of each reference), "
    "lowest and highest code, rounding (0 half-up, 1 half-even, 2 floor), binary places of sums, "
    "of references, of thresholds; cycles that have references of their own, or 1; leak of a row",
    "slice": "LAYER; number, shift, sign, 1 where a cell is in two's complement",
    "cycle": "LAYER; number, shift, bits (0: all above the shift), sign, digit of zero",
    "program": "LAYER/rR.cC, whose image it is; first and last + 1 column of the layer that it "
    "holds",
    "read": "LAYER/rR.cC gG LAYER/rR; first and last + 1 row of weights that is driven, idle rows, "
    "first and last + 1 column of the layer",
    "sum": "LAYER",
    "requantise": "LAYER/qN, the value that requantisation N makes; stages of affine.hex",
    "end": "",
}
"""The lines of `steps.txt`: the word that begins one, and what follows it."""


def steps_text(layers: list[DrivenLayer], lanes: Lanes) -> str:
    """The text of `steps.txt` for these layers."""
    layout = layers[0].layout
    lines = [
        _line("handoff", STEPS_VERSION),
        _line("array", layout.rows, layout.columns),
        _line("lanes", lanes.inputs, lanes.digits, lanes.sums),
    ]
    kinds = {layer: kind.number for kind in macro_kinds(layers) for layer in kind.layers}
    for layer in layers:
        lines += [*_settings(layer, kinds[layer]), *_reads(layer)]
    return "\n".join([*lines, "end"]) + "\n"


def _line(*words: str | int) -> str:
    return " ".join(str(int(one)) if isinstance(one, int) else one for one in words)


def _settings(layer: DrivenLayer, kind: int) -> Iterator[str]:
    """The lines of what is the same in all reads of a layer."""
    name, image, crossbar = layer.name, layer.image, layer.op.crossbar
    rows, columns = layer.op.weight.shape
    groups, cycles = len(layer.op.stored.groups), crossbar.cycles
    extents = rows, columns, len(layer.x), groups, crossbar.slices, len(cycles)
    yield _line("layer", name, kind, *extents)
    yield _line(
        *("cells", name, image.cell_bits, image.polarities, layer.layout.rows_per_weight),
        *(layer.layout.across, image.baseline, image.complement, image.offset),
        *(image.unit_column, image.reference_column, image.flips),
        crossbar.columns_by_polarity,
    )
    code = crossbar.inputs
    yield _line("inputs", name, code.bits, code.lift, code.sign_magnitude)
    *limits, places = law_numbers(crossbar)
    fine = crossbar.fraction_bits, crossbar.reference_bits, places
    yield _line("converter", name, *limits, *fine, crossbar.reference_cycles, crossbar.column_leak)
    for k, one in enumerate(layer.op.stored.slices):
        signed = image.slices[k // layer.polarities].signed
        yield _line("slice", name, k, one.shift, one.sign, signed)
    for c, (cycle, zero) in enumerate(zip(cycles, crossbar.zero_digits, strict=True)):
        yield _line("cycle", name, c, cycle.shift, cycle.bits or 0, cycle.sign, int(zero))


def _reads(layer: DrivenLayer) -> Iterator[str]:
    """The lines of a layer's arrays, written one after another and read group by group."""
    image, name = layer.image, layer.name
    idle = layer.op.stored.cells.idle_rows
    by_row: dict[int, list[tuple[int, int, slice]]] = {}
    for g, (row, within, group) in enumerate(layer.groups()):
        by_row.setdefault(row, []).append((g, within, group))
    for row, groups in by_row.items():
        first = row * image.array_rows
        for c, array in enumerate(layer.arrays(row)):
            start = c * image.array_columns
            columns = start, min(start + image.array_columns, image.columns)
            yield _line("program", f"{layer.cells}/{array}", *columns)
            for g, within, group in groups:
                rows = group.start - first, group.stop - first
                paths = f"{name}/{array}", f"g{within}", f"{name}/r{row}"
                yield _line("read", *paths, *rows, int(idle[g]), *columns)
    yield _line("sum", name)
    for place, after in layer.requantisations.items():
        yield _line("requantise", place, after.name, len(after.affine))
