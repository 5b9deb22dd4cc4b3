"""The time and energy of a query by the size of the gallery: which part bounds it from when on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.machines import other_machines
from cimtool.costs.totals import Cost
from cimtool.report import svg
from cimtool.report.charts import Points, curves
from cimtool.report.formats import ENERGIES, TIMES, scaled

SIZES = tuple(round(10 ** (half / 2)) for half in range(15))
"""Sizes of a gallery that are tried, from 1 to ten million, two a decade."""

WHOLE_DECADES = 2
"""Every second of SIZES is shown in a table."""

HEIGHT = 320.0
"""Units that a picture of the file is high."""

TIMED = ("arrays", "converters", "digital", "memory", "writing")
"""Parts that take time."""


@dataclass(frozen=True)
class RooflinePoint:
    """A query against `items`: the time in ns that each part is busy, and its energy in pJ.

    `sampled_pj` is the energy of Monte Carlo with stored samples, `machines_pj` that of other
    machines; `shown` points are in the table.
    """

    items: int
    times: Mapping[str, float]
    energy_pj: float | None
    sampled_pj: float | None
    machines_pj: Mapping[str, float]
    shown: bool

    @property
    def bound(self) -> str:
        """The part that is busy longest."""
        return max(self.times, key=self.times.__getitem__) if self.times else "nothing timed"

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**vars(self), "bound": self.bound}


def roofline(estimate: Estimate) -> tuple[RooflinePoint, ...]:
    """A query at each of SIZES; at the size that the memory holds where the gallery is in it.

    The estimate keeps it: tables, pictures and sentences of a report are of one.
    """
    kept: dict[str, Any] = vars(estimate)
    if "roofline" not in kept:
        kept["roofline"] = _points(estimate)
    found: tuple[RooflinePoint, ...] = kept["roofline"]
    return found


def _points(estimate: Estimate) -> tuple[RooflinePoint, ...]:
    if estimate.gallery is None:
        return ()
    if held(estimate):
        return (_point(estimate, True),)
    sizes = sorted({*SIZES, estimate.gallery})
    return tuple(
        _point(
            estimate.with_gallery(items),
            items == estimate.gallery or items in SIZES[::WHOLE_DECADES],
        )
        for items in sizes
    )


def held(estimate: Estimate) -> bool:
    """True where the arrays hold a gallery, whose size is then the program's own."""
    return estimate.program.gallery_items is not None or estimate.program.shortlist is not None


def _point(estimate: Estimate, shown: bool) -> RooflinePoint:
    query, sampled = estimate.query, estimate.montecarlo
    assert query is not None
    assert sampled is not None
    assert estimate.gallery is not None
    return RooflinePoint(
        estimate.gallery,
        dict(_times(query)),
        query.energy_pj.value,
        (estimate.text.energy_pj + sampled.stored.energy_pj).value,
        {one.name: one.energy_pj for one in other_machines(estimate)},
        shown,
    )


def _times(query: Cost) -> Iterator[tuple[str, float]]:
    for name in TIMED:
        time = query.parts[name].time.value if name in query.parts else None
        if time:
            yield name, time


def bounds_of(points: Sequence[RooflinePoint]) -> list[tuple[int, str]]:
    """The smallest gallery of the points from which on each part bounds, in their order."""
    found: list[tuple[int, str]] = []
    for one in points:
        if not found or found[-1][1] != one.bound:
            found.append((one.items, one.bound))
    return found


def time_picture(points: Sequence[RooflinePoint]) -> str:
    """The time of each part against the number of items."""
    names = [name for name in TIMED if any(name in one.times for one in points)]
    lines = [
        Points(name, [(one.items, one.times[name]) for one in points if name in one.times])
        for name in names
    ]
    label = "Busy time of a query by part against items"
    return curves(lines, "items", "busy time", label, _form(TIMES), log_y=True)


def energy_picture(points: Sequence[RooflinePoint]) -> str:
    """The energy of a query against the number of items, with Monte Carlo and other machines."""
    lines = [
        Points("compiled", [(p.items, p.energy_pj) for p in points if p.energy_pj is not None]),
        Points("Monte Carlo", [(p.items, p.sampled_pj) for p in points if p.sampled_pj]),
    ]
    for name in points[0].machines_pj:
        lines.append(Points(name, [(one.items, one.machines_pj[name]) for one in points]))
    label = "Energy of a query against items"
    return curves(lines, "items", "energy", label, _form(ENERGIES), log_y=True)


def roofline_svg(estimate: Estimate, name: str) -> str | None:
    """Both pictures in one file, one above the other; None without a gallery that may vary."""
    points = roofline(estimate)
    if len(points) < 2:
        return None
    title = f"{name} on {estimate.target.name}: a query by the size of its gallery"
    first, *later = bounds_of(points)
    said = f"bound by {first[1]}"
    said += "".join(f", from {items:,} items on by {bound}" for items, bound in later)
    parts = [
        svg.text(16, 24, title, style="title"),
        svg.text(16, 44, said, style="soft"),
        svg.group(16, 60, 1, [time_picture(points)]),
        svg.group(16, 60 + HEIGHT, 1, [energy_picture(points)]),
    ]
    return svg.file_text(svg.WIDTH + 32, 60 + 2 * HEIGHT, title, said, parts)


def _form(units: Any) -> Any:
    """The text of a tick in one of the units."""
    return lambda value: scaled(value, units)
