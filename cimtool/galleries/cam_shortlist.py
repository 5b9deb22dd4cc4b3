"""Shortlists from a content-addressable memory: coding of `mu`, and an estimate of `ed`.

Both sides are rounded to the same levels, with the step that loses least on calibration rows. The
distance that a CAM senses is not the score's `ed`; the digital unit estimates

    ed_v - 2 t.v  ~  factor_v distance(t, v) + offset_v

with two constants per item: a least-squares line through the distances of calibration queries. Its
slope is fitted to deviations from a query's mean, as only the order within a query counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.galleries.few_bits import MOST_ROWS, SHARES, CentredRows, Examples
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance
from cimtool.ir.arithmetic import Add
from cimtool.ir.format import ratio
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import integer
from cimtool.passes.gallery import SHORTLIST
from cimtool.simulation.kernels.operations import fast_kernel

DONT_CARE_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of values, nearest to the threshold, that are tried as X; no X at all is tried too."""

PRIOR_ROWS = 16
"""Weight of the common slope in an item's slope, as a number of queries."""

SEARCH = "search"
"""The graph's node for the search in the CAM."""

ITEM_BLOCK = 4096
"""Items whose lines are fitted at a time."""


@dataclass(frozen=True)
class CellCodes:
    """Levels around a value's centre: `2^bits` levels, `step` apart in units of a query.

    Values of an item that are less than `unsure` from the centre are stored as DONT_CARE.
    """

    bits: int
    step: int
    unsure: float = 0.0

    def of(self, x: Array) -> IntArray:
        """The levels of values minus their centre, in units of a query."""
        levels = 1 << self.bits
        codes = np.floor(x / self.step + levels / 2)
        return np.clip(codes, 0, levels - 1).astype(np.int64)

    def stored(self, x: Array) -> IntArray:
        """The contents of an item's cells."""
        return np.where(np.abs(x) < self.unsure, DONT_CARE, self.of(x))


class ItemLines(NamedTuple):
    """Each item's line, `factor distance + offset`, and its mean squared error."""

    factor: FloatArray
    offset: FloatArray
    error: FloatArray


class LineFit:
    """Fits lines from sensed to exact distances, both [n, E] from n queries to example items.

    The examples give each query's mean, and the common slope that matters if queries are few.
    """

    def __init__(self, distances: Array, exact: Array, slope: float):
        self.centres = distances.mean(axis=1), exact.mean(axis=1)
        self.slope = slope
        x, y = self._deviations(distances, exact)
        self.spread, self.common = float((x * x).mean()), float((x * y).mean())

    def _deviations(self, distances: Array, exact: Array) -> tuple[FloatArray, FloatArray]:
        """Deviations from the queries' means, then from the items' means."""
        both = zip((distances, exact), self.centres, strict=True)
        x, y = (value - centre[:, None] for value, centre in both)
        return x - x.mean(axis=0), y - y.mean(axis=0)

    def lines(self, distances: Array, exact: Array) -> ItemLines:
        """The lines of other items, from their distances [n, M] to the same queries."""
        x, y = self._deviations(distances, exact)
        share = PRIOR_ROWS / len(x)
        spread = (x * x).mean(axis=0) + share * self.spread
        common = (x * y).mean(axis=0) + share * self.common
        factor = np.full(spread.shape, self.slope, np.float64)
        np.divide(common, spread, out=factor, where=spread > 0)
        factor = np.maximum(factor, 0.0)
        offset = exact.mean(axis=0) - factor * distances.mean(axis=0)
        return ItemLines(factor, offset, np.square(y - factor * x).mean(axis=0))


class CamShortlist(CentredRows):
    """Builds the graph from a query's `mu` to the distances that a CAM estimates for its items.

    `score` is a compiled score that uses `ed`; the cells hold `bits` bits of a value.
    """

    def __init__(self, score: Graph, examples: Examples, cam: Cam, bits: int):
        super().__init__(score, examples)
        self.cam, self.bits = cam, bits
        self.of_units = float(self.item.unit) / float(self.query.unit)
        self.text = examples.text
        self.x = examples.text - self.of_query
        self.examples = examples.video[:MOST_ROWS]
        self.codes = self._best_codes()

    def _centred(self, mu: IntArray) -> FloatArray:
        """Items' values minus their centre, in units of a query."""
        return (mu - self.of_item).astype(np.float64) * self.of_units

    def _tried(self, items: FloatArray) -> list[CellCodes]:
        if self.bits == 1:
            shares = DONT_CARE_SHARES if self.cam.array.dont_care else ()
            ends = map(float, np.quantile(np.abs(items), shares))
            return [CellCodes(1, 2, unsure) for unsure in (0.0, *ends)]
        sizes = np.abs(np.concatenate([self.x[:MOST_ROWS], items]))
        ends = np.quantile(sizes, SHARES) / (1 << self.bits - 1)
        return [CellCodes(self.bits, int(step)) for step in np.unique(np.maximum(np.rint(ends), 1))]

    def _best_codes(self) -> CellCodes:
        """The codes whose estimates have the smallest error on the calibration rows."""
        items = self._centred(self.examples)
        exact = -2.0 * (self.text[:MOST_ROWS] @ self.examples.T)

        def error(codes: CellCodes) -> float:
            distances = self._distances(codes, self.x[:MOST_ROWS], items)
            fit = LineFit(distances, exact, codes.step**2)
            return float(fit.lines(distances, exact).error.mean())

        return min(self._tried(items), key=error)

    def _search(self, codes: CellCodes, items: FloatArray) -> CellDistance:
        """The CAM's search over items, given as values minus the centre."""
        array, sense = self.cam.array, self.cam.sense
        stored, scale = codes.stored(items), np.asarray(1.0)
        top = None if sense.levels is None else sense.levels - 1
        return CellDistance(stored, self.bits, array.distance, array.cells, sense.step, top, scale)

    def _distances(self, codes: CellCodes, x: IntArray, items: FloatArray) -> IntArray:
        """Distances that the CAM senses from queries to items, both minus their centres."""
        kind = integer(("n", x.shape[1]), 0, (1 << self.bits) - 1, 1.0)
        found: IntArray = fast_kernel(self._search(codes, items), (kind,))(codes.of(x))
        return found

    def graph(self, video: Mapping[str, Array]) -> Graph:
        """The graph for items of the integer features `video`: `text.mu` to `ed` [n, M]."""
        builder = Builder(SHORTLIST, {"text.mu": self.query})
        items = self._centred(video["mu"])
        op = self._search(self.codes, items)
        found = builder.add(SEARCH, op, self._driven(builder))
        lines = self._lines(video, items)
        return self.distances(builder, found, lines.factor, lines.offset)

    def _driven(self, builder: Builder) -> str:
        """The levels of a query, `floor(x / step + levels / 2)`, clipped.

        It is computed from 2 x + 1: an odd number is never on the edge between two levels.
        """
        levels, step, known = 1 << self.bits, self.codes.step, self.query
        twice = Add((np.asarray(2),), (levels - 1) * step + 1 - 2 * self.of_query, known.unit / 2)
        centred = builder.add("query.centred", twice, "text.mu")
        factor = ratio(Fraction(1, 2 * step), int(builder.types[centred].magnitude))
        by = np.asarray(factor.multiplier), np.asarray(factor.shift)
        return builder.add("query", Requant(*by, 0, levels - 1, known.unit * step), centred)

    def _lines(self, video: Mapping[str, Array], items: FloatArray) -> ItemLines:
        """The lines of items, fitted block by block."""
        examples = self._distances(self.codes, self.x, self._centred(self.examples))
        fit = LineFit(examples, self._exact(self.examples), self.codes.step**2)
        own, found = self.of_items(video), []
        for block in blocks(len(items), ITEM_BLOCK):
            distances = self._distances(self.codes, self.x, items[block])
            found.append(fit.lines(distances, self._exact(video["mu"][block]) + own[block]))
        return ItemLines(*map(np.concatenate, zip(*found, strict=True)))

    def _exact(self, mu: IntArray) -> FloatArray:
        """Exact distances [n, M] of the kept queries, without the terms of query or item alone."""
        exact: FloatArray = -2.0 * (self.text.astype(float) @ mu.T.astype(float))
        return exact
