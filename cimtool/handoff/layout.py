"""`layout.json`: what a program needs to read the numbers of a hand-off, and their sizes.

It is made from the declarations that the files are written by (`formats.py`, `steps.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from cimtool.base.toml_files import TomlTable
from cimtool.handoff.cam import CAM
from cimtool.handoff.directed import LINES
from cimtool.handoff.formats import AXES, CAM_AXES, NUMBER_BITS, NumberFile
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.requantiser import DIRECTED
from cimtool.handoff.searches import DrivenSearch
from cimtool.handoff.steps import STEPS, WORDS
from cimtool.hardware.image import BitOrder, PairOrder, RowOrder, WordDigits

LAYOUT = "layout.json"
DIE_BITS = 32
"""Bits of a lane of dies, about: what they are is known when a die is drawn."""

AxisExtent = Annotated[int, Field(ge=0)]


class NumberLayout(TomlTable):
    """A file of numbers: its path, the axes of its numbers, and the bits of each."""

    path: str = Field(
        description="in the hand-off, with names in braces: `layer`, `array` (LAYER/rR.cC), `band` "
        "(LAYER/rR), `group` (gG) and `requantisation` (LAYER/qN) are words of steps.txt, `die` is "
        "dD"
    )
    axes: tuple[str, ...] = Field(
        description="of lines; the last runs fastest. Extents are those of the layer"
    )
    lanes: str | None = Field(
        default=None,
        description="the axis within a line, place 0 in the lowest bits; left out: one number a "
        "line",
    )
    bits: int | None = Field(
        default=None,
        description="of a number, in two's complement, in ceil(bits / 4) hexadecimal digits; left "
        "out: lane_bits in dies/dies.json",
    )
    what: str = Field(description="what the numbers are")


class CellsLayout(TomlTable):
    """The files of cells and flags, whose lines are word lines and row groups.

    The axis `pair` is the positive and the negative cell of a digit. After the cells of all weights
    come the unit column and the reference column.
    """

    path: str = Field(description="of the cells of an array; names in braces as in `files`")
    flags: str = Field(
        description="of the flags of an array, a line for each of its row groups, a bit for each "
        "weight and slice in the order of `columns`; where steps.txt says that there are flags"
    )
    order: RowOrder = Field(description="of word lines in a file")
    rows: tuple[str, ...] = Field(description="axes of word lines, the last runs fastest")
    columns: tuple[str, ...] = Field(description="axes of cells on a word line")
    pair: PairOrder = Field(
        description="the polarity of a pair, and of its lanes, that comes first"
    )
    digits: WordDigits = Field(description="of a word")
    word_bits: int | None = Field(
        default=None, description="of a word; left out: a line is one word"
    )
    bit_order: BitOrder = Field(
        description="the end of a word, its lowest or its highest bit, where cells, and the bits "
        "of a cell, begin"
    )


class TableLayout(TomlTable):
    """A file of lines of decimal numbers with blanks between."""

    path: str = Field(description="in the hand-off; names in braces as in `files`")
    fields: dict[str, str] = Field(description="the numbers of a line, by name")


class LayerLayout(TomlTable):
    """The extents of a layer's axes, and the files that it has."""

    extents: dict[str, AxisExtent] = Field(description="the places of each axis")
    files: tuple[str, ...] = Field(description="names of `files` and `tables`")


class LayoutFile(TomlTable):
    """`layout.json` of a hand-off."""

    format_version: Literal[1] = Field(default=1, description="1; a reader refuses others")
    bundle: str = Field(description="the model's name")
    target: str = Field(description="the target's name")
    axes: dict[str, str] = Field(description="what each axis is")
    files: dict[str, NumberLayout]
    cells: CellsLayout
    lanes: tuple[str, ...] = Field(
        description="axes of converted columns, the last runs fastest; `polarity` has 2 places "
        "where each cell of a pair is converted, in the order of `pair`. The unit column is last"
    )
    tables: dict[str, TableLayout]
    steps: dict[str, dict[str, str]] = Field(
        description="the lines of steps.txt: the fields after the word that begins a line"
    )
    words: tuple[str, ...] = Field(description="fields of steps.txt that are no numbers")
    layers: dict[str, LayerLayout]
    searches: dict[str, LayerLayout] | None = Field(
        default=None, description="of galleries in content-addressable memories"
    )


def layout_fields() -> dict[str, str]:
    """The fields of `layout.json` in words, by their paths; capitals stand for several names."""
    models: tuple[tuple[str, type[TomlTable]], ...] = (
        ("", LayoutFile),
        ("files.NAME.", NumberLayout),
        ("cells.", CellsLayout),
        ("tables.NAME.", TableLayout),
        ("layers.LAYER.", LayerLayout),
    )
    return {
        f"{path}{name}": field.description
        for path, model in models
        for name, field in model.model_fields.items()
        if field.description is not None
    }


def layout_of(source: HandoffSource, parts: Sequence[HandoffPart]) -> LayoutFile:
    """The layout of the files that these parts write."""
    bundle, (first, *_) = source.bundle, source.layers
    order, pairs = first.layout.order, first.image.pairs
    weights = ("weight", "slice") if order.columns == "weight-major" else ("slice", "weight")
    widths = widths_of(source)
    return LayoutFile(
        bundle=bundle.model.name,
        target=bundle.target.name,
        axes=AXES if source.search is None else AXES | CAM_AXES,
        files={
            name: NumberLayout(
                path=f"{part.folder}/{file.path}",
                axes=file.axes,
                lanes=file.lanes or None,
                bits=widths.get(file.bits),
                what=file.what,
            )
            for part in parts
            for name, file in part.formats.items()
        },
        cells=CellsLayout(
            path=f"images/{{array}}/cells.{order.suffix}",
            flags=f"images/{{array}}/flipped.{order.suffix}",
            order=order.rows,
            rows=("row", "pair") if pairs == "rows" else ("row",),
            columns=weights if pairs == "rows" else (*weights, "pair"),
            pair=order.pair,
            digits=order.digits,
            word_bits=order.word_bits,
            bit_order=order.bit_order,
        ),
        lanes=(*weights, "polarity"),
        tables={
            name: TableLayout(path=f"directed/{one.path}", fields=dict(one.fields))
            for name, one in LINES.items()
        }
        if any(part.folder == "directed" for part in parts)
        else {},
        steps=STEPS,
        words=WORDS,
        layers={layer.name: _layer(layer, parts) for layer in source.layers},
        searches=None if source.search is None else {source.search.name: _search(source.search)},
    )


def _layer(layer: DrivenLayer, parts: Sequence[HandoffPart]) -> LayerLayout:
    files = {name: file for part in parts for name, file in part.formats.items()}
    names = [name for name, file in files.items() if files_of(layer, file)]
    if any(part.folder == "directed" for part in parts):
        names += [name for name, one in LINES.items() if not one.where or one.where in layer.facts]
    return LayerLayout(extents=extents(layer), files=tuple(names))


def _search(search: DrivenSearch) -> LayerLayout:
    return LayerLayout(extents=search.extents, files=tuple(CAM))


def widths_of(source: HandoffSource) -> dict[str, int]:
    """The bits of numbers and lanes, by the names that `NumberFile.bits` gives; without dies'."""
    searched = {} if source.search is None else source.search.widths
    return {"number": NUMBER_BITS, **vars(source.lanes), **searched}


def extents(layer: DrivenLayer) -> dict[str, int]:
    """The extents of a layer's axes in the order of AXES; `stage` is a requantisation's most."""
    crossbar, image, tables = layer.op.crossbar, layer.image, layer.tables
    found = {
        "vector": len(layer.x),
        "cycle": len(crossbar.cycles),
        "row": image.array_rows,
        "pair": image.polarities,
        "weight": layer.layout.across,
        "slice": layer.layout.slices,
        "polarity": layer.polarities,
        "lane": layer.lanes,
        "column": image.columns,
        "converter": crossbar.slices + crossbar.unit_column,
        "reference": crossbar.reference_cycles,
        "stage": max([0, *(len(one.affine) for one in layer.requantisations.values())]),
        "term": 4,
        "input": DIRECTED,
    }
    if layer.writes is not None:
        found |= {"digit": len(layer.writes.bounds), "bound": 3}
    if tables:
        levels = len(tables[0].levels)
        found |= {"table": len(tables), "threshold": levels - 1, "level": levels}
    return {axis: found[axis] for axis in AXES if axis in found}


def files_of(layer: DrivenLayer, file: NumberFile) -> int:
    """The number of files of a declaration that a layer has; of `dies/`, for one die."""
    if file.of_search or (file.where and file.where not in layer.facts):
        return 0
    groups, across = list(layer.groups()), len(layer.arrays(0))
    if "{group}" in file.path:
        return len(groups) * (across if "{array}" in file.path else 1)
    if "{array}" in file.path:
        return (groups[-1][0] + 1) * across
    return len(layer.requantisations) if "{requantisation}" in file.path else 1


def part_bytes(part: HandoffPart, source: HandoffSource) -> int:
    """The bytes that a part of a hand-off takes, about: widths of dies are not known before."""
    total = part.size(source)
    noise = source.request.noise
    for layer in source.layers if part.formats else ():
        widths, sizes = widths_of(source), extents(layer)
        for file in part.formats.values():
            count = files_of(layer, file)
            if noise is not None and "{die}" in file.path:
                count *= noise.trials
            if count:
                total += count * file.size(sizes, widths.get(file.bits, DIE_BITS))
    return total
