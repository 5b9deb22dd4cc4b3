"""Totals of a cost: sums with their intervals; some parts may be unknown.

A total without a part is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cimtool.base.intervals import Change
from cimtool.costs.operations import Operations
from cimtool.report.formats import NOT_GIVEN, Units, coverage, digits, digits_apart, scaled, unit_of
from cimtool.report.table import Cell, Content

WELL_COVERED = 0.95
"""Below this coverage, a headline states the coverage on the same line."""


@dataclass(frozen=True)
class Quantity:
    """A sum of known parts: `value` (None: nothing is known) and the names of those `missing`.

    `low` and `high` sum the ends of all parts; their default is the value. `own` is the amount of
    the value that the target's own figures give.
    """

    value: float | None
    missing: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    own: float = 0.0

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            if getattr(self, end) is None:
                object.__setattr__(self, end, self.value)

    @property
    def lower_bound(self) -> bool:
        """True if parts are missing."""
        return bool(self.missing)

    def text(self, units: Units) -> str:
        """The sum in one of `units`, `>` before a lower bound, or "not given"."""
        if self.value is None:
            return NOT_GIVEN
        return f"{'> ' if self.lower_bound else ''}{scaled(self.value, units)}"

    def range_text(self, units: Units) -> str:
        """The ends, `1.2 nJ to 6.1 nJ`; `> 1.2 nJ` for a lower bound; empty if they are equal."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        if self.lower_bound:
            return f"> {scaled(self.low, units)}"
        return f"{scaled(self.low, units)} to {scaled(self.high, units)}"

    def full_text(self, units: Units) -> str:
        """The sum and its ends: `2.5 nJ (1.2 nJ to 6.1 nJ)`."""
        ends = self.range_text(units)
        return f"{self.text(units)} ({ends})" if ends else self.text(units)

    def cell(self, units: Units) -> Cell:
        """The sum as a table's cell."""
        return Cell(self.text(units), math.nan if self.value is None else self.value)

    @property
    def ends(self) -> Change:
        """The sum with its ends; 0 for what is unknown."""
        return Change(self.value or 0.0, self.low or 0.0, self.high or 0.0)

    def full_cell(self, units: Units) -> Content:
        """The sum with its ends in the same unit, `2.5 nJ [1.2, 6.1]`; nothing if it is unknown.

        A lower bound has no upper end.
        """
        if self.value is None or self.low is None or self.high is None:
            return None
        size, _ = unit_of(self.value, units)
        count = digits_apart(self.low, self.high)
        low, high = (digits(end / size, count) for end in (self.low, self.high))
        ends = f"[> {low}]" if self.lower_bound else f"[{low}, {high}]"
        return replace(self.cell(units), note=ends)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**vars(self), "lower_bound": self.lower_bound}

    def times(self, factor: float, low: float | None = None, high: float | None = None) -> Quantity:
        """The sum times `factor`, and its ends times `low` and `high` (None: `factor`)."""
        if self.value is None or self.low is None or self.high is None:
            return self
        ends = (factor if low is None else low, factor if high is None else high)
        scaled = (self.value * factor, self.low * ends[0], self.high * ends[1])
        return Quantity(scaled[0], self.missing, scaled[1], scaled[2], self.own * factor)

    def __add__(self, other: Quantity) -> Quantity:
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        known = [q for q in (self, other) if q.value is not None]
        missing = tuple(dict.fromkeys((*self.missing, *other.missing)))
        if not known:
            return Quantity(None, missing)
        value, low, high = (
            sum(getattr(q, name) for q in known) for name in ("value", "low", "high")
        )
        return Quantity(value, missing, low, high, sum(q.own for q in known))


NOTHING = Quantity(None)


def given(value: float | None, missing: str) -> Quantity:
    """A quantity by a figure of the target; None: the part `missing` is unknown."""
    return Quantity(None, (missing,)) if value is None else Quantity(value, own=value)


def longest(quantities: Iterable[Quantity]) -> Quantity:
    """The time of parts that run side by side: the longest, also at both ends."""
    found = list(quantities)
    known = [one for one in found if one.value is not None]
    missing = tuple(dict.fromkeys(name for one in found for name in one.missing))
    if not known:
        return Quantity(None, missing)
    value, low, high = (
        max(getattr(one, name) for one in known) for name in ("value", "low", "high")
    )
    return Quantity(value, missing, low, high, max(one.own for one in known))


def independent(quantities: Iterable[Quantity]) -> Quantity:
    """The sum of quantities whose errors are independent: distances to the ends add in squares."""
    found = list(quantities)
    total = sum(found, NOTHING)
    if total.value is None:
        return total
    known = [one for one in found if one.value is not None]
    below = math.hypot(*((one.value or 0.0) - (one.low or 0.0) for one in known))
    above = math.hypot(*((one.high or 0.0) - (one.value or 0.0) for one in known))
    return replace(total, low=total.value - below, high=total.value + above)


def product(quantities: Iterable[Quantity]) -> Quantity:
    """The product of known quantities with independent errors: logarithms add in squares."""
    found = [(one.low or 0.0, one.value or 0.0, one.high or 0.0) for one in quantities]
    value = math.prod(middle for _, middle, _ in found)
    below = math.hypot(*(math.log(middle / low) for low, middle, _ in found))
    above = math.hypot(*(math.log(high / middle) for _, middle, high in found))
    return Quantity(value, (), value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class PartShare:
    """One part of a cost: its energy in pJ, and the time in ns that it is busy."""

    energy: Quantity = NOTHING
    time: Quantity = NOTHING

    def __add__(self, other: PartShare) -> PartShare:
        return PartShare(self.energy + other.energy, self.time + other.time)


COMMON_ERRORS = (
    ("arrays", "converters", "shift-and-add"),  # their sum is held against silicon
    ("digital", "clock and control", "buffers", "wires"),  # scaled by the same factors
    ("memory",),
    ("links",),
    ("leakage",),
    ("writing",),
)
"""Parts of a cost whose prices are off together; those of different groups are independent."""

PARTS = tuple(name for group in COMMON_ERRORS for name in group)
"""Parts of a cost, in the order of tables."""


@dataclass(frozen=True)
class Cost:
    """The cost of one walk through a graph, or of several added up.

    The keys of `parts` are PARTS. `known` is the number of `operations` that have an energy.
    `cells_written` counts cells of weights that the walk loads.
    """

    macs: int = 0
    drive_cycles: int = 0
    conversions: int = 0
    shift_adds: int = 0
    digital: Operations = field(default_factory=Operations)
    cells_written: int = 0
    latency_ns: Quantity = NOTHING
    parts: Mapping[str, PartShare] = field(default_factory=dict)
    known: int = 0

    @property
    def energy_pj(self) -> Quantity:
        """The sum of all parts, whose errors are common within a group and independent between."""
        return independent(self._energy_of(names) for names in COMMON_ERRORS)

    @property
    def energy_by_price(self) -> dict[str, Change]:
        """The energy of each group of COMMON_ERRORS, by its first part: prices off together."""
        found = {}
        for names in COMMON_ERRORS:
            one = self._energy_of(names)
            if one.value is not None and one.low is not None and one.high is not None:
                found[names[0]] = Change(one.value, one.low, one.high)
        return found

    def _energy_of(self, names: Iterable[str]) -> Quantity:
        return sum((self.parts[name].energy for name in names if name in self.parts), NOTHING)

    @property
    def operations(self) -> int:
        """The number of MACs, conversions, shift-and-adds, digital operations and cell writes."""
        in_arrays = self.macs + self.conversions + self.shift_adds
        return in_arrays + self.digital.total + self.cells_written

    @property
    def coverage(self) -> float:
        """The share of operations whose energy is known."""
        return self.known / self.operations if self.operations else 1.0

    @property
    def own_share(self) -> float:
        """The share of the known energy that comes from the target's figures."""
        energy = self.energy_pj
        return energy.own / energy.value if energy.value else 0.0

    @property
    def basis(self) -> str:
        """The origin of the energy of arrays and converters; only equal ones are compared."""
        names = [
            f"{name} {'own' if self.parts[name].energy.own else 'reference'}"
            for name in ("arrays", "converters")
            if name in self.parts and self.parts[name].energy.value
        ]
        return ", ".join(names)

    def caveat(self) -> str:
        """The headline's clause if the coverage is below WELL_COVERED; else empty."""
        share = self.coverage
        return "" if share >= WELL_COVERED else coverage_text(share)

    def times(self, count: int) -> Cost:
        """The cost of `count` such walks, one after another."""
        parts = {
            name: PartShare(one.energy.times(count), one.time.times(count))
            for name, one in self.parts.items()
        }
        names = ("macs", "drive_cycles", "conversions", "shift_adds", "cells_written", "known")
        return Cost(
            **{name: count * getattr(self, name) for name in names},
            digital=self.digital.times(count),
            latency_ns=self.latency_ns.times(count),
            parts=parts,
        )

    def __add__(self, other: Cost) -> Cost:
        sums = {k: one + getattr(other, k) for k, one in vars(self).items() if k != "parts"}
        parts = {
            name: self.parts.get(name, PartShare()) + other.parts.get(name, PartShare())
            for name in PARTS
            if name in self.parts or name in other.parts
        }
        return Cost(**sums, parts=parts)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        names = ("macs", "drive_cycles", "conversions", "shift_adds", "cells_written", "operations")
        return {
            **{name: getattr(self, name) for name in names},
            "digital": self.digital.to_json(),
            "latency_ns": self.latency_ns.to_json(),
            "energy_pj": self.energy_pj.to_json(),
            "parts": {
                name: {"energy_pj": one.energy.to_json(), "time_ns": one.time.to_json()}
                for name, one in self.parts.items()
            },
            "coverage": self.coverage,
            "own_share": self.own_share,
        }


def coverage_text(share: float) -> str:
    """The headline's clause on low coverage: `known for only 33% of its operations`."""
    return f"known for only {coverage(share)} of its operations"
