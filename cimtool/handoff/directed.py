"""Directed numbers: inputs that reveal a small error in a requantiser or a converter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.base.files import place_in
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource, write_numbers
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
            column = replace(column, law=law, step=1 << crossbar.reference_bits)
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
    return column.law.codes((sums << op.crossbar.reference_bits) - offset, column.step)


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


def write_directed(source: HandoffSource, folder: Path) -> None:
    """Write `folder`/LAYER/ for each layer: inputs of requantisers and converters, and results."""
    for layer in source.layers_told("directed numbers"):
        own = place_in(folder, layer.name)
        own.mkdir()
        if layer.op.crossbar.law is not None:
            text = directed_text(converter_inputs(layer))
            (own / "converter.txt").write_text(text, "utf-8")
        text = directed_text(population_counts(layer))
        (own / "counts.txt").write_text(text, "utf-8")
        for place, after in layer.requantisations.items():
            x = layer.directed[place]
            after_folder = place_in(folder, place)
            after_folder.mkdir()
            write_numbers(after_folder / "requantiser_in.hex", x)
            write_numbers(after_folder / "requantiser_out.hex", after.rounded(x))


DIRECTED_PART = HandoffPart(
    folder="directed",
    title="Inputs that reveal a small error in a requantiser or a converter",
    write=write_directed,
    files={
        "LAYER/qN/requantiser_in.hex": f"{DIRECTED} inputs of every channel: next above and below "
        "a rounding threshold at either end of its range, ties, the ends",
        "LAYER/qN/requantiser_out.hex": "these inputs after requantisation N",
        "LAYER/converter.txt": "both sides of every threshold that a column reaches: slice, cycle "
        "and offset of the converter; cells times digits, and digits alone, that make the sum; the "
        "sum, and its code",
        "LAYER/counts.txt": "every number of rows that conduct, in each bit of the cells: slice, "
        "cycle and offset of the converter; what every cell holds; the first rows, which are "
        "driven by 1; the sum, and its code",
    },
)
