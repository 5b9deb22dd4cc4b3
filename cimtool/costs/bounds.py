"""The part that bounds a query, by the size of the gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.totals import PARTS
from cimtool.report.formats import TIMES, scaled
from cimtool.report.table import Cell, Column, Table, make_table

SIZES = tuple(10**decade for decade in range(8))
"""Gallery sizes to try, from 1 to ten million."""

TIMED = ("arrays", "converters", "digital", "memory", "writing")
"""Parts that take time."""


@dataclass(frozen=True)
class QueryBound:
    """A query against `items`: the time in ns that each part is busy."""

    items: int
    times: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The part that is busy longest."""
        return max(self.times, key=self.times.__getitem__) if self.times else "nothing timed"

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**vars(self), "bound": self.bound}


def query_bounds(estimate: Estimate) -> tuple[QueryBound, ...]:
    """A query at each of SIZES, or at the size of the gallery that the arrays hold."""
    items, program = estimate.gallery, estimate.program
    if items is None:
        return ()
    if program.gallery_items is not None or program.shortlist is not None:
        return (_bound(estimate),)
    return tuple(_bound(estimate.with_gallery(one)) for one in sorted({*SIZES, items}))


def _bound(estimate: Estimate) -> QueryBound:
    query = estimate.query
    assert query is not None
    assert estimate.gallery is not None
    times = {name: query.parts[name].time.value for name in TIMED if name in query.parts}
    return QueryBound(estimate.gallery, {name: time for name, time in times.items() if time})


def bounds_text(points: Sequence[QueryBound]) -> str:
    """The part that bounds a query, and the gallery sizes at which another part takes over."""
    found: list[tuple[int, str]] = []
    for one in points:
        if not found or found[-1][1] != one.bound:
            found.append((one.items, one.bound))
    first, *later = found
    others = "".join(f", from {items:,} items on by {bound}" for items, bound in later)
    return f"a query is bound by {first[1]}{others}"


def bound_table(points: Sequence[QueryBound]) -> list[Table]:
    """Busy time of each part of a query, by gallery size; no table without a gallery."""
    if not points:
        return []
    names = [name for name in PARTS if any(name in one.times for one in points)]
    columns = (Column("items", "{:,}".format), *(Column(n, str) for n in names), Column("bound by"))
    rows = [
        (one.items, *(_time(one.times.get(name)) for name in names), one.bound) for one in points
    ]
    made = make_table("What bounds a query", columns, rows, sortable=False)
    return [made.named("bounds", "detail")]


def _time(value: float | None) -> Cell | None:
    return None if value is None else Cell(scaled(value, TIMES), value)
