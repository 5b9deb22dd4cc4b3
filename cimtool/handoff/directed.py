"""Directed numbers: inputs that reveal a small error in a requantiser or a converter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.base.files import place_in
from cimtool.handoff.formats import PLACES, NumberFile
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


def converter_text(layer: DrivenLayer) -> str:
    """A line for each input: the fields of `ConverterInput`, in decimal."""
    return "".join(f"{' '.join(map(str, one))}\n" for one in converter_inputs(layer))


CONVERTER_FIELDS = {
    "slice": "the converted slice; the number of slices for the unit column",
    "cycle": "the cycle whose references it has; 0 if all share them",
    "offset": "what the converter takes off first",
    "cells": "the sum of cells times digits",
    "digits": "the sum of the digits alone",
    "sum": "`(cells << sum_places) + leak * digits`, at the converter",
    "code": "what the converter makes of it",
}
"""The numbers of a line of `converter.txt`: the fields of ConverterInput."""

CONVERTER_FILE = "{layer}/converter.txt"


def converter_bytes(layer: DrivenLayer) -> int:
    """About the bytes of `converter.txt`, two lines for each code of each converter."""
    law = layer.op.crossbar.law
    return 0 if law is None else 2 * LINE * (law.hi - law.lo + 2) * len(layer.op.layer.columns)


LINE = 24
"""Letters of a line of `converter.txt`, about."""

NUMBERS = {
    "requantiser_in": NumberFile(
        "{requantisation}/requantiser_in.hex",
        f"{DIRECTED} inputs of every channel, the first of all channels, then the second of all: "
        "next above and below a rounding threshold at either end of its range, ties, the ends",
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
        if "converters" in layer.facts:
            own = place_in(folder, layer.name)
            own.mkdir(exist_ok=True)
            (own / "converter.txt").write_text(converter_text(layer), "utf-8")
        for place, after in layer.requantisations.items():
            x = layer.directed[place]
            NUMBERS["requantiser_in"].write(folder, x, requantisation=place)
            NUMBERS["requantiser_out"].write(folder, after.rounded(x), requantisation=place)


DIRECTED_PART = HandoffPart(
    folder="directed",
    title="Inputs that reveal a small error in a requantiser or a converter",
    write=write_directed,
    formats=NUMBERS,
    files={
        CONVERTER_FILE.format(**PLACES): "both sides of every threshold that a column reaches, a "
        f"line each: {', '.join(CONVERTER_FIELDS)}",
    },
    size=lambda source: sum(map(converter_bytes, source.layers)),
)
