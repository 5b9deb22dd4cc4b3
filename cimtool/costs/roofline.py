"""A query by gallery size: the part that bounds it, and the same query on other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.prices import reference
from cimtool.report import svg
from cimtool.report.charts import Points, curves
from cimtool.report.formats import ENERGIES, TIMES, scaled

SIZES = tuple(round(10 ** (half / 2)) for half in range(15))
"""Gallery sizes to try, from 1 to ten million, two per decade."""

WHOLE_DECADES = 2
"""Tables show every second of SIZES."""

HEIGHT = 320.0
"""Height of one picture of the file, in SVG units."""

TIMED = ("arrays", "converters", "digital", "memory", "writing")
"""Parts that take time."""


@dataclass(frozen=True)
class RooflinePoint:
    """A query against `items`: the time in ns that each part is busy, and its energy in pJ.

    `sampled_pj` is the energy of Monte Carlo with stored samples, `machines_pj` the energy on
    other machines; `shown` points are in the table.
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


@dataclass(frozen=True)
class MachineCost:
    """A query on a machine at its peak rates and full power, one query at a time."""

    name: str
    time_ns: float
    energy_pj: float
    bound: str
    status: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return dict(vars(self))


def other_machines(estimate: Estimate) -> tuple[MachineCost, ...]:
    """The query of an estimate on each machine of the reference; none without a gallery.

    Its time is the longer of streaming its bytes and of its arithmetic; its energy is at full
    power.
    """
    query, held = estimate.query, estimate.gallery_bytes
    if query is None or held is None:
        return ()
    layers = [place for place in estimate.placements if place.graph == "text"]
    moved = held + sum(place.held_bits for place in layers) / 8
    operations = 2 * (query.macs + query.digital.multiplications)
    found = []
    for machine in reference().machines:
        reading = moved / machine.bandwidth
        computing = 0.0 if machine.tops is None else operations / machine.tops / 1000
        time = max(reading, computing)
        bound = "memory" if reading >= computing else "arithmetic"
        energy = 1000 * machine.power * time
        found.append(MachineCost(machine.name, time, energy, bound, "derived", machine.source))
    return tuple(found)


def roofline(estimate: Estimate) -> tuple[RooflinePoint, ...]:
    """A query at each of SIZES, or at the size of the gallery that the arrays hold.

    The estimate keeps the points: tables, pictures and sentences of a report share them.
    """
    kept: dict[str, Any] = vars(estimate)
    if "roofline" not in kept:
        items, program = estimate.gallery, estimate.program
        if items is None:
            found = []
        elif program.gallery_items is not None or program.shortlist is not None:
            found = [_point(estimate, True)]
        else:
            shown = {*SIZES[::WHOLE_DECADES], items}
            sizes = sorted({*SIZES, items})
            found = [_point(estimate.with_gallery(one), one in shown) for one in sizes]
        kept["roofline"] = tuple(found)
    points: tuple[RooflinePoint, ...] = kept["roofline"]
    return points


def _point(estimate: Estimate, shown: bool) -> RooflinePoint:
    query, sampled = estimate.query, estimate.montecarlo
    assert query is not None
    assert sampled is not None
    assert estimate.gallery is not None
    times = {name: query.parts[name].time.value for name in TIMED if name in query.parts}
    return RooflinePoint(
        estimate.gallery,
        {name: time for name, time in times.items() if time},
        query.energy_pj.value,
        (estimate.text.energy_pj + sampled.stored.energy_pj).value,
        {one.name: one.energy_pj for one in other_machines(estimate)},
        shown,
    )


def bounds_of(points: Sequence[RooflinePoint]) -> list[tuple[int, str]]:
    """(items, part) for each part that bounds a query, from this many items on."""
    found: list[tuple[int, str]] = []
    for one in points:
        if not found or found[-1][1] != one.bound:
            found.append((one.items, one.bound))
    return found


def bounds_text(points: Sequence[RooflinePoint]) -> str:
    """The part that bounds a query, and the gallery sizes at which another part takes over."""
    first, *later = bounds_of(points)
    others = "".join(f", from {items:,} items on by {bound}" for items, bound in later)
    return f"bound by {first[1]}{others}"


def time_picture(points: Sequence[RooflinePoint]) -> str:
    """The time of each part against the number of items."""
    names = [name for name in TIMED if any(name in one.times for one in points)]
    lines = [
        Points(name, [(one.items, one.times[name]) for one in points if name in one.times])
        for name in names
    ]
    label = "Busy time of a query by part against items"
    return curves(
        lines, "items", "busy time", label, lambda value: scaled(value, TIMES), log_y=True
    )


def energy_picture(points: Sequence[RooflinePoint]) -> str:
    """The energy of a query against the number of items, with Monte Carlo and other machines."""
    lines = [
        Points("compiled", [(p.items, p.energy_pj) for p in points if p.energy_pj is not None]),
        Points("Monte Carlo", [(p.items, p.sampled_pj) for p in points if p.sampled_pj]),
    ]
    for name in points[0].machines_pj:
        lines.append(Points(name, [(one.items, one.machines_pj[name]) for one in points]))
    label = "Energy of a query against items"
    return curves(
        lines, "items", "energy", label, lambda value: scaled(value, ENERGIES), log_y=True
    )


def roofline_svg(estimate: Estimate, name: str) -> str | None:
    """Both pictures in one file, one above the other; None if the gallery size cannot vary."""
    points = roofline(estimate)
    if len(points) < 2:
        return None
    title = f"{name} on {estimate.target.name}: a query by the size of its gallery"
    said = bounds_text(points)
    parts = [
        svg.text(16, 24, title, style="title"),
        svg.text(16, 44, said, style="soft"),
        svg.group(16, 60, 1, [time_picture(points)]),
        svg.group(16, 60 + HEIGHT, 1, [energy_picture(points)]),
    ]
    return svg.file_text(svg.WIDTH + 32, 60 + 2 * HEIGHT, title, said, parts)
