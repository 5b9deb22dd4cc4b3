"""Directed numbers: inputs that reveal a small error in a requantiser or a converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.base.files import place_in
from cimtool.handoff.formats import PLACES, LineFile, NumberFile
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.requantiser import DIRECTED
from cimtool.hardware.converted_layer import ConvertedColumns
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.mvm import CrossbarMvm

TOTALS = 512
"""Sums of digits, at most, that are tried if cells leak."""


class ConverterInput(NamedTuple):
    """A sum at a converter's input, and its code.

    `slice` and `cycle` name the converter, which subtracts `offset`. The sum of cells times digits
    is `cells`, the sum of the digits alone `digits`: `sum = (cells << fraction_bits) + leak *
    digits`.
    """

    slice: int
    cycle: int
    offset: int
    cells: int
    digits: int
    sum: int
    code: int


class PopulationCount(NamedTuple):
    """Rows that conduct in one bit of the cells, and the sum and code of a converter.

    The first `rows` rows are driven by a digit of 1, and every cell holds `cell`: a single bit,
    negative in a pair's second cell.
    """

    slice: int
    cycle: int
    offset: int
    cell: int
    rows: int
    sum: int
    code: int


def population_counts(layer: DrivenLayer) -> list[PopulationCount]:
    """Every number of rows that conduct, in each bit of a column's cells, as far as sums reach.

    The references are those of a converter's first cycle, with one of its offsets. The unit column
    is left out.
    """
    found: list[PopulationCount] = []
    op, crossbar, held = layer.op, layer.op.crossbar, layer.op.layer.cells
    height, bits = int(held.heights.max()), layer.image.cell_bits
    cells = [1 << p for p in range(bits)]
    if layer.image.polarities > layer.polarities:
        cells += [-cell for cell in cells]
    for k in range(crossbar.slices):
        column = op.layer.columns[crossbar.reference_of(k, 0)]
        signed = layer.image.slices[k // layer.polarities].signed
        offset, least, most = next(_reaches(op, column)) if column.law else _lossless_reach(column)
        for cell in cells:
            value = -cell if signed and cell == 1 << bits - 1 else cell
            for rows in range(height + 1):
                total = (value * rows << held.fraction_bits) + held.leak * rows
                if least <= total <= most:
                    code = total
                    if column.law is not None:
                        code = int(_codes(op, column, np.array(total), offset))
                    found.append(PopulationCount(k, 0, offset, cell, rows, total, code))
    # Cells are written once for each bit.
    return sorted(found, key=lambda one: (one.cell, one.slice, one.rows))


def _lossless_reach(column: ConvertedColumns) -> tuple[int, int, int]:
    """No offset, and the smallest and the largest sum of columns whose codes are their sums."""
    lows, highs = column.bounds
    return 0, int(lows.min()), int(highs.max())


def converter_inputs(layer: DrivenLayer) -> list[ConverterInput]:
    """The sums next to each threshold of a layer's converters, as far as their columns reach.

    They reach every code that a sum within the proved bounds of a column can have, and both ends of
    these bounds. Lossless converters of a table have no codes; a unit column is left out if cells
    hold fractions.
    """
    found: list[ConverterInput] = []
    op, crossbar = layer.op, layer.op.crossbar
    for i, column in enumerate(op.layer.columns):
        k, c = divmod(i, crossbar.reference_cycles)
        if k == crossbar.slices and crossbar.fraction_bits:
            continue
        law = crossbar.law if column.law is None else column.law
        if column.law is None and isinstance(law, UniformLaw):
            column = replace(column, law=law, step=column.step + (1 << crossbar.reference_bits))
        if column.law is not None:
            found += _of_converter(layer, (k, c), column)
    # A pair's negative sums are in its second cells: these come first.
    return sorted(found, key=lambda one: (one.cells >= 0, one.slice, one.cycle, one.sum))


def _of_converter(
    layer: DrivenLayer, place: tuple[int, int], column: ConvertedColumns
) -> Iterator[ConverterInput]:
    """Yield the inputs of one converter."""
    op, held = layer.op, layer.op.layer.cells
    for offset, least, most in _reaches(op, column):
        edges = _edges(op, column, offset, least, most)
        cells, digits = _nearest(layer, np.concatenate([edges, [least]]), least, most)
        below, of_them = _nearest(
            layer, np.concatenate([edges - 1, [most]]), least, most, down=True
        )
        both = np.stack([np.concatenate([cells, below]), np.concatenate([digits, of_them])])
        for s, t in np.unique(both, axis=1).T.tolist():
            total = (s << held.fraction_bits) + held.leak * t
            if least <= total <= most:
                code = int(_codes(op, column, np.array(total), offset))
                yield ConverterInput(*place, offset, s, t, total, code)


def _codes(
    op: CrossbarMvm, column: ConvertedColumns, sums: IntArray, offset: IntArray | int
) -> IntArray:
    assert column.law is not None
    assert column.one_step is not None
    return column.law.codes((sums << op.crossbar.reference_bits) - offset, column.one_step)


def _reaches(op: CrossbarMvm, column: ConvertedColumns) -> Iterator[tuple[int, int, int]]:
    """Yield offsets whose columns together reach all codes, with the ends of their sums."""
    (lows, highs), (every, which) = column.bounds, np.unique(column.offset, return_inverse=True)
    least = np.full(len(every), np.iinfo(np.int64).max)
    most = np.full(len(every), np.iinfo(np.int64).min)
    np.minimum.at(least, which.reshape(-1), lows.reshape(-1))
    np.maximum.at(most, which.reshape(-1), highs.reshape(-1))
    first, last = (_codes(op, column, ends, every) for ends in (least, most))
    base = int(first.min())
    missing = np.ones(int(last.max()) - base + 1, np.bool_)
    while True:
        before = np.concatenate([[0], np.cumsum(missing)])
        gains = before[last - base + 1] - before[first - base]
        best = int(gains.argmax())
        if not gains[best]:
            return
        missing[first[best] - base : last[best] - base + 1] = False
        yield int(every[best]), int(least[best]), int(most[best])


def _edges(
    op: CrossbarMvm, column: ConvertedColumns, offset: int, least: int, most: int
) -> IntArray:
    """For each code except the lowest, the smallest sum with this code or a higher code."""
    first, last = (int(_codes(op, column, np.array(end), offset)) for end in (least, most))
    codes = np.arange(first + 1, last + 1)
    below, above = np.full(len(codes), least), np.full(len(codes), most)
    while (below + 1 < above).any():
        middle = (below + above) // 2
        reached: BoolArray = _codes(op, column, middle, offset) >= codes
        below, above = np.where(reached, below, middle), np.where(reached, middle, above)
    return above


def _nearest(
    layer: DrivenLayer, sums: IntArray, least: int, most: int, down: bool = False
) -> tuple[IntArray, IntArray]:
    """For each sum, the nearest sum at or above it (`down`: below) that cells can make.

    It is given as `cells` and `digits` of a ConverterInput.
    """
    crossbar, top = layer.op.crossbar, (1 << layer.image.cell_bits) - 1
    held = layer.op.layer.cells
    places, leak = held.fraction_bits, held.leak
    one = 1 << places
    if not leak:
        cells = sums >> places if down else -(-sums >> places)
        digits = -(-np.abs(cells) // top)
        pair = layer.image.polarities > layer.polarities
        return cells, digits if pair else np.where(cells < 0, -digits, digits)
    lo, hi = crossbar.digit_limits
    height = int(held.heights.max())
    totals = np.unique(np.linspace(min(lo, 0) * height, hi * height, TOTALS).round().astype(int))
    left = sums[:, None] - leak * totals
    cells = left >> places if down else -(-left >> places)
    ends = np.sort(np.stack([np.zeros_like(totals), top * totals]), axis=0)
    inside = np.clip(cells, *ends)
    made = inside * one + leak * totals
    allowed = (made <= sums[:, None] if down else made >= sums[:, None]) & (made >= least)
    off = np.where(allowed & (made <= most), np.abs(made - sums[:, None]), np.iinfo(np.int64).max)
    best = off.argmin(axis=1)
    return inside[np.arange(len(sums)), best], totals[best]


def directed_text(inputs: Sequence[ConverterInput | PopulationCount]) -> str:
    """A line for each input: its fields, in decimal."""
    return "".join(f"{' '.join(map(str, one))}\n" for one in inputs)


LINES = {
    "converter": LineFile(
        "{layer}/converter.txt",
        "both sides of every threshold that a column reaches, and both ends of its sums",
        {
            "slice": "the converted slice; the number of slices for the unit column",
            "cycle": "the cycle whose references it has; 0 if all share them",
            "offset": "what the converter takes off first",
            "cells": "the sum of cells times digits",
            "digits": "the sum of the digits alone",
            "sum": "`(cells << sum_places) + leak * digits`, at the converter",
            "code": "what the converter makes of it",
        },
        where="converters",
    ),
    "counts": LineFile(
        "{layer}/counts.txt",
        "every number of rows that conduct, in each bit of the cells, as far as sums reach",
        {
            "slice": "the converted slice",
            "cycle": "the cycle whose references it has: 0",
            "offset": "what the converter takes off first",
            "cell": "what each cell of the column holds, one bit; below 0: in the second cell of a "
            "pair that is converted as one",
            "rows": "the rows, from the first on, that are driven by the digit 1; others by 0",
            "sum": "`rows * ((cell << sum_places) + leak)`, at the converter, with the highest bit "
            "of a cell in two's complement counted as negative",
            "code": "what the converter makes of it; the sum if there is none",
        },
    ),
}
"""The files of `directed/` that have several numbers a line, by the names of INPUTS.

Their fields are those of ConverterInput and PopulationCount.
"""

INPUTS: dict[str, Callable[[DrivenLayer], Sequence[ConverterInput | PopulationCount]]] = {
    "converter": converter_inputs,
    "counts": population_counts,
}
"""The lines of each file of LINES."""

LINE = 24
"""Letters of a line of these files, about."""


def line_bytes(layer: DrivenLayer) -> int:
    """About the bytes of the files of LINES.

    They have two lines for each code of each converter, and one for each number of rows, bit of a
    cell and slice.
    """
    crossbar, image = layer.op.crossbar, layer.image
    bits = image.cell_bits * (image.polarities // layer.polarities)
    lines = crossbar.slices * bits * (int(layer.op.layer.cells.heights.max()) + 1)
    if crossbar.law is not None:
        lines += 2 * (crossbar.law.hi - crossbar.law.lo + 2) * len(layer.op.layer.columns)
    return LINE * lines


NUMBERS = {
    "requantiser_in": NumberFile(
        "{requantisation}/requantiser_in.hex",
        f"{DIRECTED} inputs of every channel, the first of all channels, then the second of all: "
        "next above and below a rounding threshold at either end of its range, ties if there are "
        "any, the ends; inputs may repeat",
        ("input", "column"),
    ),
    "requantiser_out": NumberFile(
        "{requantisation}/requantiser_out.hex",
        "these inputs, which follow the stages of `affine.hex`, after the requantisation",
        ("input", "column"),
    ),
}
"""The files of `directed/` that have a number a line."""


def write_directed(source: HandoffSource, folder: Path) -> None:
    """Write `folder`/LAYER/ for each layer: inputs of requantisers and converters, and results."""
    for layer in source.layers_told("directed numbers"):
        for name, lines in LINES.items():
            if not lines.where or lines.where in layer.facts:
                file = place_in(folder, lines.path.format(layer=layer.name))
                file.parent.mkdir(exist_ok=True)
                file.write_text(directed_text(INPUTS[name](layer)), "utf-8")
        for place, after in layer.requantisations.items():
            x = layer.directed[place]
            NUMBERS["requantiser_in"].write(folder, x, requantisation=place)
            NUMBERS["requantiser_out"].write(folder, after.rounded(x), requantisation=place)


DIRECTED_PART = HandoffPart(
    folder="directed",
    title="Inputs that reveal a small error in a requantiser or a converter",
    write=write_directed,
    formats=NUMBERS,
    files={one.path.format(**PLACES): one.told for one in LINES.values()},
    size=lambda source: sum(map(line_bytes, source.layers)),
)
