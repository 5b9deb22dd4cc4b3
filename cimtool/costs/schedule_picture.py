"""A Gantt picture of a batch: a row per part of the hardware, a bar per task, over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cimtool.costs.estimate import Estimate
from cimtool.costs.schedule import Resource
from cimtool.costs.schedule_batch import BatchSchedule
from cimtool.costs.schedule_tasks import BESIDE, LOADED, WRITING
from cimtool.hardware.placement import Floorplan, Placement
from cimtool.report import svg
from cimtool.report.formats import TIMES, counted, coverage, scaled

WIDTH, MARGIN, ROW, BAR = 960.0, 16.0, 22.0, 15.0
"""Units across the picture, beside its parts, and of a row and of its bar."""

RIGHT = 56.0
"""Units right of the bars, for the occupancy."""

SHOWN = 6
"""Repetitions of a pattern that are drawn at most."""

COLOURS = 8
"""Colours of layers, `a0` to `a7`; further layers repeat them."""

SMALL = 0.4
"""Units below which gaps between bars are closed."""

LIGHT, WORK = "free", "bar total"
"""Styles of loads, and of digital operations and reads."""


@dataclass(frozen=True)
class Panel:
    """The bars of one batch: by row and style, from start to end in ns."""

    heading: str
    rows: tuple[str, ...]
    shares: tuple[str, ...]
    bars: Mapping[tuple[int, str], Sequence[tuple[float, float]]]
    end: float

    @property
    def height(self) -> float:
        """Units from the heading to below the axis."""
        return 64 + ROW * len(self.rows)


def schedule_svg(estimate: Estimate, title: str) -> str:
    """Draw the batches of an estimate, one below the other, as one SVG document."""
    panels = [
        panel(estimate, name, one) for name, one in estimate.schedules.items() if one.occupancy
    ]
    batch = counted(estimate.batch, "item")
    summary = (
        f"A batch of {batch}; every second item is lighter; grey: loads, digital operations, "
        "reads. Right: how long a part is held."
    )
    if not panels:
        summary = "There is no schedule: a time is not known."
    parts = [
        svg.text(MARGIN, MARGIN + 14, title, style="title"),
        svg.text(MARGIN, MARGIN + 36, summary, style="soft"),
    ]
    top = MARGIN + 70
    for one in panels:
        parts.append(svg.group(0, top, 1, _drawn(one)))
        top += one.height
    description = " ".join([summary, *(f"{one.heading}." for one in panels)])
    return svg.file_text(WIDTH, round(top + MARGIN), f"Schedule of {title}", description, parts)


def panel(estimate: Estimate, name: str, found: BatchSchedule) -> Panel:
    """The rows and bars of one batch; of a pattern that is repeated, the first repetitions."""
    plan, pattern = estimate.floorplan, found.pattern
    layers = [place for place in estimate.placements if place.shares is None]
    colours = {place.layer: f"a{index % COLOURS}" for index, place in enumerate(layers)}
    listed = len(pattern.tasks) // (found.waves if found.repeats == 1 else 1)
    shown = min(found.repeats, SHOWN)
    rows: dict[Resource, int] = {}
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for position, (start, task) in enumerate(zip(pattern.starts, pattern.tasks, strict=True)):
        for resource, ticks in task.holds:
            if not ticks or resource.kind == WRITING:
                continue
            row = rows.setdefault(_row(resource), len(rows))
            style = colours.get(task.name, WORK)
            if task.shared and resource.kind == LOADED:
                style = LIGHT
            for turn in range(shown):
                odd = (turn + position // listed) % 2
                begin = (start + turn * pattern.interval) / 1e9
                lighter = f"outline {style}" if odd else style
                bars.setdefault((row, lighter), []).append((begin, begin + ticks / 1e9))
    chips = chips_of(layers, plan)
    names = tuple(_label(one, layers, chips) for one in rows)
    shares = {one.part: one.share for one in found.occupancy}
    end = (pattern.length + (shown - 1) * pattern.interval) / 1e9
    more = f", the first {shown} of {found.repeats:,} drawn" if found.repeats > shown else ""
    heading = f"{name}: {counted(found.batch, 'item')} in {found.makespan_ns.text(TIMES)}{more}"
    return Panel(heading, names, tuple(coverage(shares[one.kind]) for one in rows), bars, end)


def _row(resource: Resource) -> Resource:
    """The row of a resource: products that lie side by side are drawn in that of their arrays."""
    return Resource(LOADED, resource.number) if resource.kind == BESIDE else resource


def _label(row: Resource, layers: Sequence[Placement], chips: Mapping[str, str]) -> str:
    arrays = {place.layer: place.arrays for place in layers}
    if row.kind in arrays:
        return f"{row.kind}, {counted(arrays[row.kind], 'array')}{chips.get(row.kind, '')}"
    return f"{row.kind} {row.number}" if row.number else row.kind


def chips_of(layers: Sequence[Placement], plan: Floorplan) -> dict[str, str]:
    """The chips on which each layer lies, `, chips 1 to 2`; empty if there is only one."""
    if plan.chips is None or plan.chips == 1 or plan.chip.arrays is None:
        return {}
    found, first = {}, 0
    for place in layers:
        ends = [at % plan.arrays_at_once for at in (first, first + place.arrays - 1)]
        low, high = (1 + at // plan.chip.arrays for at in ends)
        found[place.layer] = f", chip {low}" if low == high else f", chips {low} to {high}"
        first += place.arrays
    return found


def _drawn(one: Panel) -> Iterator[str]:
    """The heading, the axis, and each row with its name, its bars and its occupancy."""
    left = MARGIN + svg.GLYPH * max(map(len, one.rows)) + 12
    scale = svg.Scale(0.0, one.end, left, WIDTH - MARGIN - RIGHT)
    bottom = 14 + ROW * len(one.rows)
    yield svg.text(MARGIN, 0, one.heading, style="strong")
    yield svg.axis(scale, 10, bottom, lambda value: scaled(value, TIMES) if value else "0")
    for index, (name, share) in enumerate(zip(one.rows, one.shares, strict=True)):
        middle = 14 + ROW * index + BAR / 2 + 4
        yield svg.text(MARGIN, middle, name)
        yield svg.text(WIDTH - MARGIN, middle, share, "end", "soft")
    for (row, style), spans in sorted(one.bars.items()):
        y = 14 + ROW * row
        moves = (
            f"M{svg.px(x)} {svg.px(y)}h{svg.px(max(wide, SMALL))}v{svg.px(BAR)}"
            f"h-{svg.px(max(wide, SMALL))}z"
            for x, wide in _runs([(scale.at(a), scale.at(b)) for a, b in spans])
        )
        yield svg.path(style, moves)


def _runs(spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Start and width of the spans; those that are too close to be seen apart become one."""
    start = end = None
    for low, high in sorted(spans):
        if start is None or end is None:
            start, end = low, high
        elif low - end < SMALL and high - start < 4 * SMALL:
            end = max(end, high)
        else:
            yield start, end - start
            start, end = low, high
    if start is not None and end is not None:
        yield start, end - start
