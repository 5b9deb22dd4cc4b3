"""A picture of the ways of a query: energy by the size of the gallery, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.crossings import SIZES
from cimtool.costs.ways import BUILT, GalleryWay, WayKind
from cimtool.report import svg
from cimtool.report.charts import LEFT, TOP
from cimtool.report.formats import ENERGIES, scaled

WIDTH, HIGH = 560.0, 300.0
"""Width of the picture, and length of its vertical axis, in units."""

NAMES = 160.0
"""Units right of the curves, for their names."""

BEFORE = LEFT + 14
"""Units left of the curves, for values such as `100 mJ`."""

APART = 15.0
"""Units between two names at least."""


@dataclass(frozen=True)
class WayCurve:
    """The energy in pJ of one way by the number of items."""

    kind: WayKind
    name: str
    points: Sequence[tuple[int, float]]

    @property
    def series(self) -> int:
        """The colour: of the build, of raw rows here, of Monte Carlo, of other machines."""
        return 0 if self.kind in BUILT else {"raw rows": 1, "Monte Carlo": 2}.get(self.kind, 3)


def way_curves(found: BundleCost) -> list[WayCurve]:
    """The curve of each way of the table that has an energy at two sizes or more."""
    sized = [(items, found.ways_at(items)) for items in found.sizes]
    curves = []
    for row in found.ways:
        at = [(items, one) for items, ways in sized for one in ways if one.kind == row.kind]
        points = [(items, one.energy_pj.value) for items, one in at if _drawn(one)]
        if len(points) > 1:
            curves.append(WayCurve(row.kind, row.way, points))  # type: ignore[arg-type]
    return curves


def _drawn(one: GalleryWay) -> bool:
    return one.known and one.energy_pj.value is not None


def instead_picture(found: BundleCost) -> str | None:
    """Energy of a query in each way against items.

    Where another way becomes the cheapest stands a mark, and where the answer to whether
    compute-in-memory takes less energy changes a dashed line. None if the gallery's size cannot
    vary.
    """
    if not found.cheapest_by_size or not (curves := way_curves(found)):
        return None
    energies = [energy for one in curves for _, energy in one.points]
    across = svg.Scale(SIZES[0], SIZES[-1], BEFORE, WIDTH - NAMES, True)
    up = svg.spanning(energies, TOP + HIGH, TOP, True)
    parts = [
        svg.axis(across, up.end, up.start, svg.tick_text, "items in the gallery"),
        svg.axis(up, across.start, across.end, _energy, "energy of a query", upright=True),
    ]
    for before, one in pairwise(found.cheapest_by_size):
        x = across.at(one.items)
        if one.takes_less != before.takes_less:
            parts.append(svg.line(x, up.end, x, up.start, "same"))
    heights = _apart([up.at(one.points[-1][1]) for one in curves], up.start)
    for curve, y in zip(curves, heights, strict=True):
        at = [(across.at(items), up.at(energy)) for items, energy in curve.points]
        moves = "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in at)
        parts.append(svg.path(f"curve {svg.series(curve.series)}", ["M", moves], curve.name))
        parts += _name(curve, at[-1], across.end, y)
    for before, one in pairwise(found.cheapest_by_size):
        if one.ways[0] != before.ways[0]:
            (now,) = found.ways_at(one.items, one.ways[:1])
            parts.append(svg.mark(across.at(one.items), up.at(now.energy_pj.value or 0.0), 0, 3.5))
    label = "Energy of a query in each way, by number of items"
    return svg.document(up.start + 44, label, parts, WIDTH)


def _name(curve: WayCurve, end: tuple[float, float], edge: float, y: float) -> Iterator[str]:
    """The name of a curve beside its end, with a line from there."""
    yield svg.line(end[0], end[1], edge + 12, y - 4, "joint")
    yield svg.text(edge + 16, y, curve.name, style="small")


def _energy(value: float) -> str:
    return scaled(value, ENERGIES)


def _apart(heights: Sequence[float], lowest: float) -> list[float]:
    """The heights of names, moved so that none is nearer than APART to another."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed: dict[int, float] = {}
    before = TOP - APART
    for i in order:
        before = placed[i] = max(heights[i] + 4, before + APART)
    after = lowest + APART
    for i in reversed(order):
        after = placed[i] = min(placed[i], after - APART)
    return [placed[i] for i in range(len(heights))]


def instead_svg(found: BundleCost, name: str, said: str) -> str | None:
    """The picture as a file, under a title and a sentence; None if there is no picture."""
    picture = instead_picture(found)
    if picture is None:
        return None
    title = f"{svg.shortened(name)} on {found.target.name}: what instead"
    parts = [svg.text(16, 24, title, style="title")]
    lines = wrap(said, 86)
    parts += [svg.text(16, 44 + 16 * i, line, style="soft") for i, line in enumerate(lines)]
    top = 40 + 16 * len(lines)
    parts.append(svg.group(16, top, 1, [picture]))
    return svg.file_text(WIDTH + 32, top + TOP + HIGH + 52, title, said, parts)
