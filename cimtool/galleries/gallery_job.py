"""Construction of a gallery: items are stored, converters fitted, and shortlists tried.

A fit on one half of the kept queries is tried on the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.simulate import best_items
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.galleries.cam_shortlist import CamShortlist
from cimtool.galleries.few_bits import Examples, FewBitShortlist
from cimtool.hardware.cam import Cam
from cimtool.hardware.configuration import Configuration
from cimtool.ir.program import Graph, Program, features_of
from cimtool.passes.converters import FIT_ROWS
from cimtool.passes.gallery import ShortlistBits, distance_graph, fit_gallery, program_gallery
from cimtool.passes.product_bits import ProductExamples
from cimtool.reference.bootstrap import counted_share
from cimtool.simulation.simulator import Features, Simulator

Maker = Callable[[Mapping[str, Array]], Graph]
"""Makes the graph that holds items, from their features."""


class GalleryJob:
    """A gallery to put into a bundle: `video` are its features, `queries` the bundle's kept ones.

    `digital` runs the compiled program with its digital score. Fits use `rows` of the kept queries,
    or of those `kept` in their place.
    """

    def __init__(
        self,
        compiled: Bundle,
        video: Features,
        digital: Simulator,
        rows: slice | BoolArray = slice(None),
        kept: Mapping[str, Array] | None = None,
    ):
        self.compiled, self.video, self.digital = compiled, video, digital
        program, every = digital.program, compiled.queries if kept is None else kept
        kept = {name: value[rows] for name, value in every.items()}
        self.queries = features_of(program.text, kept)
        self.right = features_of(program.video, kept)

    def maker(self, bits: ShortlistBits | None) -> Maker:
        """The maker for the whole score, for `mu` of a shortlist, or for few `bits` of `mu`."""
        settings = self.compiled.settings
        if bits is not None:
            return partial(self.few_bits.graph, bits)
        if settings.score_mapping == "hybrid":
            distances = distance_graph(self.digital.program.score)
            return lambda items: program_gallery(distances, items, settings)
        return self.whole

    def whole(self, items: Mapping[str, Array]) -> Graph:
        """The whole score of items; products have the bits that settings give."""
        score, settings = self.digital.program.score, self.compiled.settings
        examples = ProductExamples(self.queries, self.right or self.video)
        return program_gallery(score, items, settings, examples)

    @cached_property
    def few_bits(self) -> FewBitShortlist:
        """The maker for items in few bits; its ranges are chosen on the kept queries."""
        return FewBitShortlist(*self._distances, self.compiled.settings)

    def in_cam(self, cam: Cam, bits: int) -> Maker:
        """The maker for items in a CAM, fitted on the kept queries."""
        return CamShortlist(*self._distances, cam, bits).graph

    @property
    def _distances(self) -> tuple[Graph, Examples]:
        """The part of the score that a shortlist estimates, and the rows that it is fitted on."""
        examples = Examples(self.queries["mu"], (self.right or self.video)["mu"])
        return distance_graph(self.digital.program.score), examples

    def fitted_maker(self, bits: ShortlistBits) -> Maker:
        """The maker for items in few bits, with converters fitted."""
        make = self.maker(bits)
        return lambda items: self.fitted(make, make(items))

    def fitted(self, make: Maker, tiled: Graph) -> Graph:
        """A graph of items with its converters fitted."""
        few, right = (
            {name: value[:FIT_ROWS] for name, value in features.items()}
            for features in (self.queries, self.right)
        )
        return fit_gallery(
            tiled, few, make(right) if right else None, self.compiled.target.settable
        )

    def program_with(self, graph: Graph) -> Program:
        """The bundle's program with a graph that holds the items."""
        return replace(self.digital.program, **{graph.name: graph})

    def cost(self, graph: Graph, shortlist: int | None = None, cam: Cam | None = None) -> Estimate:
        """The cost of a query against the items of a graph."""
        compiled = self.compiled
        build = Configuration(compiled.target, compiled.settings)
        query = ScoredQuery(compiled.model.dimension, 1, shortlist=shortlist, cam=cam)
        return estimate(self.program_with(graph), build, query)

    @cached_property
    def halves(self) -> tuple[tuple[GalleryJob, GalleryJob], tuple[GalleryJob, GalleryJob]]:
        """Two pairs of jobs: the first job fits on half of the kept rows, the second asks the rest.

        So nothing is tried on queries that it was fitted on. Rows of one item, such as the captions
        of an image, are in the same half. The first pair asks the rows of the items 0, 2, .. in the
        order of their first rows. Raises CimError if all rows have one item.
        """
        known = (self.right or self.queries)["mu"]
        _, first, group = np.unique(known, axis=0, return_index=True, return_inverse=True)
        if len(first) < 2:
            raise CimError(
                f"{self.compiled.name}: its {len(known)} kept calibration rows are all of one "
                "item, so none are left to check with; expected rows of at least 2 items"
            )
        odd_rows = first.argsort().argsort()[group.reshape(-1)] % 2 == 1
        even, odd = (
            GalleryJob(self.compiled, self.video, self.digital, rows)
            for rows in (~odd_rows, odd_rows)
        )
        return (odd, even), (even, odd)


NOWHERE = 1 << 62
"""The place of an item that does not exist."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places of items in the order of a shortlist, for n queries.

    `best` [n, k] are the places of a query's best items. `right` [n] is the place that its right
    item would have if it were stored too. `better` [n] is the place of the first item that scores
    above the right item, NOWHERE if there is none. Both are None if right items are not known.
    """

    best: IntArray
    right: IntArray | None = None
    better: IntArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[Places]) -> Places:
        """The places for all queries of several parts, in order."""
        best = np.concatenate([one.best for one in parts])
        right = [one.right for one in parts if one.right is not None]
        better = [one.better for one in parts if one.better is not None]
        return cls(best, np.concatenate(right), np.concatenate(better)) if right else cls(best)

    def found(self, length: int) -> Change | None:
        """R@1: the share of queries that find their right item, with its interval."""
        if self.right is None or self.better is None:
            return None
        # The right item, added to the list, moves items that are not nearer back by one place.
        first = (self.right < length) & (self.better + (self.right <= self.better) >= length)
        return counted_share(int(first.sum()), len(first))


def places_of(distances: IntArray, best: IntArray) -> IntArray:
    """The places [n, k] of items `best` [n, k] among all, by distance, then by row."""
    found = np.empty(best.shape, np.int64)
    for k in range(best.shape[1]):
        own = np.take_along_axis(distances, best[:, k : k + 1], axis=1)
        rows = np.arange(distances.shape[1])
        before = (distances < own) | ((distances == own) & (rows < best[:, k : k + 1]))
        found[:, k] = before.sum(axis=1)
    return found


@dataclass(frozen=True)
class Recall:
    """The share of queries whose best item a shortlist holds, and the share of their best ten.

    `found` is R@1, the share of queries that find their right item; None if it is not known.
    """

    best: Change
    best_ten: float
    found: Change | None

    @classmethod
    def of(cls, places: Places, length: int) -> Recall:
        """The recall of a list of `length` items, from the places of items."""
        held = places.best < length
        best = counted_share(int(held[:, 0].sum()), len(held))
        return cls(best, float(held.mean()), places.found(length))


class ShortlistTrials:
    """Trials of shortlists: each half of the queries is tried with a fit on the other half.

    With `right`, the right items of queries are stored too if the bundle keeps them; each counts
    only for its own query.
    """

    def __init__(self, whole: GalleryJob, right: bool = True):
        self.pairs, self._whole = whole.halves, whole
        asking = [ask for _, ask in self.pairs]
        self._exact = [ask.digital.score(ask.queries, whole.video) for ask in asking]
        self._best = [best_items(one) for one in self._exact]
        self._right = [
            ask.digital.score(ask.queries, ask.right).diagonal() if right and ask.right else None
            for ask in asking
        ]

    def places(self, making: Callable[[GalleryJob], Maker]) -> tuple[Places, Places]:
        """The places of items for the queries of each half; `making` gives a job's maker."""
        return self._places(making, 0), self._places(making, 1)

    def _places(self, making: Callable[[GalleryJob], Maker], half: int) -> Places:
        (fit, ask), stored = self.pairs[half], self._whole.video
        if self._right[half] is not None:
            stored = {k: np.concatenate([v, ask.right[k]]) for k, v in stored.items()}
        programmed = Simulator(self._whole.program_with(making(fit)(stored)))
        found = programmed.iter_distances(ask.queries)
        return Places.joined([self._among(half, rows, ed) for rows, ed in found])

    def _among(self, half: int, rows: slice, ed: IntArray) -> Places:
        """The places of items for some queries, from the distances to all stored items."""
        exact, right = self._exact[half][rows], self._right[half]
        items = exact.shape[1]
        near = places_of(ed[:, :items], self._best[half][rows])
        if right is None:
            return Places(near)
        own = np.take_along_axis(ed, items + np.arange(rows.start, rows.stop)[:, None], axis=1)
        better = exact > right[rows, None]
        first = np.where(better, ed[:, :items], np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        return Places(
            near,
            (ed[:, :items] <= own).sum(axis=1),
            np.where(better.any(axis=1), (ed[:, :items] < first).sum(axis=1), NOWHERE),
        )
