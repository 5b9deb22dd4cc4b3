"""The cost of a bundle, and every way to answer a query beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.files import REPORT_FILES
from cimtool.base.options import EMBEDDINGS, FILE, Topic, option, optional, takes
from cimtool.bundle.bundle import Bundle, BundleLike
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.options import JudgedData
from cimtool.costs.accuracy import WayAccuracy
from cimtool.costs.crossings import SIZES, CheapestFrom, cheapest_by_size
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.machines import MeasuredCore, machine_ways, measured_core
from cimtool.costs.measured_accuracy import accuracy_on, reported_accuracy, scored_pairs
from cimtool.costs.raw_rows import row_width
from cimtool.costs.scored_pairs import ScoredPairs
from cimtool.costs.ways import (
    KINDS,
    GalleryWay,
    WayKind,
    WayOfSize,
    one_of_each,
    query_ways,
)
from cimtool.costs.ways_here import ways_here
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.target import with_digital
from cimtool.loading.embeddings import EmbeddingsLike
from cimtool.reference.larger_gallery import MOST_ITEMS
from cimtool.report.result import Result
from cimtool.verification.references import References


@dataclass(frozen=True, repr=False, kw_only=True)
class BundleCost(Estimate, Result, shown_by="cimtool.costs.render"):
    """The cost of a bundle on its target, and of a query in every way that is known.

    `accuracy` has R@1 of the ways; `pairs` is data on which more is measured. `core` is the speed
    of this machine.
    """

    bundle: Bundle
    accuracy: WayAccuracy | None = None
    pairs: ScoredPairs | None = None
    core: MeasuredCore | None = None

    @cached_property
    def ways_of_size(self) -> tuple[WayOfSize, ...]:
        """Every way for any number of items."""
        if self.gallery is None:
            return ()
        others = (*machine_ways(self, self.core), *query_ways(self.bundle, self, self.pairs))
        return *ways_here(self), *others

    @cached_property
    def all_ways(self) -> tuple[GalleryWay, ...]:
        """Every way for the gallery, with its accuracy."""
        return self._with_accuracy(way.at(self.gallery or 0) for way in self.ways_of_size)

    @cached_property
    def ways(self) -> tuple[GalleryWay, ...]:
        """One way of each kind for the gallery: the rows of the first table."""
        return tuple(one_of_each(self.all_ways))

    def _with_accuracy(self, ways: Iterable[GalleryWay]) -> tuple[GalleryWay, ...]:
        known = self.accuracy
        return tuple(one if known is None else known.of(one) for one in ways)

    def ways_at(self, items: int, kinds: Collection[WayKind] = KINDS) -> tuple[GalleryWay, ...]:
        """One way of each of these kinds for another number of items."""
        found: dict[WayKind, list[GalleryWay]] = {}
        for place, way in enumerate(self.ways_of_size):
            known = found.setdefault(way.kind, [])
            if way.kind not in kinds or any(one.is_choice for one in known):
                continue
            if (place, items) not in self._sized:
                self._sized[place, items] = way.at(items)
            known.append(self._sized[place, items])
        return tuple(one_of_each([one for known in found.values() for one in known]))

    @cached_property
    def _sized(self) -> dict[tuple[int, int], GalleryWay]:
        """The ways by their places and the sizes that were asked for."""
        return {}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes at which all ways are compared: of a batch every second, for the time it takes."""
        return SIZES if self.batch == 1 else SIZES[::2]

    @property
    def loads_of_batches(self) -> bool:
        """True if items are loaded for each batch: one size takes seconds to schedule."""
        return self.batch > 1 and any(one.loads for one in self.all_ways)

    @cached_property
    def cheapest_by_size(self) -> tuple[CheapestFrom, ...]:
        """The cheapest ways by the size of the gallery; empty if they are not searched for."""
        if self.gallery is None or self.bundle.gallery is not None or self.loads_of_batches:
            return ()
        return cheapest_by_size(self.ways_at, self.sizes)


def bundle_cost(
    bundle: Bundle,
    samples: int = References.samples,
    gallery: int | None = None,
    operating_point: str | None = None,
    digital: Path | None = None,
    batch: int = 1,
) -> BundleCost:
    """Estimate the cost of a bundle on its target, as `cost` does, without any accuracy.

    Raises ArgumentError for numbers below 1 or beyond MOST_ITEMS.
    """
    for name, value in (("gallery", gallery), ("samples", samples), ("batch", batch)):
        if value is not None and not 1 <= value <= MOST_ITEMS:
            wanted = "at least 1" if value < 1 else "at most 10^12"
            raise ArgumentError("{} is {}; expected {}", Argument(name), value, wanted)
    held = bundle.gallery
    query = ScoredQuery(
        bundle.model.dimension,
        samples,
        gallery,
        None if held is None else held.shortlist,
        None if held is None else held.cam,
        bundle.model.called,
    )
    target = bundle.target if digital is None else with_digital(bundle.target, digital)
    build = Configuration(target, bundle.settings)
    found = estimate(bundle.program, build, query, operating_point)
    return BundleCost(**{**vars(found), "batch": batch}, bundle=bundle)


class CostOptions(JudgedData):
    """The options of `cost`."""

    bundle: BundleLike = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    gallery: int | None = optional(
        "Items that a query is scored against.", "M", at_least=1, place="gallery"
    )
    samples: int = option(
        "Monte Carlo samples per side.",
        "K",
        at_least=1,
        default=References.samples,
        topic=Topic.MEASUREMENT,
    )
    batch: int = option(
        "Items that go through the chip together.",
        "B",
        at_least=1,
        default=1,
        topic=Topic.MEASUREMENT,
    )
    operating_point: str | None = optional(
        "Operating point [default: the first of the converters' bits, else the first].",
        "NAME",
        topic=Topic.MEASUREMENT,
    )
    digital: Path | str | None = optional(
        "TOML file of the digital unit: its process, width, clock and prices.",
        FILE,
        topic=Topic.MEASUREMENT,
    )
    data: EmbeddingsLike | None = optional(
        "Embeddings to measure R@1 on [default: the bundle's report.json, if any].",
        EMBEDDINGS,
        place="data.measured",
    )
    measure: bool = option(
        "Time raw rows in int8 on one core of this machine.", default=False, topic=Topic.MEASUREMENT
    )


@takes(CostOptions)
def cost(options: CostOptions) -> BundleCost:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    `gallery` adds a query scored against this many items, beside every other way to answer it,
    such as raw rows and Monte Carlo. `batch` items are scheduled together, and share loads. The
    target's figures at the operating point come first, then reference prices. The tables of the
    file `digital` replace the target's `process` and `digital`. R@1 is measured on `data`, else it
    is that of the bundle's `report.json`. Raises CimError for a number below 1 or beyond 10^12, for
    a point that the target does not have, for the report of another bundle, and for `data`, `qrels`
    or `measure` without what they need.
    """
    file = None if options.digital is None else Path(options.digital)
    bundle = open_bundle(options.bundle)
    found = bundle_cost(
        bundle, options.samples, options.gallery, options.operating_point, file, options.batch
    )
    if options.qrels is not None and options.data is None:
        raise ArgumentError(
            "{qrels} is {}; expected {data} with it, which it judges", options.qrels
        )
    if found.gallery is None:
        for name in ("data", "measure"):
            if getattr(options, name):
                raise ArgumentError(
                    "{} is of ways of a query; expected {gallery} with it", Argument(name)
                )
        return found
    found = _with_accuracy(found, options)
    if options.measure:
        width = row_width(found) or max(1, (found.gallery_bytes or 0) // (found.gallery or 1))
        return replace(found, core=measured_core(width, found.gallery or 1))
    return found


def _with_accuracy(found: BundleCost, options: CostOptions) -> BundleCost:
    """The same with R@1, if data are given or the bundle has a report."""
    bundle = found.bundle
    if options.data is None and not (bundle.folder / REPORT_FILES[0]).is_file():
        return found
    if options.data is None:
        return replace(found, accuracy=reported_accuracy(bundle, options.samples))
    pairs = scored_pairs(bundle, options.data, options.qrels)
    return replace(found, accuracy=accuracy_on(pairs), pairs=pairs)
