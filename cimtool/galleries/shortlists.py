"""The search for a shortlist: the fewest bits that hold the best item as often as is asked.

It has to be held on both halves of the kept queries, each tried in what the other was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.memory_use import MemoryUse
from cimtool.costs.totals import Quantity
from cimtool.galleries.options import Minimised, ProgramOptions
from cimtool.passes.gallery import ShortlistBits
from cimtool.reference.bootstrap import Change, counted_share

MOST_BITS = 8
"""Bits that an item may store of a value for a shortlist."""

QUERY_BITS = (6, 4, 3, 2)
"""Bits of a query that a search tries below those of features."""

HALVINGS, LEAST_DIMENSIONS = 4, 8
"""Times that a search halves the dimensions of `mu`, and the fewest that it tries."""


@dataclass(frozen=True)
class ShortlistAsked:
    """The bits that are asked for, and the recall that those left open have to reach."""

    item_bits: int | None
    query_bits: int | None
    dimensions: int | None
    recall: float | None
    minimise: Minimised
    feature_bits: int

    @classmethod
    def of(cls, bundle: Bundle, options: ProgramOptions) -> ShortlistAsked:
        """Check what is asked of a bundle; ArgumentError where it cannot be."""
        item_bits, query_bits = options.shortlist_bits, options.query_bits
        recall, minimise = options.recall, options.minimise
        asked = ("shortlist_bits", "query_bits", "shortlist_dimensions", "recall")
        given = {name: getattr(options, name) for name in asked}
        named = [name for name, value in given.items() if value is not None]
        if named and bundle.settings.score_mapping != "hybrid":
            raise ArgumentError(
                "{} is {}; {} was compiled with score_mapping = in-memory, which draws up no "
                "shortlist (compile with {score_mapping} hybrid)",
                Argument(named[0]),
                given[named[0]],
                bundle.name,
            )
        features = bundle.program.score.inputs["text.mu"].bits
        if item_bits is not None and not 1 <= item_bits <= MOST_BITS:
            raise ArgumentError(
                "{shortlist_bits} is {}; expected 1 to {}, 1 for signs", item_bits, MOST_BITS
            )
        if query_bits is not None and not 2 <= query_bits <= features:
            raise ArgumentError(
                "{query_bits} is {}; expected 2 to {}, the bits of features", query_bits, features
            )
        for name in ("query_bits", "shortlist_dimensions"):
            if given[name] is not None and item_bits is None and recall is None:
                raise ArgumentError(
                    "{} is {}; expected {shortlist_bits} or {recall} with it",
                    Argument(name),
                    given[name],
                )
        if minimise is not None and recall is None:
            raise ArgumentError("{minimise} is {}; expected {recall} with it", minimise)
        if recall is not None and not 0 < recall < 1:
            raise ArgumentError("{recall} is {}; expected a share between 0 and 1", recall)
        if recall is not None and len(bundle.queries["text.mu"]) // 2 < least_queries(recall):
            raise ArgumentError(
                "{recall} is {}; the {} calibration queries of {} are too few, as it has to be "
                "held on both halves of them: expected at least {}, or a lower share",
                recall,
                len(bundle.queries["text.mu"]),
                bundle.name,
                2 * least_queries(recall),
            )
        dimensions = options.shortlist_dimensions
        return cls(item_bits, query_bits, dimensions, recall, minimise or "cells", features)

    @property
    def given(self) -> ShortlistBits | None:
        """The bits where they are given; None where `mu` is stored as it is."""
        if self.item_bits is None:
            return None
        queries = self.query_bits or self.feature_bits
        return ShortlistBits(self.item_bits, queries, self.dimensions)

    def dimensions_among(self, whole: int, most: int) -> list[int | None]:
        """Those that are open, all of `mu` first: halves of the whole, at most `most`."""
        if self.dimensions is not None:
            return [self.dimensions]
        halves = (whole >> halved for halved in range(1, HALVINGS + 1))
        return [None, *(one for one in halves if LEAST_DIMENSIONS <= one <= most)]

    def item_candidates(self, cells: Callable[[int], int]) -> list[int]:
        """The bits of items that are open, most first; of those in as many cells only the most."""
        if self.item_bits is not None:
            return [self.item_bits]
        most = {cells(bits): bits for bits in range(1, MOST_BITS + 1)}
        return list(most.values())[::-1]

    @property
    def query_candidates(self) -> list[int]:
        """The bits of queries that are open, most first."""
        if self.query_bits is not None:
            return [self.query_bits]
        return [self.feature_bits, *(b for b in QUERY_BITS if b < self.feature_bits)]


NOWHERE = 1 << 62
"""The place of what is not there."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places of items in the order of a shortlist, for each of n queries.

    `best` [n, k] are those of its best items; `right` [n] that of its right item, if that were
    stored too, and `better` [n] that of the first item whose score is above the right one's,
    NOWHERE where there is none. None where the right items are not known.
    """

    best: IntArray
    right: IntArray | None
    better: IntArray | None

    @classmethod
    def joined(cls, parts: Sequence[Places]) -> Places:
        """Those of all queries, of those of some after others."""
        best = np.concatenate([one.best for one in parts])
        right = [one.right for one in parts if one.right is not None]
        better = [one.better for one in parts if one.better is not None]
        if not right:
            return cls(best, None, None)
        return cls(best, np.concatenate(right), np.concatenate(better))

    def found(self, length: int) -> Change | None:
        """R@1: the share of queries that find their right item, with its interval."""
        if self.right is None or self.better is None:
            return None
        # The right item takes a place of its own among those that are not nearer.
        first = (self.right < length) & (self.better + (self.right <= self.better) >= length)
        return counted_share(int(first.sum()), len(first))


@dataclass(frozen=True)
class Recall:
    """The share of queries whose best item a shortlist holds, and the share of their best ten.

    `found` is R@1, the share of queries that find their right item; None where it is not known.
    """

    best: Change
    best_ten: float
    found: Change | None

    @classmethod
    def of(cls, places: Places, length: int) -> Recall:
        """From the places that items have, for a list so long."""
        held = places.best < length
        best = counted_share(int(held[:, 0].sum()), len(held))
        return cls(best, float(held.mean()), places.found(length))


@dataclass(frozen=True)
class ShortlistOption:
    """One setting of a shortlist, and what it takes: cells an item, and of a query the rest.

    `conversions` are those an item; energy in pJ and latency in ns are those of the whole query,
    exact scores included. `halves` are the recall on each half of the queries, `recall` on all.
    """

    bits: ShortlistBits
    length: int
    cells: int
    conversions: float
    energy_pj: Quantity
    latency_ns: Quantity
    items_per_chip: int | None
    halves: tuple[Recall, Recall]
    recall: Recall

    def costs(self, minimise: Minimised) -> tuple[float, ...]:
        """The cost that is made least, and those that decide between equals."""
        energy = np.inf if self.energy_pj.value is None else self.energy_pj.value
        both = {
            "cells": (self.cells, self.conversions),
            "conversions": (self.conversions, self.cells),
        }
        return (*both.get(minimise, (energy, self.cells)), self.length)

    def no_worse(self, other: ShortlistOption) -> bool:
        """It takes no more cells, no more conversions, and no longer a list."""
        mine, others = ((one.cells, one.conversions, one.length) for one in (self, other))
        return all(a <= b for a, b in zip(mine, others, strict=True))


@dataclass(frozen=True)
class ShortlistSearch:
    """The settings that hold a recall on both halves of the queries, and the cheapest of them.

    `queries` are the numbers of queries of each half; `digital` is R@1 of the exact scores of all
    items on both. `trials` are all that were tried, with lists of at most `most` items.
    """

    recall: float
    minimised: Minimised
    options: tuple[ShortlistOption, ...]
    chosen: ShortlistOption
    queries: tuple[int, int]
    digital: Change | None
    most: int
    trials: tuple[TriedShortlist, ...]

    @property
    def front(self) -> tuple[ShortlistOption, ...]:
        """The options that no other is better than in all, by cells."""
        kept = [
            one
            for one in self.options
            if not any(other.no_worse(one) and not one.no_worse(other) for other in self.options)
        ]
        return tuple(sorted(kept, key=lambda one: one.costs("cells")))

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "recall": self.recall,
            "minimised": self.minimised,
            "queries": list(self.queries),
            "digital": None if self.digital is None else asdict(self.digital),
            "chosen": asdict(self.chosen),
            "front": [asdict(one) for one in self.front],
        }


@dataclass(frozen=True)
class TriedShortlist:
    """A shortlist of some bits, and its costs: `places` are those of either half of the queries."""

    bits: ShortlistBits
    places: tuple[Places, Places]
    use: MemoryUse
    estimate: Callable[[int], Estimate]

    @property
    def cells(self) -> int:
        """Cells of an item."""
        return self.use.cells // self.use.items

    def length(self, recall: float, most: int) -> int | None:
        """The shortest list that holds a recall on both halves; None above `most` items.

        What holds it on one half alone may be luck of that half, and the cheapest of many settings
        is where luck gathers.
        """
        lengths = [length_for(half.best[:, 0], recall) for half in self.places]
        known = [one for one in lengths if one is not None and one <= most]
        return max(known) if len(known) == len(lengths) else None


def places_of(distances: IntArray, best: IntArray) -> IntArray:
    """The places [n, k] of items `best` [n, k] among all, by distance, of equal ones by row."""
    found = np.empty(best.shape, np.int64)
    for k in range(best.shape[1]):
        own = np.take_along_axis(distances, best[:, k : k + 1], axis=1)
        rows = np.arange(distances.shape[1])
        before = (distances < own) | ((distances == own) & (rows < best[:, k : k + 1]))
        found[:, k] = before.sum(axis=1)
    return found


def length_for(places: IntArray, recall: float) -> int | None:
    """The shortest list that, by these queries' places [n], holds the next one's best item.

    By the rule of succession: of n queries m may miss where (m + 1) / (n + 2) <= 1 - recall. None
    where n is too small for any.
    """
    held = least_held(len(places), recall)
    return None if held > len(places) else int(np.sort(places)[held - 1]) + 1


def least_held(queries: int, recall: float) -> int:
    """The number of queries, of so many, whose best item has to be held; more where none will do.

    By the rule that `length_for` has.
    """
    return queries + 1 - int((1 - recall) * (queries + 2) + 1e-9)


def least_queries(recall: float) -> int:
    """The fewest queries that a recall can be chosen by."""
    return int(np.ceil(1 / (1 - recall) - 1e-9)) - 2


def searched(
    trials: Sequence[TriedShortlist], recall: float, most: int, minimise: Minimised
) -> ShortlistSearch:
    """The cheapest trial that holds a recall on both halves; of lists of at most `most` items.

    Raises CimError where none does, or where the queries are too few to say so.
    """
    options = [one for trial in trials for one in _option(trial, recall, most)]
    sizes = len(trials[0].places[0].best), len(trials[0].places[1].best)
    if not options:
        held = max(
            ([int((half.best[:, 0] < most).sum()) for half in trial.places] for trial in trials),
            key=lambda counts: min(np.divide(counts, sizes)),
        )
        shares = (f"{one} of {count}" for one, count in zip(held, sizes, strict=True))
        needed = (f"{least_held(count, recall)}" for count in sizes)
        raise CimError(
            f"recall: no setting holds {recall:g} on both halves of the calibration queries with "
            f"shortlists of {most} items; the best one holds the best item of "
            f"{' and '.join(shares)}, and {' and '.join(needed)} are needed; expected a longer "
            "shortlist, or a lower share"
        )
    chosen = min(options, key=lambda one: one.costs(minimise))
    digital = Places.joined(trials[0].places).found(NOWHERE)
    return ShortlistSearch(
        recall, minimise, tuple(options), chosen, sizes, digital, most, tuple(trials)
    )


def _option(trial: TriedShortlist, recall: float, most: int) -> Iterator[ShortlistOption]:
    length = trial.length(recall, most)
    if length is None:
        return
    use, query = trial.use, trial.estimate(length).score
    assert query is not None
    first, other = (Recall.of(half, length) for half in trial.places)
    yield ShortlistOption(
        trial.bits,
        length,
        trial.cells,
        query.conversions / use.items,
        query.energy_pj,
        query.latency_ns,
        use.items_per_chip,
        (first, other),
        Recall.of(Places.joined(trial.places), length),
    )
