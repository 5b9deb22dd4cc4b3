"""The search for a shortlist that reaches a recall: which settings are tried, and how.

What is fitted on one half of the kept queries is tried on the other, and both have to hold it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.bundle.simulate import best_items
from cimtool.costs.memory_use import memory_use
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.galleries.shortlists import (
    NOWHERE,
    Places,
    ShortlistAsked,
    ShortlistSearch,
    TriedShortlist,
    places_of,
    searched,
)
from cimtool.hardware.settings import Settings
from cimtool.passes.gallery import PRODUCT_LAYER
from cimtool.passes.shortlist import ItemCodes, ShortlistBits
from cimtool.simulation.simulator import Features, Simulator


def shortlist_search(
    job: GalleryJob, asked: ShortlistAsked, most: int, say: Say
) -> ShortlistSearch:
    """The bits, dimensions and length, at most `most`, that reach a recall at least cost.

    Settings that need not be tried, as others of more bits do not reach it, count as done.
    """
    if asked.recall is None:
        raise TypeError("no recall is asked for")
    trials = ShortlistTrials(job)
    whole = int(job.few_bits.query.shape[1])
    dimensions_among = asked.dimensions_among(whole, trials.most_dimensions)
    items = asked.item_candidates(partial(cells_of, job.few_bits.settings))
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
                    break  # fewer bits of a query reach it less
            found += tried
            if tried[0].length(asked.recall, most) is None:
                break  # fewer bits of items reach it less
    return searched(found, asked.recall, most, asked.minimise)


class ShortlistTrials:
    """Trials of shortlists: queries of one half, in what is fitted on the other, for both halves.

    Where the bundle keeps queries' right items they are stored too, each as an item more for the
    query that is its own.
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


def cells_of(settings: Settings, item_bits: int) -> int:
    """Cells of a value of so many bits."""
    own = settings.of_layer(PRODUCT_LAYER)
    bits = ItemCodes(item_bits, 1.0, own.weight_code.paired).weight_bits
    return own.with_weights(bits).cells_per_weight
