"""The search for the cheapest shortlist that holds the best item for a given share of queries.

It must reach this recall on both halves of the kept queries; each is tried with a fit on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.intervals import Change
from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.memory_use import MemoryUse, memory_use
from cimtool.costs.totals import Quantity
from cimtool.galleries.few_bits import ItemCodes
from cimtool.galleries.gallery_job import NOWHERE, GalleryJob, Places, Recall, ShortlistTrials
from cimtool.galleries.options import Minimised, ProgramOptions
from cimtool.passes.gallery import PRODUCT_LAYER, ShortlistBits
from cimtool.report import svg
from cimtool.report.charts import Points, curves

MOST_BITS = 8
"""Bits at most that an item stores of a value for a shortlist."""

QUERY_BITS = (6, 4, 3, 2)
"""Bits of a query that a search tries, beside the bits of features."""

HALVINGS, LEAST_DIMENSIONS = 4, 8
"""Halvings of the dimensions of `mu` by a search, and the fewest dimensions that it tries."""

LENGTHS = (1, 10, 50)
"""Lengths of shortlists in the picture, beside the chosen length: it has four kinds of marks."""

HEIGHT = 330.0
"""Height of each picture in the file, in units."""


def no_shortlist(bundle: Bundle, argument: str, value: object) -> ArgumentError:
    """The error for an argument of shortlists if the bundle has no shortlist."""
    return ArgumentError(
        "{} is {}; {} was compiled with score_mapping = in-memory, which draws up no shortlist "
        "(compile with {score_mapping} hybrid)",
        Argument(argument),
        value,
        bundle.name,
    )


def bits_asked(bundle: Bundle, options: ProgramOptions) -> ShortlistBits | None:
    """The bits that the options give for a shortlist; None if they give no bits of items.

    Raises ArgumentError for options that do not fit the bundle or each other.
    """
    item_bits, query_bits = options.shortlist_bits, options.query_bits
    recall, minimise = options.recall, options.minimise
    asked = ("shortlist_bits", "query_bits", "shortlist_dimensions", "recall")
    given = {name: getattr(options, name) for name in asked}
    named = [name for name, value in given.items() if value is not None]
    if named and bundle.settings.score_mapping != "hybrid":
        raise no_shortlist(bundle, named[0], given[named[0]])
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
            "{recall} is {}; the {} calibration queries of {} are too few to check it on both "
            "halves of them: expected at least {}, or a lower share",
            recall,
            len(bundle.queries["text.mu"]),
            bundle.name,
            2 * least_queries(recall),
        )
    if item_bits is None:
        return None
    return ShortlistBits(item_bits, query_bits or features, options.shortlist_dimensions)


@dataclass(frozen=True, kw_only=True)
class ShortlistOption:
    """One setting of a shortlist, with its costs and its recall.

    `cells` and `conversions` are per item; energy in pJ and latency in ns are per query, including
    exact scores. `halves` is the recall on each half of the queries, `recall` on all.
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
        """The cost to minimise, then the costs that break ties."""
        energy = np.inf if self.energy_pj.value is None else self.energy_pj.value
        both = {
            "cells": (self.cells, self.conversions),
            "conversions": (self.conversions, self.cells),
        }
        return (*both.get(minimise, (energy, self.cells)), self.length)

    def no_worse(self, other: ShortlistOption) -> bool:
        """True if it has at most the cells, conversions and length of `other`."""
        mine, others = ((one.cells, one.conversions, one.length) for one in (self, other))
        return all(a <= b for a, b in zip(mine, others, strict=True))


@dataclass(frozen=True, kw_only=True)
class ShortlistSearch:
    """The settings that reach a recall on both halves of the queries, and the cheapest of them.

    `queries` are the numbers of queries in each half; `digital` is R@1 of the exact scores of all
    items, on all queries. `trials` are all shortlists tried, with lists of at most `most` items.
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
        """The Pareto front in cells, conversions and length, ordered by cells."""
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
    """A shortlist with these bits; `places` has the places of items for each half of the queries.

    `estimate` gives the costs for a length of the list.
    """

    bits: ShortlistBits
    places: tuple[Places, Places]
    use: MemoryUse
    estimate: Callable[[int], Estimate]

    @property
    def cells(self) -> int:
        """Cells of an item."""
        return self.use.cells // self.use.items

    def length(self, recall: float, most: int) -> int | None:
        """The shortest list that reaches a recall on both halves; None above `most` items.

        A list that reaches it on one half only may be luck, and choosing the cheapest of many
        settings favours lucky ones.
        """
        lengths = [length_for(half.best[:, 0], recall) for half in self.places]
        known = [one for one in lengths if one is not None and one <= most]
        return max(known) if len(known) == len(lengths) else None

    def option(self, length: int) -> ShortlistOption:
        """The setting with lists of `length` items, its costs and its recall."""
        query = self.estimate(length).score
        assert query is not None
        first, other = (Recall.of(half, length) for half in self.places)
        return ShortlistOption(
            bits=self.bits,
            length=length,
            cells=self.cells,
            conversions=query.conversions / self.use.items,
            energy_pj=query.energy_pj,
            latency_ns=query.latency_ns,
            items_per_chip=self.use.items_per_chip,
            halves=(first, other),
            recall=Recall.of(Places.joined(self.places), length),
        )


def length_for(places: IntArray, recall: float) -> int | None:
    """The shortest list that should hold the next query's best item, from the places [n] so far.

    By the rule of succession, m of n queries may miss if (m + 1) / (n + 2) <= 1 - recall. None if n
    is too small for any list.
    """
    held = least_held(len(places), recall)
    return None if held > len(places) else int(np.sort(places)[held - 1]) + 1


def least_held(queries: int, recall: float) -> int:
    """The number of `queries` whose best item must be held, by the rule of `length_for`.

    It exceeds `queries` if these are too few.
    """
    return queries + 1 - int((1 - recall) * (queries + 2) + 1e-9)


def least_queries(recall: float) -> int:
    """The fewest queries on which a recall can be shown."""
    return int(np.ceil(1 / (1 - recall) - 1e-9)) - 2


def shortlist_search(
    job: GalleryJob, options: ProgramOptions, most: int, say: Say
) -> ShortlistSearch:
    """The cheapest bits, dimensions and length, at most `most`, that reach a recall.

    A setting is not tried if a setting with more bits misses the recall; it counts as done.
    """
    compiled, trials, recall = job.compiled, ShortlistTrials(job), options.recall
    assert recall is not None
    fits = [fit for fit, _ in trials.pairs]

    def trial(bits: ShortlistBits) -> TriedShortlist:
        graph = fits[0].maker(bits)(job.video)
        cost, use = job.cost(graph), memory_use(graph, compiled.settings, compiled.target)
        places = trials.places(lambda fit: fit.fitted_maker(bits))
        return TriedShortlist(bits, places, use, lambda length: replace(cost, shortlist=length))

    most_dimensions = min(int(fit.few_bits.principal.most) for fit in fits)
    open_dimensions, items, queries = _candidates(job, options, most_dimensions)
    total = len(open_dimensions) * len(items) * len(queries)
    found: list[TriedShortlist] = []
    countdown = Countdown(say)
    for d, dimensions in enumerate(open_dimensions):
        for i, item in enumerate(items):
            tried = list[TriedShortlist]()
            for q, query in enumerate(queries, 1):
                bits = ShortlistBits(item, query, dimensions)
                tried.append(trial(bits))
                done = (d * len(items) + i) * len(queries) + q
                countdown.tell(PartDone(f"tried {bits}: {done} of {total}"), done, total)
                if tried[-1].length(recall, most) is None:
                    break  # fewer bits of a query hold less
            found += tried
            if tried[0].length(recall, most) is None:
                break  # fewer bits of items hold less
    return searched(found, recall, most, options.minimise or "cells")


def _candidates(
    job: GalleryJob, options: ProgramOptions, most_dimensions: int
) -> tuple[list[int | None], list[int], list[int]]:
    """Candidates for dimensions, bits of items and bits of queries, the largest first.

    Dimensions are all of `mu`, then halved repeatedly. If several bits of items take the same
    number of cells, only the most bits are tried.
    """
    own, whole = job.compiled.settings.of_layer(PRODUCT_LAYER), len(job.few_bits.of_item)
    halves = (whole >> halved for halved in range(1, HALVINGS + 1))
    dimensions = [None, *(one for one in halves if LEAST_DIMENSIONS <= one <= most_dimensions)]
    by_cells = {}
    for bits in range(1, MOST_BITS + 1):
        held = ItemCodes(bits, 1.0, own.weight_code.paired).weight_bits
        by_cells[own.with_weights(held).cells_per_weight] = bits
    features = job.few_bits.query.bits
    asked = options.shortlist_dimensions, options.shortlist_bits, options.query_bits
    return (
        dimensions if asked[0] is None else [asked[0]],
        [*reversed(by_cells.values())] if asked[1] is None else [asked[1]],
        [features, *(b for b in QUERY_BITS if b < features)] if asked[2] is None else [asked[2]],
    )


def searched(
    trials: Sequence[TriedShortlist], recall: float, most: int, minimise: Minimised
) -> ShortlistSearch:
    """The cheapest trial that reaches a recall on both halves with at most `most` items in a list.

    Raises CimError if none does, or if the queries are too few to show it.
    """
    options = [
        trial.option(length)
        for trial in trials
        if (length := trial.length(recall, most)) is not None
    ]
    sizes = len(trials[0].places[0].best), len(trials[0].places[1].best)
    if not options:
        held = max(
            ([int((half.best[:, 0] < most).sum()) for half in trial.places] for trial in trials),
            key=lambda counts: min(np.divide(counts, sizes)),
        )
        shares = (f"{one} of {count}" for one, count in zip(held, sizes, strict=True))
        needed = (f"{least_held(count, recall)}" for count in sizes)
        raise CimError(
            f"recall: no setting reaches {recall:g} on both halves of the calibration queries with "
            f"shortlists of {most} items; the best one finds the best item of "
            f"{' and '.join(shares)}, but {' and '.join(needed)} are needed; expected a longer "
            "shortlist, or a lower share"
        )
    chosen = min(options, key=lambda one: one.costs(minimise))
    digital = Places.joined(trials[0].places).found(NOWHERE)
    return ShortlistSearch(
        recall=recall,
        minimised=minimise,
        options=tuple(options),
        chosen=chosen,
        queries=sizes,
        digital=digital,
        most=most,
        trials=tuple(trials),
    )


def search_svg(search: ShortlistSearch, title: str) -> str:
    """The recall of shortlists of some lengths against the cells per item, as SVG.

    Two pictures: the share of queries whose best item is held, and the held share of their best
    ten. Each point is a setting with more recall than all settings with fewer cells.
    """
    taken = search.chosen
    said = f"taken: {taken.bits}; a shortlist of {taken.length}, {taken.cells:,} cells per item"
    asked = f"shares of the {sum(search.queries)} calibration queries"
    lengths = sorted({taken.length, *(one for one in LENGTHS if one <= search.most)})
    pictures = [
        curves(
            [Points(f"L = {length}", list(_front(search, length, ten))) for length in lengths],
            "cells per item",
            name,
            f"{name} against cells per item",
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
    """Cells and recall of each trial with more recall than all trials with fewer cells."""
    best = -1.0
    found = [(one.cells, Recall.of(Places.joined(one.places), length)) for one in search.trials]
    values = ((cells, one.best_ten if ten else one.best.value) for cells, one in found)
    for cells, value in sorted(values, key=lambda pair: (pair[0], -pair[1])):
        if value > best:
            best = value
            yield cells, value
