"""The search for a shortlist that reaches a recall: its trials, and a picture of what it found.

What is fitted on one half of the kept queries is tried on the other, and both have to hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.bundle.simulate import best_items
from cimtool.costs.memory_use import memory_use
from cimtool.galleries.few_bits import ItemCodes
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.shortlists import (
    NOWHERE,
    Places,
    Recall,
    ShortlistAsked,
    ShortlistSearch,
    TriedShortlist,
    places_of,
    searched,
)
from cimtool.passes.gallery import PRODUCT_LAYER, ShortlistBits
from cimtool.report import svg
from cimtool.report.charts import Points, curves
from cimtool.simulation.simulator import Features, Simulator

LENGTHS = (1, 10, 50)
"""Lengths of shortlists that are drawn, beside the one that was taken: four signs tell apart."""

HEIGHT = 330.0
"""Units that a picture of the file is high."""


def shortlist_search(
    job: GalleryJob, asked: ShortlistAsked, most: int, say: Say
) -> ShortlistSearch:
    """The cheapest bits, dimensions and length, at most `most`, that reach a recall.

    A setting is not tried if one of more bits does not reach the recall; it counts as done.
    """
    if asked.recall is None:
        raise TypeError("no recall is asked for")
    trials = ShortlistTrials(job)
    whole = int(job.few_bits.query.shape[1])
    dimensions_among = asked.dimensions_among(whole, trials.most_dimensions)
    own = job.few_bits.settings.of_layer(PRODUCT_LAYER)

    def cells(item_bits: int) -> int:
        bits = ItemCodes(item_bits, 1.0, own.weight_code.paired).weight_bits
        return own.with_weights(bits).cells_per_weight

    items = asked.item_candidates(cells)
    queries = asked.query_candidates
    total = len(dimensions_among) * len(items) * len(queries)
    found: list[TriedShortlist] = []
    countdown = Countdown(say)
    for d, dimensions in enumerate(dimensions_among):
        for i, item in enumerate(items):
            tried = []
            for q, query in enumerate(queries, 1):
                bits = ShortlistBits(item, query, dimensions)
                tried.append(trials.tried(bits))
                done = (d * len(items) + i) * len(queries) + q
                countdown.tell(PartDone(f"tried {bits}: {done} of {total}"), done, total)
                if tried[-1].length(asked.recall, most) is None:
                    break  # fewer bits of a query hold less
            found += tried
            if tried[0].length(asked.recall, most) is None:
                break  # fewer bits of items hold less
    return searched(found, asked.recall, most, asked.minimise)


class ShortlistTrials:
    """Trials of shortlists: queries of one half, in what is fitted on the other, for both halves.

    If the bundle keeps the right items of queries, these are stored too, each for its own query
    only.
    """

    def __init__(self, whole: GalleryJob):
        self.whole = whole
        self.pairs = pairs = whole.halves
        self.exact = [ask.digital.score(ask.queries, whole.video) for _, ask in pairs]
        self.best = [best_items(one) for one in self.exact]
        self.right = [
            ask.digital.score(ask.queries, ask.right).diagonal() if ask.right else None
            for _, ask in pairs
        ]

    @property
    def most_dimensions(self) -> int:
        """The most components that can be taken of the rows of either half."""
        return min(int(fit.few_bits.principal.most) for fit, _ in self.pairs)

    def tried(self, bits: ShortlistBits) -> TriedShortlist:
        """One trial."""
        compiled = self.whole.compiled
        graph = self.pairs[0][0].maker(bits)(self.whole.video)
        cost = self.whole.cost(graph)
        return TriedShortlist(
            bits,
            self.places(bits),
            memory_use(graph, compiled.settings, compiled.target),
            lambda length: replace(cost, shortlist=length),
        )

    def places(self, bits: ShortlistBits) -> tuple[Places, Places]:
        """The places that items have for the queries of either half."""
        return self._places(bits, 0), self._places(bits, 1)

    def _places(self, bits: ShortlistBits, half: int) -> Places:
        fit, ask = self.pairs[half]
        stored: Features = self.whole.video
        if ask.right:
            stored = {k: np.concatenate([v, ask.right[k]]) for k, v in stored.items()}
        make = fit.maker(bits)
        programmed = Simulator(self.whole.program_with(fit.fitted(make, make(stored))))
        places = [
            self._among(half, rows, ed) for rows, ed in programmed.iter_distances(ask.queries)
        ]
        return Places.joined(places)

    def _among(self, half: int, rows: slice, ed: IntArray) -> Places:
        """The places of some queries' items by their distances to all that are stored."""
        exact, right, best = self.exact[half][rows], self.right[half], self.best[half][rows]
        items = exact.shape[1]
        near = places_of(ed[:, :items], best)
        if right is None:
            return Places(near, None, None)
        own = np.take_along_axis(ed, items + np.arange(rows.start, rows.stop)[:, None], axis=1)
        better = exact > right[rows, None]
        first = np.where(better, ed[:, :items], np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        return Places(
            near,
            (ed[:, :items] <= own).sum(axis=1),
            np.where(better.any(axis=1), (ed[:, :items] < first).sum(axis=1), NOWHERE),
        )


def search_svg(search: ShortlistSearch, title: str) -> str:
    """The most that shortlists of some lengths hold, by the cells that an item takes of them.

    Two pictures: the share of queries whose best item is held, and the share of their best ten.
    Every point is a setting that none of fewer cells is better than.
    """
    taken = search.chosen
    said = f"taken: {taken.bits}; a shortlist of {taken.length}, {taken.cells:,} cells an item"
    asked = f"shares of the {sum(search.queries)} calibration queries"
    lengths = sorted({taken.length, *(one for one in LENGTHS if one <= search.most)})
    pictures = [
        curves(
            [Points(f"L = {length}", list(_front(search, length, ten))) for length in lengths],
            "cells an item",
            name,
            f"{name} against cells an item",
        )
        for name, ten in (("best item held", False), ("best ten held", True))
    ]
    parts = [
        svg.text(16, 24, title, style="title"),
        svg.text(16, 44, said, style="soft"),
        svg.text(16, 64, asked, style="soft"),
        *(svg.group(16, 80 + i * HEIGHT, 1, [one]) for i, one in enumerate(pictures)),
    ]
    return svg.file_text(svg.WIDTH + 32, 80 + 2 * HEIGHT, title, f"{said}; {asked}", parts)


def _front(search: ShortlistSearch, length: int, ten: bool) -> Iterator[tuple[float, float]]:
    """Cells and recall of the trials that none of fewer cells is better than."""
    best = -1.0
    found = [(one.cells, Recall.of(Places.joined(one.places), length)) for one in search.trials]
    values = ((cells, one.best_ten if ten else one.best.value) for cells, one in found)
    for cells, value in sorted(values, key=lambda pair: (pair[0], -pair[1])):
        if value > best:
            best = value
            yield cells, value
