"""Directed numbers for converters: sums on both sides of every threshold that a column reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.handoff.layers import DrivenLayer
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences

TOTALS = 512
"""Totals of digits, at most, that are tried for cells that leak."""


@dataclass(frozen=True)
class ConverterInput:
    """A sum that a converter gets, and the code that it makes of it.

    `slice` and `cycle` name the converter, `offset` is what it takes off. Cells times digits come
    to `cells` digits, and the digits alone to `digits`: `sum = (cells << fraction_bits) +
    leak * digits`.
    """

    slice: int
    cycle: int
    offset: int
    cells: int
    digits: int
    sum: int
    code: int


def converter_inputs(layer: DrivenLayer) -> list[ConverterInput]:
    """The sums next to each threshold of a layer's converters, within what their columns reach.

    With them every code is reached that any sum within the proved bounds of a column has, and both
    ends of these bounds. Lossless converters of a table have no codes; a unit column beside cells
    of fractions is left out.
    """
    found: list[ConverterInput] = []
    op, crossbar = layer.op, layer.op.crossbar
    stored, bounds = op.stored, [*op.stored.bounds]
    if crossbar.unit_column and not crossbar.fraction_bits:
        bounds.append(stored.unit_bounds)
    for k, (low, high) in enumerate(bounds):
        for c in range(crossbar.reference_cycles):
            references = op.references[crossbar.reference_of(k, c)]
            if references is None and isinstance(crossbar.law, UniformLaw):
                references = AdcReferences.from_zero(1 << crossbar.reference_bits)
            if references is not None and crossbar.law is not None:
                found += _of_converter(layer, (k, c), references, low, high)
    # A pair's sums below zero lie in its second cells: these first.
    return sorted(found, key=lambda one: (one.cells >= 0, one.slice, one.cycle, one.sum))


def _of_converter(
    layer: DrivenLayer, place: tuple[int, int], references: AdcReferences, low: IntArray,
    high: IntArray,
) -> Iterator[ConverterInput]:  # fmt: skip
    """Yield the inputs of one converter, of columns whose sums lie within `low` to `high`."""
    op = layer.op
    for offset, least, most in _reaches(op, references, low, high):
        edges = _edges(op, references, offset, least, most)
        cells, digits = _nearest(layer, np.concatenate([edges, [least]]), least, most)
        below, of_them = _nearest(
            layer, np.concatenate([edges - 1, [most]]), least, most, down=True
        )
        both = np.stack([np.concatenate([cells, below]), np.concatenate([digits, of_them])])
        for s, t in np.unique(both, axis=1).T.tolist():
            total = (s << op.crossbar.fraction_bits) + op.crossbar.column_leak * t
            if least <= total <= most:
                code = int(_codes(op, references, np.array(total), offset))
                yield ConverterInput(*place, offset, s, t, total, code)


def _codes(
    op: CrossbarMvm, references: AdcReferences, sums: IntArray, offset: IntArray | int
) -> IntArray:
    crossbar = op.crossbar
    assert crossbar.law is not None
    return references.law(crossbar.law).codes(
        (sums << crossbar.reference_bits) - offset, references.step
    )


def _reaches(
    op: CrossbarMvm, references: AdcReferences, low: IntArray, high: IntArray
) -> Iterator[tuple[int, int, int]]:
    """Yield offsets whose columns together reach all codes, with the ends of their sums."""
    offsets, lows, highs = np.broadcast_arrays(references.offset, low, high)
    every, which = np.unique(offsets, return_inverse=True)
    least = np.full(len(every), np.iinfo(np.int64).max)
    most = np.full(len(every), np.iinfo(np.int64).min)
    np.minimum.at(least, which.reshape(-1), lows.reshape(-1))
    np.maximum.at(most, which.reshape(-1), highs.reshape(-1))
    first, last = (_codes(op, references, ends, every) for ends in (least, most))
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
    op: CrossbarMvm, references: AdcReferences, offset: int, least: int, most: int
) -> IntArray:
    """The smallest sum that has each code or a higher one, but for the lowest code."""
    first, last = (int(_codes(op, references, np.array(end), offset)) for end in (least, most))
    codes = np.arange(first + 1, last + 1)
    below, above = np.full(len(codes), least), np.full(len(codes), most)
    while (below + 1 < above).any():
        middle = (below + above) // 2
        reached: BoolArray = _codes(op, references, middle, offset) >= codes
        below, above = np.where(reached, below, middle), np.where(reached, middle, above)
    return above


def _nearest(
    layer: DrivenLayer, sums: IntArray, least: int, most: int, down: bool = False
) -> tuple[IntArray, IntArray]:
    """The nearest of the sums that cells make from these on, as `cells` and `digits`."""
    crossbar, top = layer.op.crossbar, (1 << layer.image.cell_bits) - 1
    places, leak = crossbar.fraction_bits, crossbar.column_leak
    one = 1 << places
    if not leak:
        cells = sums >> places if down else -(-sums >> places)
        digits = -(-np.abs(cells) // top)
        pair = layer.image.polarities > layer.polarities
        return cells, digits if pair else np.where(cells < 0, -digits, digits)
    lo, hi = crossbar.digit_limits
    height = max(group.stop - group.start for group in layer.op.stored.groups)
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
    lines = (
        f"{one.slice} {one.cycle} {one.offset} {one.cells} {one.digits} {one.sum} {one.code}\n"
        for one in converter_inputs(layer)
    )
    return "".join(lines)
