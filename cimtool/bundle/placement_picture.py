"""A picture of the placement: a square per array, coloured by layer and filled by utilisation.

Arrays are drawn inside macros, macros inside cores, and cores inside chips. If the weights are
loaded in rounds, cores are drawn inside loads of the single chip, after what stays in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from cimtool.hardware.placement import Floorplan, Placement
from cimtool.report import svg
from cimtool.report.formats import counted

WIDTH = 960
MARGIN = 16.0
ACROSS, LINE = 3, 20.0
"""Columns of the legend, and the distance of its lines."""

SIDE = 4.0
LARGEST = 6.0
"""The side of an array's square, and the largest factor by which it is scaled to fill WIDTH."""

FRAME_GAP = 10.0
"""The gap between framed and named chips, in the unit of SIDE."""

FEW_BLOCKS = 40
"""Chips at most that are each drawn in a frame."""

MOST_SQUARES = 30_000
"""Squares at most, to spare the browser; with more tiles, a square stands for several."""

AREAS = 8
"""Number of colours for layers, `a0` to `a7`; further layers repeat them."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of a level: each has `count` children in `across` columns, with gaps between them."""

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
        """Position of a child in its block."""
        row, column = divmod(index, self.across)
        return column * (self.width + self.gap), row * (self.height + self.gap)


def placement_svg(layers: Sequence[Placement], plan: Floorplan, title: str) -> str:
    """Draw where a program's layers lie, as one SVG document."""
    layers = [place for place in layers if place.shares is None]
    share = max(1, -(-plan.tiles // MOST_SQUARES))
    squares = list(islice(_squares(layers), 0, None, share))
    levels = _levels(plan, max(len(squares), 1), share)  # there may be no layer at all
    slots = list(range(len(squares))) if share > 1 else _slots(layers, plan)
    width, height = levels[-1].extent
    scale = min((WIDTH - 2 * MARGIN) / width, LARGEST)
    top = MARGIN + 84.0 + LINE * -(-len(layers) // ACROSS)
    summary = _summary(plan, share)
    described = (f"{p.layer}: {p.arrays:,} arrays, {p.utilisation:.1%} used." for p in layers)
    parts = [
        svg.text(MARGIN, MARGIN + 14, title, style="title"),
        svg.text(MARGIN, MARGIN + 36, summary, style="soft"),
        *_legend(layers),
        svg.group(MARGIN, top, scale, _drawing(squares, slots, levels)),
        *_frames(levels, plan, scale, top),
    ]
    description = " ".join([summary, *described])
    bottom = round(top + height * scale + MARGIN)
    return svg.file_text(WIDTH, bottom, f"Placement of {title}", description, parts)


def _summary(plan: Floorplan, share: int) -> str:
    if plan.chips is None:
        where = "size of a chip not given"
    elif plan.resident:
        where = counted(plan.chips, "chip")
    else:
        where = f"one chip, {counted(plan.loads, 'load')}"
        where += f" of {counted(plan.streaming, 'array')}" if plan.kept else ""
    several = f"; a square is {share} tiles" if share > 1 else ""
    levels = [counted(getattr(plan, f"{noun}s"), noun) for noun in ("tile", "array", "macro")]
    return f"{', '.join(levels)}, {counted(plan.cores, 'core')}; {where}{several}."


def _legend(layers: Sequence[Placement]) -> Iterator[str]:
    """A swatch, the name, the arrays and the utilisation of each layer, in columns."""
    for index, place in enumerate(layers):
        row, column = divmod(index, ACROSS)
        x = MARGIN + column * (WIDTH - 2 * MARGIN) / ACROSS
        y = MARGIN + 50.0 + row * LINE
        used = f"{place.arrays:,} arrays, {place.utilisation:.0%} used"
        yield svg.rect(x, y, 12, 12, _colour(index))
        yield svg.text(x + 18, y + 11, place.layer, soft=used)


def _colour(index: int) -> str:
    return f"a{index % AREAS}"


def _squares(layers: Sequence[Placement]) -> Iterator[tuple[int, float]]:
    """The layer and the used share, 0 to 1, of each tile in the order of placement."""
    for index, place in enumerate(layers):
        cells = place.array_rows * place.array_columns
        for height, width in place.tiles:
            yield index, height * width / cells


def _levels(plan: Floorplan, squares: int, share: int) -> list[Blocks]:
    """The levels from tiles in an array to blocks on the page: chips, or loads of one chip."""
    chip, inner = plan.chip, [1, 1, 1]
    if share == 1:
        inner = [plan.weight_sets, chip.arrays_per_macro, chip.macros_per_core]
    cores = chip.cores if share == 1 else None
    blocks = (plan.loads + bool(plan.kept) or plan.chips or 1) if cores else 1
    counts = [*inner, cores or -(-squares // math.prod(inner)), blocks]
    levels: list[Blocks] = []
    width = height = SIDE
    nested = 0
    for depth, count in enumerate(counts):
        framed = depth == len(inner) + 1 and count <= FEW_BLOCKS
        gap = FRAME_GAP if framed else 0.4 * nested
        shape = 1.0 if depth < len(inner) else 1.6
        across = _across(count, math.sqrt(count * shape * (height + gap) / (width + gap)))
        levels.append(Blocks(count, across, width, height, gap))
        width, height = levels[-1].extent
        nested += count > 1
    return levels


def _across(count: int, wanted: float) -> int:
    """Columns for `count` blocks: a divisor of `count` if one is near `wanted`, else `wanted`."""
    near = min(
        (across for across in range(1, count + 1) if count % across == 0),
        key=lambda across: abs(math.log(across / wanted)),
    )
    if 2 / 3 <= near / wanted <= 3 / 2:
        return near
    return max(1, min(count, round(wanted)))


def _slots(layers: Sequence[Placement], plan: Floorplan) -> list[int]:
    """The slot of each tile: an array gets its second tile after every array has a first tile.

    Slots are numbered by weight set, then array, then block. If weights are loaded in rounds, each
    graph begins with a new load, and what stays is a block before the loads.
    """
    on_chip = plan.chip.arrays
    arrays = plan.arrays if on_chip is None else on_chip * (1 if plan.loads else plan.chips or 1)
    loaded = plan.streaming or arrays
    slots: list[int] = []
    block, filled, kept, graph = int(bool(plan.kept)), 0, 0, ""
    for place in layers:
        stays = place.layer in plan.kept
        if plan.loads and not stays and place.graph != graph:
            block, filled, graph = block + bool(filled), 0, place.graph
        for _ in range(place.arrays):
            inside, across = (kept, arrays - loaded) if stays else (filled, loaded)
            start = 0 if stays else block * arrays * plan.weight_sets
            slots.append(start + inside % across * plan.weight_sets + inside // across)
            if stays:
                kept += 1
                continue
            filled += 1
            if filled == loaded * plan.weight_sets:
                block, filled = block + 1, 0
    return slots


def _position(slot: int, levels: Sequence[Blocks]) -> tuple[float, float]:
    x = y = 0.0
    for level in levels:
        slot, index = divmod(slot, level.count)
        left, top = level.at(index)
        x, y = x + left, y + top
    return x, y


def _drawing(
    squares: Sequence[tuple[int, float]], slots: Sequence[int], levels: Sequence[Blocks]
) -> Iterator[str]:
    """Two paths per layer, for its arrays and for their used part; then a path of free arrays."""
    for layer, tiles in groupby(zip(squares, slots, strict=True), key=lambda tile: tile[0][0]):
        placed = [(*_position(slot, levels), SIDE * used) for (_, used), slot in tiles]
        yield svg.path(f"outline {_colour(layer)}", (_square(x, y, SIDE) for x, y, _ in placed))
        yield svg.path(_colour(layer), (_square(*tile) for tile in placed))
    places = math.prod(level.count for level in levels)
    if places <= 2 * MOST_SQUARES:
        free = sorted(set(range(places)) - set(slots))
        yield svg.path("free", (_square(*_position(slot, levels), SIDE) for slot in free))


def _frames(levels: Sequence[Blocks], plan: Floorplan, scale: float, top: float) -> Iterator[str]:
    """A frame and a name for each chip or load, if there are few."""
    blocks = levels[-1]
    if not 1 < blocks.count <= FEW_BLOCKS:
        return
    width, height = blocks.width * scale + 8, blocks.height * scale + 8
    for index in range(blocks.count):
        left, above = (at * scale for at in blocks.at(index))
        x, y = MARGIN + left, top + above
        yield svg.rect(x - 4, y - 4, width, height, "frame")
        number = index + (0 if plan.kept else 1)
        named = f"{'chip' if plan.resident else 'load'} {number}" if number else "stays"
        yield svg.text(x, y - 8, named, style="soft")


def _square(x: float, y: float, height: float) -> str:
    """The path of a square, filled from the bottom up to `height`, with a thin gap to the next."""
    width = SIDE * 0.9
    tall = height * 0.9
    return f"M{x:.5g} {y + width - tall:.5g}h{width:.3g}v{tall:.3g}h-{width:.3g}z"
