"""Totals of a cost: sums of which some parts may be unknown, and then they are lower bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cimtool.costs.operations import Operations
from cimtool.report.formats import NOT_GIVEN, Units, scaled
from cimtool.report.table import Cell


@dataclass(frozen=True)
class Quantity:
    """A sum of known parts: `value` (None: nothing is known) and the names of those `missing`."""

    value: float | None
    missing: tuple[str, ...] = ()

    @property
    def lower_bound(self) -> bool:
        """True where parts are missing."""
        return bool(self.missing)

    def text(self, units: Units) -> str:
        """The sum in one of `units`, `>` before a lower bound, or "not given"."""
        if self.value is None:
            return NOT_GIVEN
        return f"{'> ' if self.lower_bound else ''}{scaled(self.value, units)}"

    def cell(self, units: Units) -> Cell:
        """The same in a table."""
        return Cell(self.text(units), math.nan if self.value is None else self.value)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**vars(self), "lower_bound": self.lower_bound}

    def __add__(self, other: Quantity) -> Quantity:
        known = [q.value for q in (self, other) if q.value is not None]
        missing = dict.fromkeys((*self.missing, *other.missing))
        return Quantity(sum(known) if known else None, tuple(missing))


NOTHING = Quantity(None)


@dataclass(frozen=True)
class Cost:
    """The cost of one walk through a graph, or of several added up.

    `known` of its `operations` (MACs and conversions in arrays, and
    all digital ones) have an energy. `cells_written` are of weights loaded on the way.
    """

    macs: int = 0
    drive_cycles: int = 0
    conversions: int = 0
    shift_adds: int = 0
    digital: Operations = field(default_factory=Operations)
    cells_written: int = 0
    latency_ns: Quantity = NOTHING
    energy_pj: Quantity = NOTHING
    known: int = 0

    @property
    def operations(self) -> int:
        """All: each MAC, conversion, shift-and-add, digital operation and cell written is one."""
        in_arrays = self.macs + self.conversions + self.shift_adds
        return in_arrays + self.digital.total + self.cells_written

    @property
    def coverage(self) -> float:
        """The share of operations whose energy is known."""
        return self.known / self.operations if self.operations else 1.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        names = ("macs", "drive_cycles", "conversions", "shift_adds", "cells_written", "operations")
        return {
            **{name: getattr(self, name) for name in names},
            "digital": vars(self.digital),
            "latency_ns": self.latency_ns.to_json(),
            "energy_pj": self.energy_pj.to_json(),
            "coverage": self.coverage,
        }
