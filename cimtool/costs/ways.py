"""Ways to answer one query against a gallery, side by side: energy, latency, chips, accuracy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cimtool.base.intervals import Change
from cimtool.base.named import Named
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.price_errors import EnergyByPrice, least_known, ratio
from cimtool.costs.scored_pairs import ScoredPairs
from cimtool.costs.totals import NOTHING, Quantity

WayKind = Literal[
    "raw rows", "CPU core", "GPU", "GPU in batches", "Monte Carlo", "digital", "in the memory",
    "shortlist",
]  # fmt: skip
"""Kinds of ways, in the order of tables: each table has at most one way of a kind."""

KINDS: tuple[WayKind, ...] = get_args(WayKind)

BUILT: tuple[WayKind, ...] = ("digital", "in the memory", "shortlist")
"""Kinds in which the compiled model answers on its target."""

OF_RAW_ROWS: tuple[WayKind, ...] = ("raw rows", "CPU core", "GPU", "GPU in batches")
"""Kinds that rank by raw rows, if these have one width."""

HERE = "here"
"""The place of ways on the bundle's target."""


@dataclass(frozen=True)
class GalleryWay:
    """One way to answer a query against `items`; None: unknown.

    `energy_pj` is of a whole query, its text encoded if the way needs that, as one of `batch`
    queries that are answered at once, in `latency_ns`. `by_price` are its parts by the name of
    their price; ways have prices of the same name in common. `chips` hold the model and the
    gallery; `arrays`, `cells` of an item and `conversions` are the gallery's. `r1` is R@1 of texts,
    `gain` what a way in BUILT finds more than raw rows on the same queries, `recall` the share of
    texts whose best item a shortlist holds, all among `measured_of` items, of a list of
    `measured_list` of them. `enough_list` is the shortest list that would hold ENOUGH. `length` are
    the items of its shortlist. `unmeasured` has the reason that R@1 of a list is not measured,
    `refused` that the way is not possible. `note` describes it. `loads`: the items are loaded into
    arrays for each query, or batch.
    """

    kind: WayKind
    way: str
    items: int
    place: str = HERE
    energy_pj: Quantity = NOTHING
    latency_ns: Quantity = NOTHING
    batch: int = 1
    chips: int | None = None
    arrays: int | None = None
    cells: int | None = None
    conversions: int | None = None
    r1: Change | None = None
    gain: Change | None = None
    recall: Change | None = None
    measured_of: int | None = None
    measured_list: int | None = None
    enough_list: int | None = None
    length: int | None = None
    unmeasured: str = ""
    refused: str = ""
    note: str = ""
    loads: bool = False
    by_price: EnergyByPrice = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """True if it has an energy."""
        return not self.refused and bool(self.energy_pj.value)

    @property
    def is_choice(self) -> bool:
        """True if no later way of its kind is preferred: it is possible, and not measured."""
        return not self.refused and self.recall is None

    @property
    def queries_per_s(self) -> Quantity:
        """Queries a second: batches one after another, nothing of them side by side."""
        time = self.latency_ns
        if not (time.value and time.low and time.high):
            return NOTHING
        rates = (1e9 * self.batch / one for one in (time.value, time.high, time.low))
        value, low, high = rates
        return Quantity(value, time.missing, low, high)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        names = ("energy_pj", "latency_ns", "queries_per_s")
        shares = {name: getattr(self, name) for name in ("r1", "gain", "recall")}
        return (
            vars(self)
            | {name: getattr(self, name).to_json() for name in names}
            | {name: None if one is None else vars(one) for name, one in shares.items()}
            | {"by_price": {name: vars(one) for name, one in self.by_price.items()}}
        )


@dataclass(frozen=True, eq=False)
class WayOfSize:
    """A way of one kind for any number of items."""

    kind: WayKind
    at: Callable[[int], GalleryWay]


class QueryWays(Named):
    """Base of classes that list ways to answer a query."""

    @classmethod
    @abstractmethod
    def of(cls, bundle: Bundle, found: Estimate, pairs: ScoredPairs | None) -> Iterator[WayOfSize]:
        """The ways of a bundle; `found` is its cost with its gallery.

        Their accuracy is measured on `pairs`.
        """


def query_ways(
    bundle: Bundle, found: Estimate, pairs: ScoredPairs | None = None
) -> list[WayOfSize]:
    """The ways of all known kinds of a bundle; `found` is its cost with its gallery."""
    kinds = QueryWays.every().values()
    return [way for kind in kinds for way in kind.of(bundle, found, pairs)]


ENOUGH = 0.99
"""The recall that a shortlist needs to be preferred to others for its energy."""


def one_of_each(ways: Sequence[GalleryWay]) -> list[GalleryWay]:
    """The best way of each kind, in the order of KINDS; a refused one only if there is no other.

    Of shortlists that are known to hold enough it is the one of least energy, else the one that
    holds most; of those that are not measured it is the first.
    """
    found = [[one for one in ways if one.kind == kind] for kind in KINDS]
    return [min(of_kind, key=_rank) for of_kind in found if of_kind]


def _rank(way: GalleryWay) -> tuple[bool, int, float]:
    if way.recall is None:
        return bool(way.refused), 2, 0.0
    if way.recall.value >= ENOUGH:
        return bool(way.refused), 0, way.energy_pj.value or 0.0
    return bool(way.refused), 1, -way.recall.value


def times(one: GalleryWay, other: GalleryWay) -> Change | None:
    """The energy of a way as a multiple of another's, with its ends; None if one is unknown.

    Prices of the same name are off together in both (`price_errors.py`). Parts without a price
    leave an end open.
    """
    if not (one.known and other.known):
        return None
    found = ratio(_by_price(one), _by_price(other))
    low = 0.0 if other.energy_pj.lower_bound else found.low
    high = math.inf if one.energy_pj.lower_bound else found.high
    return Change(found.value, low, high)


def finds_more(one: GalleryWay, other: GalleryWay) -> Change | None:
    """The R@1 of a way in BUILT above that of one of the other side; None if it is not measured.

    Without a comparison on the same queries, the two intervals count as independent.
    """
    if one.r1 is None or other.r1 is None:
        return None
    if one.gain is not None and other.kind in OF_RAW_ROWS:
        return one.gain
    gain = one.r1.value - other.r1.value
    low = math.hypot(one.r1.value - one.r1.low, other.r1.high - other.r1.value)
    high = math.hypot(one.r1.high - one.r1.value, other.r1.value - other.r1.low)
    return Change(gain, gain - low, gain + high)


def least_known_price(one: GalleryWay, other: GalleryWay) -> str:
    """The part of the energies whose price leaves their multiple widest: `arrays`, or a machine."""
    name = least_known(_by_price(one), _by_price(other))
    return "digital operations" if name == "digital" else name


def _by_price(way: GalleryWay) -> EnergyByPrice:
    """The energy by price; all prices of its place are one if they are not told apart."""
    return way.by_price or {way.place: way.energy_pj.ends}


def cheapest(ways: Sequence[GalleryWay]) -> tuple[GalleryWay, ...]:
    """The way of least energy, then by energy all that are not shown to take more than some way.

    None if no energy is known. A way whose energy is a lower bound is never the first, unless no
    other is known.
    """
    known = sorted((one for one in ways if one.known), key=_energy)
    if not known:
        return ()
    first, *others = known
    rest = [one for one in others if not any(dearer(one, other) for other in known)]
    return first, *rest


def _energy(way: GalleryWay) -> tuple[bool, float]:
    """The order of ways by energy, lower bounds last."""
    return way.energy_pj.lower_bound, way.energy_pj.value or 0.0


def dearer(one: GalleryWay, other: GalleryWay) -> bool:
    """True if a way takes more energy than another at all prices."""
    ratio = times(one, other)
    return ratio is not None and ratio.low > 1
