"""Ways to answer a query by a gallery in the arrays, and the costs of each on the target.

Items are programmed into the arrays, then the same items twice. Both galleries have the same bits,
so they give the costs of any size (`costs/wider_gallery.py`). The items are those of calibration if
the bundle keeps them, else stand-ins with the bits of the compiled features: what a query takes
depends on bits and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.bundle.bundle import QUERIES, Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.memory_use import MemoryUse, memory_use
from cimtool.costs.schedule_batch import Walked, batch_of, waves_of
from cimtool.costs.scored_pairs import ScoredPairs
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import ENOUGH, GalleryWay, WayKind, WayOfSize
from cimtool.costs.wider_gallery import GalleryPair, WiderGallery
from cimtool.galleries.gallery_job import GalleryJob, Maker, places_of
from cimtool.ir.program import Program
from cimtool.passes.gallery import (
    DEFAULT_SHORTLIST,
    ShortlistBits,
    distance_graph,
    program_gallery,
)
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.list_share import ListShare
from cimtool.simulation.simulator import Simulator

FEW_BITS = (2, 4)
"""Bits of items and of queries for the shortlist of few bits."""

MOST_ITEMS = 128
"""Items that are programmed at most to find the costs of more."""

SHARE = 8
"""Features are also reduced to d / SHARE dimensions, if calibration rows differ in that many."""

SPREAD = 16
"""The range of a feature in standard deviations of its stand-ins."""


@dataclass(frozen=True, eq=False)
class ArrayAccuracy:
    """Accuracy of a way among `items` at hand: R@1 of texts, with a list that of a `gallery`.

    `gain` is its R@1 above that of raw rows, None for rows of two widths.
    `places` [n] are those of the texts' best items in the order of a shortlist, None without one.
    """

    items: int
    gallery: int
    r1: Change | None
    gain: Change | None
    places: IntArray | None = None

    def of(self, way: GalleryWay, length: int | None) -> GalleryWay:
        """The way with its accuracy; its list of `length` items has the same share of those here.

        R@1 after a list is known for the gallery alone, what the list holds for any.
        """
        if self.places is None or length is None:
            return replace(way, r1=self.r1, gain=self.gain, measured_of=self.items)
        share, count = ListShare(min(length, way.items), way.items, self.items), len(self.places)
        enough = int(np.sort(self.places)[math.ceil(ENOUGH * count) - 1]) + 1
        way = replace(way, measured_of=self.items, enough_list=share.length_for(enough))
        if not share.measured:
            return replace(way, unmeasured=share.unmeasured)
        held = counted_share(int((self.places < share.measured).sum()), count)
        way = replace(way, recall=held, measured_list=share.measured)
        return replace(way, r1=self.r1, gain=self.gain) if way.items == self.gallery else way


@dataclass(frozen=True, eq=False)
class ArrayWay:
    """A way whose products are in arrays that hold a gallery.

    `pair` has the costs with two galleries. If it draws up a shortlist of `length` items, `exact`
    is the cost of their digital scores by the size of the gallery. `accuracy` is None unless it is
    measured.
    """

    kind: WayKind
    note: str
    pair: GalleryPair
    use: MemoryUse
    exact: Callable[[int], Walked]
    length: int | None = None
    accuracy: ArrayAccuracy | None = None

    def name(self, items: int) -> str:
        """The name in tables."""
        return _named(None if self.length is None else min(self.length, items))

    def at(self, items: int) -> GalleryWay:
        """The way for a number of items."""
        wide = self.pair.at(items)
        walks = self._walks(wide, items)
        makespan = self._makespan(wide, walks) if wide.periodic and wide.batch > 1 else None
        query, time = batch_of(walks, wide.batch, makespan)
        loaded = "" if wide.floorplan.resident else "loaded for each query"
        if loaded and wide.batch > 1:
            loaded = "loaded for each batch"
        way = GalleryWay(
            self.kind, self.name(items), items, energy_pj=query.energy_pj,
            by_price=query.energy_by_price, latency_ns=time, batch=wide.batch,
            chips=wide.floorplan.chips,
            arrays=sum(one.arrays_for(items) for one in self.use.matrices),
            cells=self.use.cells // self.use.items, conversions=walks[1].cost.conversions,
            note="; ".join(filter(None, (self.note, loaded))), loads=bool(loaded),
            length=None if self.length is None else min(self.length, items),
        )  # fmt: skip
        return way if self.accuracy is None else self.accuracy.of(way, self.length)

    def _walks(self, wide: WiderGallery, items: int) -> list[Walked]:
        """The walks of a query: a text, the products with all items, and a shortlist's scores."""
        walks = [wide.walked(wide.program.text), wide.walked(self.pair.graph_of(wide))]
        return walks if self.length is None else [*walks, self.exact(items)]

    def _makespan(self, wide: WiderGallery, walks: Sequence[Walked]) -> Quantity:
        """The time of a batch whose items are loaded: all texts, the items, all exact scores."""
        text, products, *exact = walks
        waves = waves_of([products.work], wide.batch)
        missing = products.cost.latency_ns.missing
        time = wide.wave_time(-(-wide.batch // waves), missing).times(waves)
        for one in (text, *exact):
            time += batch_of([one], wide.batch).makespan_ns
        return time


def _named(length: int | None) -> str:
    return "chip, in the memory" if length is None else f"chip, shortlist of {length:,}"


def gallery_ways(
    compiled: Bundle, found: Estimate, pairs: ScoredPairs | None = None
) -> Iterator[WayOfSize]:
    """The ways of a bundle; `found` is its cost with the gallery's size.

    None if `found` has no gallery, and if the bundle holds its gallery already. Accuracy is
    measured on `pairs` if the bundle keeps calibration items, on which converters are fitted.
    """
    if found.gallery is None or compiled.gallery is not None:
        return
    if compiled.program.score.numbers_of_pair > 1:
        error = CimError(
            "an item of several tokens has a column for each; `cimtool cost` of what `cimtool "
            "program` makes counts them"
        )
        yield _refused("in the memory", None, error)
        return
    code = compiled.settings.weight_code
    if not code.holds_digits:
        error = CimError(f'no digits of items lie in cells of encoding "{code.name}"')
        yield _refused("in the memory", None, error)
        yield _refused("shortlist", compiled.settings.shortlist or DEFAULT_SHORTLIST, error)
        return
    kept = QUERIES in compiled.manifest["files"]
    job_of = partial(GalleryJob, compiled, {}, Simulator(compiled.program))
    if kept:
        job = few = job_of(kept=compiled.queries)
        kept = len(job.right.get("mu", ())) >= 2
    if not kept:
        job, few = (job_of(kept=stand_ins(compiled.program, ends)) for ends in (True, False))
    yield from WaysInArrays(job, few, found, pairs if kept else None, kept).ways()


def stand_ins(program: Program, ends: bool) -> dict[str, Array]:
    """Features of MOST_ITEMS texts and items with the bits of a compiled program.

    They are drawn around the middle of each feature's range. With `ends` every row has one number
    at either end of it, so that the values take as many bits as any; codes of few bits would be
    chosen for these alone. Terms of a row alone are at the middle.
    """
    drawn, found = np.random.default_rng(0), {}
    for name, known in program.score.inputs.items():
        low, high = np.asarray(known.lo, np.int64), np.asarray(known.hi, np.int64)
        middle = (low + high) // 2
        if len(known.shape) == 1:
            found[name] = np.full(MOST_ITEMS, middle)
            continue
        normal = drawn.normal(size=(MOST_ITEMS, int(known.shape[1])))
        rows = np.rint(middle + (high - low) * (normal / SPREAD)).astype(np.int64).clip(low, high)
        row = np.arange(MOST_ITEMS if ends else 0)
        for end, at in ((low, row % rows.shape[1]), (high, (row + 1) % rows.shape[1])):
            rows[row, at] = np.broadcast_to(end, rows.shape[1])[at]
        found[name] = rows
    return found


@dataclass(frozen=True, eq=False)
class WaysInArrays:
    """The ways in which arrays hold the items of a `job`; `kept` if these are of calibration.

    Codes of few bits are chosen for the items of `few`, and hold these.
    """

    job: GalleryJob
    few: GalleryJob
    found: Estimate
    pairs: ScoredPairs | None
    kept: bool

    @property
    def length(self) -> int:
        """Items of a shortlist."""
        return self.job.compiled.settings.shortlist or DEFAULT_SHORTLIST

    @cached_property
    def _exact(self) -> Callable[[int], Walked]:
        """The digital scores of a shortlist in a gallery of so many items.

        It depends on how many are scored, and on the memory that holds them all.
        """
        known: dict[tuple[int, bool], Walked] = {}

        def exact(items: int) -> Walked:
            sized, score = self.found.with_gallery(items), self.found.program.score
            key = min(self.length, items), sized.in_buffer(score)
            if key not in known:
                known[key] = sized.walked(score, key[0])
            return known[key]

        return exact

    def ways(self) -> Iterator[WayOfSize]:
        """The whole score in the memory, then shortlists; those of no array with the reason."""
        yield self._sized(self.job, "in the memory", self.job.whole, "the whole score")
        settings, length = self.job.compiled.settings, self.length
        try:
            distances = distance_graph(self.job.compiled.program.score)
        except CimError as error:
            yield _refused("shortlist", length, error)
            return
        few, (item, query) = self.few.few_bits, FEW_BITS
        for dimensions in (None, len(few.of_item) // SHARE if self.kept else 0):
            bits = ShortlistBits(item, min(query, few.query.bits), dimensions)
            if dimensions is None or 0 < dimensions <= few.principal.most:
                yield self._sized(self.few, "shortlist", self.few.maker(bits), str(bits), length)
        whole = partial(program_gallery, distances, settings=settings)
        yield self._sized(self.job, "shortlist", whole, "items of whole mu", length)

    def _sized(
        self, job: GalleryJob, kind: WayKind, make: Maker, note: str, length: int | None = None
    ) -> WayOfSize:
        try:
            return WayOfSize(kind, self._way(job, kind, make, note, length).at)
        except CimError as error:
            return _refused(kind, length, error)

    def _way(
        self, job: GalleryJob, kind: WayKind, make: Maker, note: str, length: int | None
    ) -> ArrayWay:
        """A way with its products in arrays; CimError if no array can hold the items."""
        found = self.found
        once = {name: value[:MOST_ITEMS] for name, value in job.right.items()}
        twice = {name: np.concatenate([value, value]) for name, value in once.items()}
        graphs = [make(held) for held in (once, twice)]
        sized = [replace(found, program=job.program_with(graph)) for graph in graphs]
        use = memory_use(graphs[1], job.compiled.settings, job.compiled.target)
        return ArrayWay(
            kind=kind,
            note=note if self.kept else f"{note}; estimated from the bits of features",
            pair=GalleryPair(sized[0], sized[1], graphs[0].name),
            use=use,
            exact=self._exact,
            length=length,
            accuracy=None if self.pairs is None else self._measured(self.pairs, make, length),
        )

    def _measured(self, pairs: ScoredPairs, make: Maker, length: int | None) -> ArrayAccuracy:
        """Measure on the pairs what a way finds."""
        job, (_, items), gallery = self.job, pairs.scores.shape, self.found.gallery or 0
        graph = job.fitted(make, make(pairs.video))
        programmed = Simulator(job.program_with(graph))
        if length is None:
            return ArrayAccuracy(items, gallery, *pairs.found(programmed.score(pairs.text)))
        listed = ListShare(min(length, gallery), gallery, items).measured
        scores, best = np.array(pairs.scores), pairs.scores.argmax(axis=1)[:, None]
        places = np.empty(len(best), np.int64)
        for rows, distances in programmed.iter_distances(pairs.text):
            places[rows] = places_of(distances, best[rows])[:, 0]
            order = np.argsort(distances, axis=1, kind="stable")
            np.put_along_axis(scores[rows], order[:, listed:], -np.inf, axis=1)
        found = pairs.found(scores) if listed else (None, None)
        return ArrayAccuracy(items, gallery, *found, places)


def _refused(kind: WayKind, length: int | None, error: CimError) -> WayOfSize:
    said = str(error)

    def refused(items: int) -> GalleryWay:
        name = _named(None if length is None else min(length, items))
        return GalleryWay(kind, name, items, refused=said)

    return WayOfSize(kind, refused)
