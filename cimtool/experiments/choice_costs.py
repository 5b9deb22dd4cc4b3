"""The costs of any choice of bits: those of layers, and those of features in a gallery.

A query against a large gallery reads all of its features, so their bits decide its energy. The
score is compiled once for each pair of bits of `mu` and of the variance, because formats are chosen
with the program; layers are only placed and priced with other bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.intervals import Change
from cimtool.costs.estimate import Estimate
from cimtool.costs.price_errors import EnergyByPrice, ratio
from cimtool.costs.totals import Quantity
from cimtool.experiments.objectives import COSTS, CostName, CostObjective
from cimtool.experiments.widths import (
    FEATURES,
    LOWEST_BITS,
    MU,
    VARIANCE,
    BitAssignment,
    LayerCosts,
    Width,
    of_features,
    of_layers,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import LEFT_OUT
from cimtool.passes.gallery import SHORTLIST

PRICED: tuple[CostName, ...] = ("query_energy", "encoding_energy", "latency")
"""Costs that prices make; the others are counts."""

BitsKey = tuple[tuple[Width, int], ...]

WORTHWHILE = 0.001
"""A width that can save less than this share errs for nothing, and keeps its bits."""


@dataclass(frozen=True)
class PricedChange:
    """A cost that prices make, with highest bits and with chosen ones, and their ratio.

    `times_first` is the ratio to the highest bits of the first start.
    """

    before: Quantity
    after: Quantity
    times: Change
    times_first: Change


@dataclass(frozen=True, eq=False)
class ChoiceCosts:
    """Costs of bits, and their prices by an `objective`.

    `estimated` gives the cost of a compiled configuration, for features of other bits and for
    products that are left out. Features stay with a gallery in the arrays, whose products have bits
    of their own.
    """

    layers: LayerCosts
    objective: CostObjective
    estimated: Callable[[Configuration], Estimate]
    _estimates: dict[BitsKey, Estimate] = field(default_factory=dict)
    _known: dict[BitsKey, dict[CostName, float]] = field(default_factory=dict)

    @property
    def start(self) -> Configuration:
        """The configuration of the highest bits."""
        return self.layers.start

    @cached_property
    def bits(self) -> BitAssignment:
        """The highest bits of all widths."""
        settings = self.start.settings
        if settings.score_mapping == "in-memory":
            return self.layers.bits
        features = {MU: settings.stored_bits("mu"), VARIANCE: settings.stored_bits("s")}
        return {**self.layers.bits, **features}

    def below(self, width: Width, bits: int) -> tuple[int, ...]:
        """The bits that a width can be lowered to, most first."""
        if width in FEATURES:
            return tuple(range(bits - 1, LOWEST_BITS - 1, -1))
        return self.layers.below(width, bits)

    @property
    def least(self) -> tuple[float, ...]:
        """The prices of the fewest bits; NaN if these have none."""
        lowest = {w: (bits, *self.below(w, bits))[-1] for w, bits in self.bits.items()}
        return self.prices(lowest)

    def worthwhile(self, width: Width) -> bool:
        """True if fewer bits of a width can save WORTHWHILE of a price, or more."""
        before = self.prices(self.bits)
        for bits in reversed(self.below(width, self.bits[width])):
            after = self.prices({**self.bits, width: bits})
            if any(a <= b * (1 - WORTHWHILE) for a, b in zip(after, before, strict=True)):
                return True
        return False

    def configured(self, bits: BitAssignment) -> Configuration:
        """The configuration with these bits."""
        own = self.layers.configured(of_layers(bits))
        return replace(own, settings=own.settings.model_copy(update=of_features(bits)))

    def prices(self, bits: BitAssignment) -> tuple[float, ...]:
        """The prices that the objective lowers, the first of them first."""
        return self.objective.prices(self._costs(bits, self.objective.needed))

    def cost(self, bits: BitAssignment) -> dict[CostName, float]:
        """All costs; NaN for energies and a latency of which a part has no figure."""
        return {name: self._costs(bits, COSTS)[name] for name in COSTS}

    def changes(self, chosen: BitAssignment, first: ChoiceCosts) -> dict[CostName, PricedChange]:
        """Energies and the latency of the highest bits and of `chosen` ones, if they are known."""
        places = (self, self.bits), (self, chosen), (first, first.bits)
        made: dict[CostName, PricedChange] = {}
        for name in PRICED:
            if any(math.isnan(of.cost(bits)[name]) for of, bits in places):
                continue
            estimates = [of._estimate(bits) for of, bits in places]
            before, after, _ = (_quantity(one, name) for one in estimates)
            highest, parts, of_first = (_by_price(one, name) for one in estimates)
            made[name] = PricedChange(before, after, ratio(parts, highest), ratio(parts, of_first))
        return made

    def _costs(self, bits: BitAssignment, names: Collection[CostName]) -> dict[CostName, float]:
        """Some costs at least: schedules take most of the time, and counts need none."""
        known = self._known.setdefault(tuple(sorted(bits.items())), {})
        lacking = [name for name in names if name not in known]
        if lacking:
            try:
                found = self._estimate(bits)
            except CimError:  # integers that no accumulator holds
                known.update(dict.fromkeys(COSTS, math.nan))
            else:
                known.update({name: _cost(found, name) for name in lacking})
        return known

    @property
    def basis(self) -> str:
        """The origin of energies; only those of the same basis are compared."""
        found = self._estimate(self.bits)
        return "; ".join(dict.fromkeys((found.text.basis, found.video.basis)))

    def check(self) -> None:
        """Raise CimError if no bits can be lowered, or the target gives no such cost."""
        if not self.layers.layers:
            raise CimError("the projectors have no layer, so there are no bits to tune")
        if self.layers.bits.keys() <= set(self.layers.kept):
            raise CimError(
                "all layers keep trained integers, so there are no bits to tune; expected a model "
                "of real numbers"
            )
        costs = self.cost(self.bits)
        for name in self.objective.weights:
            lacks = f"gives no {name.replace('_', ' ')}"
            if math.isnan(costs[name]) or not costs[name]:
                raise ArgumentError(
                    "{objective} {}: target {} {}; expected {objective} arrays",
                    name,
                    self.start.target.name,
                    "converts nothing" if name == "conversions" else lacks,
                )

    def _estimate(self, bits: BitAssignment) -> Estimate:
        """The estimate of a query with these bits; what is not stored has no digital work."""
        compiled = {
            width: own for width, own in bits.items() if width in FEATURES or own == LEFT_OUT
        }
        key = tuple(compiled.items())
        if key not in self._estimates:
            own = self.configured({**self.layers.bits, **compiled})
            self._estimates[key] = self.estimated(own)
        found = self._estimates[key]
        shortlist = (place for place in found.placements if place.graph == SHORTLIST)
        places = (*self.layers.places(of_layers(bits)), *shortlist)
        return found.placed(places, self.configured(bits).settings)


def _cost(found: Estimate, name: CostName) -> float:
    """One cost of an estimate with a gallery; NaN for an energy or a time without a figure."""
    if name == "arrays":
        return found.floorplan.arrays
    if name == "conversions":
        return found.conversions
    total = _quantity(found, name)
    return math.nan if total.value is None or total.lower_bound else total.value


def _quantity(found: Estimate, name: CostName) -> Quantity:
    """An energy or the latency of an estimate with a gallery."""
    if name == "encoding_energy":
        return (found.text + found.video).energy_pj
    query = found.query
    assert query is not None
    return query.energy_pj if name == "query_energy" else query.latency_ns


def _by_price(found: Estimate, name: CostName) -> EnergyByPrice:
    """The parts of a cost by their price; the times of a schedule move together."""
    query = found.query
    assert query is not None
    if name == "latency":
        return {name: query.latency_ns.ends}
    cost = query if name == "query_energy" else found.text + found.video
    return cost.energy_by_price
