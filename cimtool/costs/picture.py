"""A picture of the placement: every array a square, coloured by layer and filled as far as used.

Arrays lie in macros, macros in cores, cores in chips (or, where weights are loaded in rounds, in
loads of the one chip), each level a block of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice

from cimtool.hardware.placement import Layout, Placement
from cimtool.report.formats import counted

WIDTH = 960
MARGIN = 16
SIDE = 4.0
LARGEST = 6.0
"""Side of an array's square, and by how much at most it is scaled to fill the WIDTH."""

FRAME_GAP = 10.0
"""Between chips that are framed and named, in the same measure as SIDE."""

FEW_BLOCKS = 40
"""Up to so many chips are drawn apart, each in a frame."""

MOST_SQUARES = 30_000
"""Above so many arrays a square stands for several, so that a browser can still draw them."""

COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#7f9a1f",
)  # fmt: skip
"""Colours told apart by colour-blind readers too, on light and on dark."""

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.quiet { fill: #59636e; }
.ground { fill: #ffffff; }
.block { fill: none; stroke: #8c959f; }
.free { fill: #8c959f; fill-opacity: 0.18; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #9198a1; } .ground { fill: #0d1117; }
  .block { stroke: #6e7681; } .free { fill: #6e7681; fill-opacity: 0.3; }
}
"""


@dataclass(frozen=True)
class Level:
    """Blocks of `count` children each, laid out in `across` columns with a gap between them."""

    count: int
    across: int
    width: float
    height: float
    gap: float

    @property
    def extent(self) -> tuple[float, float]:
        """Width and height of one block."""
        down = -(-self.count // self.across)
        return (
            self.across * self.width + (self.across - 1) * self.gap,
            down * self.height + (down - 1) * self.gap,
        )

    def at(self, index: int) -> tuple[float, float]:
        """Where a child lies in its block."""
        row, column = divmod(index, self.across)
        return column * (self.width + self.gap), row * (self.height + self.gap)


@dataclass(frozen=True)
class Run:
    """Equal squares of one layer, one after another: `used` of each holds weights, 0 to 1."""

    layer: int
    count: int
    used: float


def placement_svg(layers: Sequence[Placement], plan: Layout, title: str) -> str:
    """Draw where a program's layers lie, as one SVG document."""
    layers = [place for place in layers if place.shares is None]
    share = max(1, -(-plan.tiles // MOST_SQUARES))
    squares = list(_squares(_runs(layers), share))
    levels = _levels(plan, max(len(squares), 1), share)  # projectors may have no layer
    slots = list(range(len(squares))) if share > 1 else _slots(layers, plan)
    width, height = levels[-1].extent
    scale = min((WIDTH - 2 * MARGIN) / width, LARGEST)
    legend, legend_height = _legend(layers)
    top = MARGIN + 76 + legend_height
    total = top + height * scale + MARGIN
    drawing = "".join(_drawing(squares, slots, levels))
    frames = "".join(_frames(levels, plan, scale, top))
    notes = _summary(plan, share)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" '
        f'role="img" aria-labelledby="title description">\n'
        f'<title id="title">Placement of {escape(title)}</title>\n'
        f'<desc id="description">{escape(notes)} {escape(_described(layers))}</desc>\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="ground" width="100%" height="100%"/>\n'
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 14}">{escape(title)}</text>\n'
        f'<text class="quiet" x="{MARGIN}" y="{MARGIN + 36}">{escape(notes)}</text>\n'
        f"{legend}"
        f'<g transform="translate({MARGIN} {top:.1f}) scale({scale:.5g})">\n{drawing}</g>\n'
        f"{frames}"
        "</svg>\n"
    )


def _summary(plan: Layout, share: int) -> str:
    if plan.chips is None:
        where = "size of a chip not given"
    elif plan.resident:
        where = counted(plan.chips, "chip")
    else:
        where = f"one chip, {counted(plan.loads, 'load')}"
    several = f"; a square is {share} tiles" if share > 1 else ""
    levels = [counted(getattr(plan, f"{noun}s"), noun) for noun in ("tile", "array", "macro")]
    return f"{', '.join(levels)}, {counted(plan.cores, 'core')}; {where}{several}."


def _described(layers: Sequence[Placement]) -> str:
    return " ".join(f"{p.layer}: {p.arrays:,} arrays, {p.utilisation:.1%} used." for p in layers)


def _legend(layers: Sequence[Placement]) -> tuple[str, float]:
    """A swatch, the name, arrays and utilisation of each layer, in columns."""
    across, line = 3, 20
    text = ""
    for index, place in enumerate(layers):
        row, column = divmod(index, across)
        x = MARGIN + column * (WIDTH - 2 * MARGIN) / across
        y = MARGIN + 50 + row * line
        text += (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="12" height="12" fill="{_colour(index)}"/>'
            f'<text x="{x + 18:.0f}" y="{y + 11:.0f}">{escape(place.layer)} '
            f'<tspan class="quiet">{place.arrays:,} arrays, {place.utilisation:.0%} used</tspan>'
            "</text>\n"
        )
    return text, -(-len(layers) // across) * line + 8


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _runs(layers: Sequence[Placement]) -> Iterator[Run]:
    """The tiles of all layers in order of placement, equal neighbours joined."""
    for index, place in enumerate(layers):
        cells = place.array_rows * place.array_columns
        used = [height * width / cells for height, width in place.tiles]
        start = 0
        for end in range(1, len(used) + 1):
            if end == len(used) or used[end] != used[start]:
                yield Run(index, end - start, used[start])
                start = end


def _squares(runs: Iterator[Run], share: int) -> Iterator[tuple[int, float]]:
    """Layer and use of each square: that of the first of its `share` tiles."""
    each = ((run.layer, run.used) for run in runs for _ in range(run.count))
    return islice(each, 0, None, share)


def _levels(plan: Layout, squares: int, share: int) -> list[Level]:
    """The levels from tiles in an array to blocks on the page: chips, or loads of one chip."""
    chip = plan.chip
    counts = [plan.weight_sets, chip.arrays_per_macro, chip.macros_per_core]
    if share > 1:
        counts = [1, 1, 1]
    known = chip.cores is not None and share == 1
    counts.append(chip.cores if known and chip.cores else -(-squares // math.prod(counts)))
    blocks = _blocks(plan) if known else 1
    counts.append(blocks)
    levels: list[Level] = []
    width = height = SIDE
    nested = 0
    for count in counts:
        last = len(levels) == len(counts) - 1
        gap = FRAME_GAP if last and count <= FEW_BLOCKS else 0.4 * nested
        shape = 1.0 if len(levels) < 3 else 1.6
        across = _across(count, math.sqrt(count * shape * (height + gap) / (width + gap)))
        levels.append(Level(count, across, width, height, gap))
        width, height = levels[-1].extent
        nested += count > 1
    return levels


def _across(count: int, wanted: float) -> int:
    """Columns for `count` blocks: about as many as wanted, leaving no hole where that is near."""
    near = min(
        (across for across in range(1, count + 1) if count % across == 0),
        key=lambda across: abs(math.log(across / wanted)),
    )
    if 2 / 3 <= near / wanted <= 3 / 2:
        return near
    return max(1, min(count, round(wanted)))


def _blocks(plan: Layout) -> int:
    return (plan.chips or 1) if plan.resident else plan.loads


def _slots(layers: Sequence[Placement], plan: Layout) -> list[int]:
    """Where each tile lies: arrays take their second tile once every array has one.

    Slots count weight set by weight set in an array, array by array, block by block; each graph
    begins with a load of its own.
    """
    on_chip = plan.chip.arrays
    arrays = plan.arrays if on_chip is None else on_chip * (1 if plan.loads else plan.chips or 1)
    block = arrays * plan.weight_sets
    slots: list[int] = []
    first, graph = 0, ""
    for place in layers:
        own = place.layer.partition(".")[0]
        if plan.loads and own != graph:
            first, graph = -(-first // block) * block, own
        for index in range(first, first + place.arrays):
            start, inside = index - index % block, index % block
            slots.append(start + inside % arrays * plan.weight_sets + inside // arrays)
        first += place.arrays
    return slots


def _position(slot: int, levels: Sequence[Level]) -> tuple[float, float]:
    x = y = 0.0
    for level in levels:
        slot, index = divmod(slot, level.count)
        left, top = level.at(index)
        x, y = x + left, y + top
    return x, y


def _drawing(
    squares: Sequence[tuple[int, float]], slots: Sequence[int], levels: Sequence[Level]
) -> Iterator[str]:
    """One path a layer for its arrays and one for the part of them in use, then free arrays."""
    arrays: dict[int, list[str]] = {}
    filled: dict[int, list[str]] = {}
    for (layer, used), slot in zip(squares, slots, strict=True):
        x, y = _position(slot, levels)
        arrays.setdefault(layer, []).append(_square(x, y, SIDE))
        filled.setdefault(layer, []).append(_square(x, y, SIDE * used))
    for layer, paths in arrays.items():
        colour = _colour(layer)
        yield f'<path fill="{colour}" fill-opacity="0.3" d="{"".join(paths)}"/>\n'
        yield f'<path fill="{colour}" d="{"".join(filled[layer])}"/>\n'
    places = math.prod(level.count for level in levels)
    if places <= 2 * MOST_SQUARES:
        free = sorted(set(range(places)) - set(slots))
        paths = [_square(*_position(slot, levels), SIDE) for slot in free]
        yield f'<path class="free" d="{"".join(paths)}"/>\n'


def _frames(levels: Sequence[Level], plan: Layout, scale: float, top: float) -> Iterator[str]:
    """A frame and a name for each of a few chips, or loads of the one chip."""
    blocks = levels[-1]
    if not 1 < blocks.count <= FEW_BLOCKS:
        return
    what = "chip" if plan.resident else "load"
    for index in range(blocks.count):
        left, above = (at * scale for at in blocks.at(index))
        x, y = MARGIN + left, top + above
        yield (
            f'<rect class="block" x="{x - 4:.1f}" y="{y - 4:.1f}" rx="3" '
            f'width="{blocks.width * scale + 8:.1f}" height="{blocks.height * scale + 8:.1f}"/>'
            f'<text class="quiet" x="{x:.1f}" y="{y - 8:.1f}">{what} {index + 1}</text>\n'
        )


def _square(x: float, y: float, height: float) -> str:
    """A square's path, as high as it is used, from the bottom, with a hair's breadth between."""
    width = SIDE * 0.9
    tall = height * 0.9
    return f"M{x:.5g} {y + width - tall:.5g}h{width:.3g}v{tall:.3g}h-{width:.3g}z"
