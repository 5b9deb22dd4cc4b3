"""Charts of numbers as SVG text, which a page's style sheet colours.

Each picture also says its numbers in words (`aria-label`); a page shows them in a table beside it.
Values that are not finite are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cimtool.base.intervals import Change
from cimtool.report import svg
from cimtool.report.formats import NumberFormat

ROW = 27.0
"""Height of a chart's row, in units."""

RIGHT = 64.0
"""Units kept free at the right for the values of bars."""


@dataclass(frozen=True)
class Whisker:
    """A row of values with intervals, one per series, None if there is none.

    `strong` rows stand out.
    """

    label: str
    bars: tuple[Change | None, ...]
    strong: bool = False


def whiskers(rows: Sequence[Whisker], series: Sequence[str], label: str, form: NumberFormat) -> str:
    """Dots with whiskers from low to high, in rows below each other on a shared axis."""
    left, top = svg.gutter([row.label for row in rows]), 30.0
    bottom = top + ROW * len(rows)
    known = [e for row in rows for e in row.bars if e is not None]
    ends = [x for e in known for x in (e.low, e.value, e.high)]
    scale = svg.spanning(ends, left, svg.WIDTH - 18)
    parts = [svg.legend(series, left, 15), svg.axis(scale, top, bottom, form)]
    for index, row in enumerate(rows):
        middle = top + ROW * (index + 0.5)
        style = "strong" if row.strong else ""
        parts.append(svg.text(0, middle + 4, svg.shortened(row.label), style=style))
        for number, bar in enumerate(row.bars):
            if bar is not None:
                y = middle + 9 * (number - (len(row.bars) - 1) / 2)
                parts.append(_whisker(scale, bar, y, number))
    return svg.document(bottom + 24, label, parts)


def _whisker(
    scale: svg.Scale, one: Change, aside: float, number: int, upright: bool = False
) -> str:
    """A value and its interval along a scale, at the distance `aside` from it."""

    def at(along: float, across: float) -> tuple[float, float]:
        return (across, along) if upright else (along, across)

    ends = [scale.at(end) for end in (one.low, one.high) if math.isfinite(end)]
    style = f"stroke {svg.series(number)}"
    bars = [svg.line(*at(end, aside - 3.5), *at(end, aside + 3.5), style) for end in ends]
    if len(ends) == 2:
        bars.append(svg.line(*at(ends[0], aside), *at(ends[1], aside), style))
    size = 3.5 if upright else 4.5  # upright whiskers stand closer together
    return "".join(bars) + svg.mark(*at(scale.at(one.value), aside), number, size)


@dataclass(frozen=True)
class Term:
    """A part of a sum: its `amount`, below 0 if it is subtracted, and the text beside it."""

    label: str
    amount: float
    text: str
    strong: bool = False


def waterfall(terms: Sequence[Term], total: Term, label: str, title: str) -> str:
    """Parts that add up, each starting at the end of the part above; the total is at the bottom.

    The parts must add up to the total: a page that draws RMSEs gives their squares.
    """
    left, top = svg.gutter([one.label for one in (*terms, total)]), 8.0
    ends = [0.0]
    for term in terms:
        ends.append(ends[-1] + term.amount)
    scale = _from_zero([*ends, total.amount], left)
    bottom = top + ROW * (len(terms) + 1)
    parts = [svg.axis(scale, top, bottom, svg.tick_text, title)]
    for index, (term, (start, end)) in enumerate(zip(terms, pairwise(ends), strict=True)):
        y = top + ROW * index
        style = "minus" if term.amount < 0 else "plus"
        parts += _bar(scale, start, end, y, f"{style}{' strong' if term.strong else ''}", term)
        parts.append(svg.line(scale.at(end), y + 5, scale.at(end), y + ROW + 5, "joint"))
    parts += _bar(scale, 0.0, total.amount, top + ROW * len(terms), "total", total)
    return svg.document(bottom + 44, label, parts)


def _from_zero(values: Sequence[float], left: float) -> svg.Scale:
    known = [x for x in values if math.isfinite(x)]
    lo, hi = min([0.0, *known]), max([0.0, *known])
    return svg.Scale(lo, hi if hi > lo else lo + 1.0, left, svg.WIDTH - RIGHT)


def _bar(
    scale: svg.Scale, start: float, end: float, y: float, style: str, term: Term
) -> Iterator[str]:
    one, other = sorted((scale.at(start), scale.at(end)))
    strong = "strong" if term.strong or style == "total" else ""
    yield svg.text(0, y + 17, svg.shortened(term.label), style=strong)
    yield svg.rect(one, y + 5, other - one, ROW - 10, f"bar {style}")
    yield svg.text(other + 6, y + 17, term.text, style=strong)


def bars(
    rows: Sequence[tuple[str, Sequence[float]]],
    series: Sequence[str],
    label: str,
    form: NumberFormat,
) -> str:
    """Rows of bars from zero with their values; a row is a label and one value per series."""
    left, top = svg.gutter([name for name, _ in rows]), 28.0
    scale = _from_zero([value for _, values in rows for value in values], left)
    parts = [svg.legend(series, left, 15, svg.swatch)]
    height = 11.0 * len(series) + 9
    for index, (name, values) in enumerate(rows):
        y = top + height * index
        parts.append(svg.text(0, y + height / 2 + 4, svg.shortened(name)))
        for number, value in enumerate(values):
            if not math.isfinite(value):
                continue
            at = y + 4.5 + 11 * number
            zero, end = scale.at(0.0), scale.at(value)
            style = f"bar {svg.series(number)}"
            parts.append(svg.rect(min(zero, end), at, abs(end - zero), 9, style))
            parts.append(svg.text(max(zero, end) + 5, at + 8.5, form(value), style="small"))
    return svg.document(top + height * len(rows) + 6, label, parts)


@dataclass(frozen=True)
class Points:
    """A series of points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]

    def drawable(self, log_x: bool = False, log_y: bool = False) -> list[tuple[float, float]]:
        """The points that can be drawn; a logarithmic axis has none at or below 0."""
        return [(x, y) for x, y in self.points if _drawable(x, log_x) and _drawable(y, log_y)]


def _drawable(value: float, log: bool = False) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


LEFT = 66.0
"""Units left of an upright axis, for its values and its title."""

TOP, HIGH = 30.0, 300.0
"""Upper end of a vertical axis, and its length."""


@dataclass(frozen=True)
class Plane:
    """Two axes with titles."""

    across: svg.Scale
    up: svg.Scale
    x_title: str
    y_title: str

    def at(self, point: tuple[float, float]) -> tuple[float, float]:
        """The place of a point."""
        return self.across.at(point[0]), self.up.at(point[1])

    def picture(
        self, label: str, names: Sequence[str], parts: Iterable[str],
        y_form: NumberFormat = svg.tick_text, sign: Callable[[float, float, int], str] = svg.mark,
    ) -> str:  # fmt: skip
        """A picture of the axes, the `names` of series behind their `sign`, and `parts`."""
        across, up = self.across, self.up
        frame = (
            svg.axis(across, up.end, up.start, svg.tick_text, self.x_title),
            svg.axis(up, across.start, across.end, y_form, self.y_title, upright=True),
            svg.legend(names, LEFT, 15, sign),
        )
        return svg.document(up.start + 44, label, [*frame, *parts])


def scatter(groups: Sequence[Points], x_title: str, y_title: str, label: str) -> str:
    """Points of a few groups on equal axes, with the line on which x equals y."""
    both = [value for group in groups for point in group.drawable() for value in point]
    across = svg.spanning(both, LEFT, svg.WIDTH - 12)
    up = svg.Scale(across.lo, across.hi, TOP + HIGH, TOP)
    plane = Plane(across, up, x_title, y_title)
    parts = [svg.line(across.start, up.start, across.end, up.end, "same")]
    for index, group in reversed(list(enumerate(groups))):
        parts.append(_dots(map(plane.at, group.drawable()), index))
    names = [group.name for group in groups]
    return plane.picture(label, names, parts, sign=lambda x, y, index: _dots([(x, y)], index))


def _dots(points: Iterable[tuple[float, float]], index: int) -> str:
    """All points of a group as one path: a thousand elements would make the page slow."""
    shape = ("h0", "m-2.5-2.5l5 5m0-5l-5 5", "m-2.5 0h5", "m0-2.5v5")[index % svg.SERIES]
    moves = (f"M{svg.px(x)} {svg.px(y)}{shape}" for x, y in points)
    style = "dots" if index % svg.SERIES == 0 else "crosses"
    return svg.path(f"{style} {svg.series(index)}", moves)


def curves(
    lines: Sequence[Points],
    x_title: str,
    y_title: str,
    label: str,
    y_form: NumberFormat = svg.percent_tick,
    log_x: bool = True,
    log_y: bool = False,
) -> str:
    """Lines with marks at their points; the axes are logarithmic with `log_x` and `log_y`."""
    drawn = [one.drawable(log_x, log_y) for one in lines]
    xs, ys = ([point[axis] for points in drawn for point in points] for axis in (0, 1))
    across = svg.spanning(xs, LEFT, svg.WIDTH - 12, log_x)
    plane = Plane(across, svg.spanning(ys, TOP + HIGH - 60, TOP, log_y), x_title, y_title)
    parts: list[str] = []
    for index, points in enumerate(drawn):
        at = [plane.at(point) for point in points]
        moves = "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in at)
        parts += [svg.path(f"curve {svg.series(index)}", ["M", moves])] if moves else []
        parts += [svg.mark(x, y, index, 3.5) for x, y in at]
    return plane.picture(label, [one.name for one in lines], parts, y_form)


def above_levels(
    lines: Sequence[Points],
    levels: Sequence[tuple[str, float]],
    x_title: str,
    y_title: str,
    label: str,
) -> str:
    """Lines with marks on logarithmic axes, and named `levels` of y, dashed across the picture."""
    drawn = [one.drawable(True, True) for one in lines]
    heights = [(name, level) for name, level in levels if _drawable(level, True)]
    xs = [x for points in drawn for x, _ in points]
    ys = [y for points in drawn for _, y in points] + [level for _, level in heights]
    across = svg.spanning(xs, LEFT, svg.WIDTH - 12, True, 0.08)
    plane = Plane(across, svg.spanning(ys, TOP + HIGH, TOP, True, 0.08), x_title, y_title)
    parts: list[str] = []
    for name, level in heights:
        y = plane.up.at(level)
        parts.append(svg.line(across.start, y, across.end, y, "same"))
        parts.append(svg.text(across.end, y - 4, name, "end", "small"))
    for index, points in enumerate(drawn):
        at = [plane.at(point) for point in points]
        moves = "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in at)
        parts += [svg.path(f"curve {svg.series(index)}", ["M", moves])] if moves else []
        parts += [svg.mark(x, y, index, 3.5) for x, y in at]
    return plane.picture(label, [one.name for one in lines], parts)


def histogram(counts: Sequence[int], label: str) -> str:
    """A small picture of counts in bins of equal width, for a cell of a table."""
    width, height = max(2.0 * len(counts), 2.0), 20.0
    most = max(counts, default=0) or 1
    moves = (
        f"M{2 * index} 20V{svg.px(min(height - 1, height - height * count / most))}h2V20z"
        for index, count in enumerate(counts)
        if count
    )
    parts = [svg.path("bar s0", moves), svg.line(0, height, width, height, "grid")]
    return svg.document(height + 1, label, parts, width)


@dataclass(frozen=True)
class ParetoPoint:
    """A point of a Pareto picture: both values are better when lower; `best` is on the front.

    Only the name is written beside the point; hovering also shows `note`.
    """

    name: str
    x: float
    y: float
    best: bool = False
    note: str = ""


def pareto(
    candidates: Sequence[ParetoPoint], x_title: str, y_title: str, label: str, log_x: bool = True,
    log_y: bool = False,
) -> str:  # fmt: skip
    """Candidates on two axes; the points of the front are named and joined by steps."""
    known = [one for one in candidates if _drawable(one.x, log_x) and _drawable(one.y, log_y)]
    across = svg.spanning((one.x for one in known), LEFT, svg.WIDTH - 20, log_x, 0.08)
    up = svg.spanning((one.y for one in known), TOP + HIGH, TOP, log_y, 0.08)
    plane = Plane(across, up, x_title, y_title)
    at = {one: plane.at((one.x, one.y)) for one in known}
    best = sorted((one for one in known if one.best), key=lambda one: (one.x, -one.y))
    parts: list[str] = []
    if best:
        x, y = map(svg.px, at[best[0]])
        steps = (f"{'HV'[i]}{svg.px(at[one][i])}" for one in best[1:] for i in (0, 1))
        parts.append(svg.path("curve s0", [f"M{x} {y}", *steps]))
    for one in sorted(known, key=lambda one: one.best):
        note = f"{one.name}: {one.note}" if one.note else one.name
        parts.append(svg.mark(*at[one], 0 if one.best else 1, note=note))
    parts += _names([(one.name, *at[one]) for one in best], list(at.values()))
    return plane.picture(label, ("on the front", "not on it"), parts)


def _names(
    points: Sequence[tuple[str, float, float]], marks: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """The names of points that have room beside them; hovering shows the other names."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    for name, x, y in points:
        name = svg.shortened(name)
        wide = svg.GLYPH * len(name)
        for left, base in (
            (x + 8, y - 6),
            (x + 8, y + 14),
            (x - 8 - wide, y + 14),
            (x - 8 - wide, y - 6),
        ):
            box = (left, base - 10, left + wide, base + 2)
            inside = left >= LEFT and box[2] <= svg.WIDTH and box[1] >= TOP and base <= TOP + HIGH
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield svg.text(left, base, name, style="small")
                break


Box = tuple[float, float, float, float]


def _overlap(one: Box, other: Box) -> bool:
    return all(one[i] < other[i + 2] and other[i] < one[i + 2] for i in (0, 1))


@dataclass(frozen=True)
class Ranges:
    """A series of values with intervals, one per place on the axis, None if there is none."""

    name: str
    values: Sequence[Change | None]


def ranges(
    lines: Sequence[Ranges], places: Sequence[str], x_title: str, y_title: str, label: str
) -> str:
    """Lines of shares from 0 to 1 with their intervals, at evenly spaced, named places."""
    across = svg.Scale(-0.5, len(places) - 0.5, LEFT, svg.WIDTH - 12)
    up = svg.Scale(0.0, 1.0, TOP + HIGH - 60, TOP)
    parts = [svg.axis(up, across.start, across.end, svg.percent_tick, y_title, upright=True)]
    parts.append(svg.legend([one.name for one in lines], LEFT, 15))
    for index, place in enumerate(places):
        x = across.at(index)
        parts.append(svg.line(x, up.end, x, up.start, "grid"))
        parts.append(svg.text(x, up.start + 16, svg.shortened(place), "middle", "soft"))
    parts.append(svg.text(across.middle, up.start + 34, x_title, "middle", "soft"))
    for number, one in enumerate(lines):
        aside = 9 * (number - (len(lines) - 1) / 2)
        at = [
            (across.at(index) + aside, value)
            for index, value in enumerate(one.values)
            if value is not None and math.isfinite(value.value)
        ]
        moves = "L".join(f"{svg.px(x)} {svg.px(up.at(value.value))}" for x, value in at)
        parts += [svg.path(f"curve {svg.series(number)}", ["M", moves])] if len(at) > 1 else []
        parts += [_whisker(up, value, x, number, upright=True) for x, value in at]
    return svg.document(up.start + 44, label, parts)
