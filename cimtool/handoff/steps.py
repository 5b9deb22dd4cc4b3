"""`steps.txt`: the order in which arrays are written and read, and the settings of each read.

A line begins with a word; the word determines how many words and decimal numbers follow, so that
`$fscanf` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.handoff.directed import INPUTS, LINES
from cimtool.handoff.layers import DrivenLayer, Lanes
from cimtool.handoff.macro_kinds import law_numbers, macro_kinds
from cimtool.handoff.searches import DrivenSearch

STEPS_FILE = "steps.txt"
STEPS_VERSION = 4

LAYER = {"layer": "the layer's name"}
SEARCH = {"search": "the name of the search in a content-addressable memory"}

STEPS: dict[str, dict[str, str]] = {
    "handoff": {"version": "of the format of this file alone; a reader refuses others"},
    "array": {"rows": "word lines of an array", "columns": "cells of a word line"},
    "lanes": {
        "inputs": "bits of a lane of inputs",
        "digits": "bits of a lane of digits",
        "sums": "bits of a lane of sums and of codes",
    },
    "layer": LAYER
    | {
        "kind": "its kind of macro, `sv/kindN/`",
        "rows": "rows of its weights",
        "columns": "columns of its weights: its outputs",
        "vectors": "inputs in `taps/`",
        "groups": "row groups, which are driven one after the other",
        "slices": "converted slices of a weight, one for each line `slice`",
        "cycles": "input cycles, one for each line `cycle`",
    },
    "cells": LAYER
    | {
        "bits": "bits of a cell",
        "polarities": "2 if a digit is a pair of cells, the positive less the negative",
        "height": "word lines of a row of weights: 2 if pairs lie in rows",
        "across": "weights side by side in an array",
        "baseline": "what a cell of the digit 0 holds",
        "complement": "a flagged column holds this less its digits",
        "offset": "what digits of a weight count beyond the weight",
        "unit": "1 if an array has a unit column, which measures the sum of the digits driven",
        "reference": "1 if an array has a reference column, which is taken off every other sum",
        "flags": "1 if columns may hold complements, `images/`",
        "by_polarity": "1 if each cell of a pair is converted by itself: `slice` lines come in "
        "twos, positive first",
    },
    "inputs": LAYER
    | {
        "bits": "bits of an input",
        "addend": "added to an input before it is cut into digits",
        "magnitude": "1 for digits of the magnitude, each with the sign of the input",
    },
    "converter": LAYER
    | {
        "kind": "0 none, 1 equal steps, 2 one table, 3 a table for each reference",
        "lo": "lowest code",
        "hi": "highest code",
        "rounding": "of equal steps: 0 half-up, 1 half-even, 2 floor",
        "sum_places": "binary places of a sum: it counts in 2^-sum_places of a digit",
        "reference_places": "further binary places of steps, offsets and values",
        "threshold_places": "binary places of thresholds, in steps",
        "references": "cycles with their own references, or 1 for all cycles",
        "leak": "what an erased cell conducts, in 2^-sum_places of a digit",
    },
    "write_verify": LAYER
    | {
        "places": "conductances count in 2^-places uS",
        "tolerance": "of a conductance",
        "pulse": "the most that a pulse changes a conductance",
        "max_pulses": "pulses after which a cell is given up",
        "erased": "what an erased cell conducts",
        "digits": "digits that a cell may hold",
    },
    "slice": LAYER
    | {
        "number": "of the converted slice, from 0",
        "shift": "its values count 2^shift",
        "sign": "times 1 or -1",
        "signed": "1 if a cell holds two's complement",
        "factor": "times this",
    },
    "cycle": LAYER
    | {
        "number": "of the cycle, from 0",
        "shift": "lowest bit of the input that it drives; its values count 2^shift",
        "bits": "bits that it drives; 0: all from the shift on",
        "sign": "its values count 1 or -1",
        "zero": "the digit of the input 0, which drives idle rows",
    },
    "program": {
        "array": "LAYER/rR.cC, the array in `images/` that is written",
        "first": "first column of the layer that it holds",
        "end": "last column of the layer that it holds, + 1",
    },
    "read": {
        "array": "LAYER/rR.cC, in `taps/` and `constants/`",
        "group": "gG, the row group in this array",
        "band": "LAYER/rR, in `taps/`: rows that all arrays of a row share",
        "start": "first row of the array's weights that is driven",
        "stop": "last row of the array's weights that is driven, + 1",
        "idle": "further rows, from `stop` on, that are driven with the digit `zero`",
        "first": "first column of the layer that the array holds",
        "end": "last column of the layer that the array holds, + 1",
    },
    "direct": LAYER
    | {
        "converter": "lines of `directed/LAYER/converter.txt`, whose sums the arrays then get",
        "counts": "lines of `directed/LAYER/counts.txt`",
    },
    "sum": LAYER,
    "requantise": {
        "requantisation": "LAYER/qN",
        "value": "name of the value in the program",
        "stages": "stages of `affine.hex`",
    },
    "search": SEARCH
    | {
        "items": "items of the gallery",
        "cells": "cells of an item, over all of its words",
        "queries": "queries in `cam/`",
        "bits": "bits of a cell",
        "distance": "of a cell: 0 hamming (0 or 1), 1 l1 (levels apart), 2 squared",
        "step": "of the converter of a word's distance",
        "top": "its highest code",
        "length": "of the shortlist",
    },
    "store": SEARCH
    | {
        "words": "rR.cC, the array in `cam/` that is written",
        "first": "first item of the gallery that it holds",
        "end": "last item of the gallery that it holds, + 1",
    },
    "match": SEARCH
    | {
        "words": "rR.cC, the array that compares all queries",
        "segment": "cC, the cells of queries that it gets",
        "first": "first item of the gallery that it holds",
        "end": "last item of the gallery that it holds, + 1",
    },
    "rank": SEARCH,
    "end": {"lines": "lines of this file, with this one"},
}
"""The lines: the word that begins one, and the fields after it by name."""

WORDS = (
    *("layer", "array", "group", "band", "requantisation", "value"),
    *("search", "words", "segment"),
)
"""The fields that are words; all others are decimal numbers."""


def step_line(word: str, *values: str | int) -> str:
    """A line of `steps.txt`; its fields are those of STEPS."""
    if len(values) != len(STEPS[word]):
        raise ValueError(f"a line {word} has {len(STEPS[word])} fields; got {len(values)}")
    shown = (str(int(one)) if isinstance(one, int) else one for one in values)
    return " ".join([word, *shown])


def steps_text(layers: list[DrivenLayer], lanes: Lanes, search: DrivenSearch | None) -> str:
    """The text of `steps.txt` for these layers, and for a search in a CAM after them."""
    layout = layers[0].layout
    lines = [
        step_line("handoff", STEPS_VERSION),
        step_line("array", layout.rows, layout.columns),
        step_line("lanes", lanes.inputs, lanes.digits, lanes.sums),
    ]
    kinds = {layer: kind.number for kind in macro_kinds(layers) for layer in kind.layers}
    for layer in layers:
        lines += [*_settings(layer, kinds[layer]), *_reads(layer)]
    if search is not None:
        lines += _searched(search)
    return "\n".join([*lines, step_line("end", len(lines) + 1)]) + "\n"


def _searched(search: DrivenSearch) -> Iterator[str]:
    """The lines of a search: array by array, then the ranking of all items."""
    op, name = search.op, search.name
    extents = search.items, op.stored.shape[1], len(search.queries), op.bits
    yield step_line(
        "search", name, *extents, op.distance_number, op.step, search.top, search.length
    )
    for row, column, items in search.arrays():
        words, held = search.array(row, column), (items.start, items.stop)
        yield step_line("store", name, words, *held)
        yield step_line("match", name, words, f"c{column}", *held)
    yield step_line("rank", name)


def _settings(layer: DrivenLayer, kind: int) -> Iterator[str]:
    """The lines with the settings that all reads of a layer share."""
    name, image, crossbar = layer.name, layer.image, layer.op.crossbar
    rows, columns = layer.op.weight.shape
    held, cycles = layer.op.layer.cells, crossbar.cycles
    extents = rows, columns, len(layer.x), len(held.groups), len(held.slices), len(cycles)
    yield step_line("layer", name, kind, *extents)
    # A macro has one register for the complement and one for the offset. The converted layer has
    # a factor for each column, so these two come from the image.
    yield step_line(
        *("cells", name, image.cell_bits, image.polarities, layer.layout.rows_per_weight),
        *(layer.layout.across, image.baseline, image.complement, image.offset),
        *(image.unit_column, image.reference_column, image.flips),
        crossbar.columns_by_polarity,
    )
    code = crossbar.inputs
    yield step_line("inputs", name, code.bits, code.lift, code.sign_magnitude)
    *limits, places = law_numbers(crossbar)
    fine = held.fraction_bits, crossbar.reference_bits, places
    yield step_line("converter", name, *limits, *fine, crossbar.reference_cycles, held.leak)
    if layer.writes is not None:
        own = layer.writes
        numbers = own.places, own.tolerance, own.pulse, own.max_pulses, own.erased
        yield step_line("write_verify", name, *numbers, len(own.bounds))
    for k, one in enumerate(held.slices):
        signed = image.slices[k // layer.polarities].signed
        yield step_line("slice", name, k, one.shift, one.sign, signed, one.factor)
    for c, (cycle, zero) in enumerate(zip(cycles, crossbar.zero_digits, strict=True)):
        yield step_line("cycle", name, c, cycle.shift, cycle.bits or 0, cycle.sign, int(zero))


def _reads(layer: DrivenLayer) -> Iterator[str]:
    """The lines of a layer's arrays, written one after another and read group by group."""
    image, name = layer.image, layer.name
    idle = layer.op.layer.cells.idle_rows
    by_row: dict[int, list[tuple[int, int, slice]]] = {}
    for g, (row, within, group) in enumerate(layer.groups()):
        by_row.setdefault(row, []).append((g, within, group))
    for row, groups in by_row.items():
        first = row * image.array_rows
        for c, array in enumerate(layer.arrays(row)):
            start = c * image.array_columns
            columns = start, min(start + image.array_columns, image.columns)
            yield step_line("program", f"{layer.cells}/{array}", *columns)
            for g, within, group in groups:
                rows = group.start - first, group.stop - first
                paths = f"{name}/{array}", f"g{within}", f"{name}/r{row}"
                yield step_line("read", *paths, *rows, int(idle[g]), *columns)
    told = [not one.where or one.where in layer.facts for one in LINES.values()]
    directed = zip(told, INPUTS.values(), strict=True)
    yield step_line("direct", name, *(len(of(layer)) if has else 0 for has, of in directed))
    yield step_line("sum", name)
    for place, after in layer.requantisations.items():
        yield step_line("requantise", place, after.name, len(after.affine))
