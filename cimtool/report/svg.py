"""Drawing in SVG: scales, axes, text and marks, coloured by the classes of one style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from cimtool.base.escapes import xml_text
from cimtool.report.formats import NumberFormat

WIDTH = 480
"""Units across a chart; a page scales it to its column."""

GLYPH = 6.9
"""Approximate width of a character, in units."""

LONGEST = 30
"""Most characters of a label; longer labels are cut."""

TICKS = 6
"""Approximate number of values on an axis."""

SERIES = 4
"""Classes of colours and shapes, `s0` to `s3`; later series start again at `s0`."""

STYLE = "chart.css"
"""The style sheet of all pictures: colours, light and dark, and the classes of their parts."""


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script beside the templates."""
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Scale:
    """Maps values from `lo` to `hi` onto units from `start` to `end`; logarithmic with `log`."""

    lo: float
    hi: float
    start: float
    end: float
    log: bool = False

    @property
    def middle(self) -> float:
        """The unit half way."""
        return (self.start + self.end) / 2

    def at(self, value: float) -> float:
        """The place of a value; a value beyond an end is placed at that end."""
        inside = min(max(value, self.lo), self.hi)
        lo, hi, x = (math.log(x) if self.log else x for x in (self.lo, self.hi, inside))
        return self.start + (x - lo) / (hi - lo) * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        """Round values inside; at most TICKS if the scale is linear."""
        return self._powers() if self.log else self._steps()

    def _steps(self) -> tuple[float, ...]:
        step = _round_up((self.hi - self.lo) / (TICKS - 1))
        first, last = math.ceil(self.lo / step - 1e-9), math.floor(self.hi / step + 1e-9)
        # Through decimal text: 3 * 0.1 would be 0.30000000000000004.
        return tuple(float(f"{i * step:.10g}") for i in range(first, last + 1))

    def _powers(self) -> tuple[float, ...]:
        first, last = math.floor(math.log10(self.lo)), math.ceil(math.log10(self.hi))
        few = last - first <= 2
        factors = (1, 2, 5) if few else (1,)
        every = 1 if few else -(-(last - first) // TICKS)
        found = (c * 10.0**e for e in range(first, last + 1, every) for c in factors)
        return tuple(x for x in found if self.lo * (1 - 1e-9) <= x <= self.hi * (1 + 1e-9))


def _round_up(step: float) -> float:
    """The step rounded up to 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(c * power for c in (1, 2, 2.5, 5, 10) if c * power >= step * (1 - 1e-9))


def spanning(
    values: Iterable[float], start: float, end: float, log: bool = False, margin: float = 0.04
) -> Scale:
    """A scale over the finite `values` with a margin on each side, as a share of their span.

    A single value is in the middle, and the scale does not reach beyond 0; if the only value is 0,
    it begins there. A logarithmic scale leaves out values that are not positive.
    """
    known = [x for x in values if math.isfinite(x) and (x > 0 or not log)]
    ends = [math.log(x) if log else x for x in (min(known), max(known))] if known else [0.0, 1.0]
    span = ends[1] - ends[0]
    if span > 1e-12 * max(map(abs, ends)):
        wider = margin * span
    else:
        wider = max(0.1 * abs(ends[0]), 0.1 if log else 0.0)
    lo, hi = ends[0] - wider, ends[1] + wider or 1.0
    return Scale(math.exp(lo), math.exp(hi), start, end, True) if log else Scale(lo, hi, start, end)


def px(value: float) -> str:
    """A coordinate to a tenth of a unit."""
    return f"{value:z.1f}".removesuffix(".0")


def tick_text(value: float) -> str:
    """The text of a tick: 0.25, 10,000, 2.5 M, 1e-06."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.6g} M"
    return f"{value:,.6g}"


def percent_tick(value: float) -> str:
    """The text of a share's tick, in percent."""
    return f"{100 * value:.4g}%"


def shortened(label: str) -> str:
    """A label of at most LONGEST characters."""
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def gutter(labels: Sequence[str]) -> float:
    """Width of the longest label with room to its right, in units."""
    return GLYPH * max((len(shortened(label)) for label in labels), default=0) + 14


def document(height: float, label: str, parts: Iterable[str], width: float = WIDTH) -> str:
    """A picture in a page; `label` describes it to people who cannot see it."""
    return (
        f'<svg class="chart" viewBox="0 0 {px(width)} {px(height)}" width="{px(width)}" '
        f'height="{px(height)}" role="img" aria-label="{xml_text(label)}">{"".join(parts)}</svg>'
    )


def file_text(
    width: float, height: float, title: str, description: str, parts: Iterable[str]
) -> str:
    """A picture in a file, with its style; `description` is for people who cannot see it."""
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {px(width)} '
        f'{px(height)}" role="img" aria-labelledby="title description">\n'
        f'<title id="title">{xml_text(title)}</title>\n'
        f'<desc id="description">{xml_text(description)}</desc>\n'
        f"<style>\n{asset(STYLE)}</style>\n"
        f'<rect class="ground" width="100%" height="100%"/>\n{"".join(parts)}</svg>\n'
    )


START, NAMESPACE = '<svg class="chart" ', 'xmlns="http://www.w3.org/2000/svg" '


def is_file(picture: str) -> bool:
    """True for a picture in a file, which includes its style and ids."""
    return picture.startswith(START + NAMESPACE)


def as_file(picture: str) -> str:
    """A page's picture (`document`) as a file's picture, with its style; a file's is unchanged."""
    if is_file(picture):
        return picture
    head, end, body = picture.partition(">")
    ground = '<rect class="ground" width="100%" height="100%"/>'
    style = f"<style>\n{asset(STYLE)}</style>\n{ground}"
    return head.replace(START, START + NAMESPACE, 1) + end + style + body


def group(x: float, y: float, scale: float, parts: Iterable[str]) -> str:
    """Parts moved to (x, y) and scaled."""
    inside = "".join(parts)
    return f'<g transform="translate({px(x)} {px(y)}) scale({scale:.5g})">\n{inside}</g>\n'


def path(style: str, moves: Iterable[str], note: str = "") -> str:
    """A path of `moves`; `note` shows on hovering."""
    inside = f"<title>{xml_text(note)}</title>" if note else ""
    return f'<path class="{style}" d="{"".join(moves)}">{inside}</path>'


def text(
    x: float, y: float, content: str, anchor: Anchor = "start", style: str = "",
    turn: bool = False, soft: str = "",
) -> str:  # fmt: skip
    """A line of text; `style` gives classes, `turn` makes it run upwards, `soft` follows it."""
    classes = f' class="{style}"' if style else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    turned = f' transform="rotate(-90 {px(x)} {px(y)})"' if turn else ""
    more = f' <tspan class="soft">{xml_text(soft)}</tspan>' if soft else ""
    return f'<text x="{px(x)}" y="{px(y)}"{side}{classes}{turned}>{xml_text(content)}{more}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return path(style, [f"M{px(x1)} {px(y1)}L{px(x2)} {px(y2)}"])


def rect(x: float, y: float, width: float, height: float, style: str) -> str:
    """A rectangle, at least half a unit wide so that small values stay visible."""
    return (
        f'<rect class="{style}" x="{px(x)}" y="{px(y)}" width="{px(max(width, 0.5))}" '
        f'height="{px(height)}"/>'
    )


def series(index: int) -> str:
    """The class of a series' colour."""
    return f"s{index % SERIES}"


def mark(x: float, y: float, index: int, size: float = 4.5, note: str = "") -> str:
    """The mark of a series: its shape tells it apart without colour; `note` shows on hovering."""
    shapes = (
        f"M{px(x - size)} {px(y)}a{px(size)} {px(size)} 0 1 0 {px(2 * size)} 0"
        f"a{px(size)} {px(size)} 0 1 0 {px(-2 * size)} 0z",
        f"M{px(x)} {px(y - size - 1)}l{px(size + 1)} {px(size + 1)}l{px(-size - 1)} {px(size + 1)}"
        f"l{px(-size - 1)} {px(-size - 1)}z",
        f"M{px(x - size)} {px(y - size)}h{px(2 * size)}v{px(2 * size)}h{px(-2 * size)}z",
        f"M{px(x)} {px(y - size)}l{px(size)} {px(2 * size)}h{px(-2 * size)}z",
    )
    return path(f"mark {series(index)}", [shapes[index % SERIES]], note)


def swatch(x: float, y: float, index: int) -> str:
    """A sample of a series' bars, around a point."""
    return rect(x - 5, y - 5, 10, 9, f"bar {series(index)}")


def legend(
    names: Sequence[str], x: float, y: float, sign: Callable[[float, float, int], str] = mark
) -> str:
    """The names of all series in one line, each after the `sign` of its points."""
    parts = []
    for index, name in enumerate(names):
        parts += [sign(x + 5, y - 4, index), text(x + 15, y, name, style="soft")]
        x += 30 + GLYPH * len(name)
    return "".join(parts)


def axis(
    scale: Scale,
    low: float,
    high: float,
    form: NumberFormat,
    title: str = "",
    upright: bool = False,
) -> str:
    """Grid lines from `low` to `high`, their values at `high`, and the title.

    The values of an `upright` scale stand left of `low`.
    """
    parts = []
    for tick in scale.ticks():
        at, said = scale.at(tick), form(tick)
        if upright:
            parts += [line(low, at, high, at, "grid"), text(low - 6, at + 4, said, "end", "soft")]
        else:
            parts += [line(at, low, at, high, "grid")]
            parts += [text(at, high + 16, said, "middle", "soft")]
    x, y = (13.0, scale.middle) if upright else (scale.middle, high + 34)
    return "".join(parts) + (text(x, y, title, "middle", "soft", upright) if title else "")
