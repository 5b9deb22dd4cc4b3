"""FORMAT.md: every file of a hand-off, with lines of this one worked by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cimtool.handoff.directed import LINES
from cimtool.handoff.formats import PLACES, WHERE, LineFile, NumberFile
from cimtool.handoff.json_fields import (
    CAM_FIELDS,
    COVERAGE_FIELDS,
    DIES_FIELDS,
    HANDOFF_FIELDS,
    IMAGES_FIELDS,
    TAPS_FIELDS,
)
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.layout import LayoutFile, extents, layout_fields, widths_of
from cimtool.handoff.steps import STEPS, STEPS_FILE
from cimtool.handoff.worked import Worked
from cimtool.report.page import render_file

FORMAT = "FORMAT.md"
DIE_LANES = {"die_cells": "cells", "die_sums": "sums", "die_codes": "codes"}
"""Widths of lanes in `dies.json`, by the name of a file's bits."""

ENDING = 36
"""Digits of a line that are shown, at its end."""


def format_text(
    source: HandoffSource, parts: Sequence[HandoffPart], folder: Path, layout: LayoutFile
) -> str:
    """The text of FORMAT.md for files that are written already."""
    shown = {part.folder: part for part in parts}
    text = render_file(
        "cimtool.handoff",
        "format.md",
        layout=layout,
        shown=shown,
        axes=layout.axes,
        driven=layout.layers | (layout.searches or {}),
        written=any(one.writes is not None for one in source.layers),
        where=WHERE,
        steps=[(word, STEPS[word], line) for word, line in _step_examples(folder).items()],
        examples={
            name: _example(source, part, name, folder) for part in parts for name in part.formats
        },
        cells=_cells(source.layers, folder, layout) if "images" in shown else [],
        lines=[
            (one.path.format(**PLACES), one, _line_example(source.layers, folder, one))
            for one in (LINES.values() if "directed" in shown else ())
        ],
        coverage_fields=COVERAGE_FIELDS,
        handoff_fields=HANDOFF_FIELDS,
        layout_fields=layout_fields(),
        images_fields=IMAGES_FIELDS,
        taps_fields=TAPS_FIELDS,
        cam_fields=CAM_FIELDS,
        dies_fields=DIES_FIELDS,
        sums=any(part.checks or part.goals for part in parts),
        worked=list(Worked(source.layers[0]).lines()) if "taps" in shown else [],
    )
    return text + "\n"


def _step_examples(folder: Path) -> dict[str, str]:
    """The first line of each word, in the order of STEPS."""
    found: dict[str, str] = {}
    for line in (folder / STEPS_FILE).read_text("utf-8").splitlines():
        found.setdefault(line.split(" ")[0], line)
    return {word: found[word] for word in STEPS if word in found}


def _example(source: HandoffSource, part: HandoffPart, name: str, folder: Path) -> str:
    """A line of a file that this hand-off has, and its first two numbers; or that none has it."""
    file = part.formats[name]
    if file.of_search:
        assert source.search is not None
        own = {"search": source.search.name, "words": "r0.c0", "segment": "c0"}
        path = f"{part.folder}/{file.path.format(**own)}"
        return _line_worked(file, path, folder, widths_of(source)[file.bits], source.search.extents)
    for layer in source.layers:
        for place in layer.requantisations or ["none"]:
            names = PLACES | {
                "layer": layer.name,
                "array": f"{layer.name}/r0.c0",
                "band": f"{layer.name}/r0",
                "group": "g0",
                "requantisation": place,
                "die": "d0",
            }
            path = f"{part.folder}/{file.path.format(**names)}"
            if (folder / path).is_file():
                return _line_worked(
                    file, path, folder, _bits(source, file, layer, folder), extents(layer)
                )
    return "No layer of this hand-off has it."


def _bits(source: HandoffSource, file: NumberFile, layer: DrivenLayer, folder: Path) -> int:
    widths = widths_of(source)
    if file.bits in widths:
        return widths[file.bits]
    dies = json.loads((folder / "dies" / "dies.json").read_text("utf-8"))
    held: dict[str, int] = dies["layers"][f"d0/{layer.name}"]["lane_bits"]
    return held[DIE_LANES[file.bits]]


def _line_worked(
    file: NumberFile, path: str, folder: Path, bits: int, sizes: Mapping[str, int]
) -> str:
    """The first line whose first number is not 0, or else the first, and what it says."""
    lines, digits = (folder / path).read_text("ascii").splitlines(), -(-bits // 4)
    index = next((n for n, line in enumerate(lines) if int(line[-digits:], 16)), 0)
    line, shape = lines[index], [sizes[axis] for axis in file.axes]
    if "stage" in file.axes:
        shape[0] = len(lines) // (shape[1] * shape[2])
    places = np.unravel_index(index, shape)
    at = ", ".join(f"{axis} {place}" for axis, place in zip(file.axes, places, strict=True))
    shown = line if len(line) <= ENDING else f"...{line[-ENDING:]}"
    if not file.lanes:
        return f"`{path}`, line {index + 1} ({at}): {_number(line, bits)}."
    told = f"`{path}`, line {index + 1} ({at}) of {len(line)} digits: `{shown}`. Of the lanes, "
    told += f"{file.lanes} 0 is its last {digits} digits, {_number(line[-digits:], bits)}"
    if len(line) == digits:
        return f"{told}."
    return f"{told}; {file.lanes} 1 those before, {_number(line[-2 * digits : -digits], bits)}."


def _number(text: str, bits: int) -> str:
    """A number of two's complement, in hexadecimal digits and as what it is."""
    value = int(text, 16)
    if value >> bits - 1:
        return f"`{text}` = {value - (1 << bits)}"
    return f"`{text}` = {value}"


def _cells(layers: Sequence[DrivenLayer], folder: Path, layout: LayoutFile) -> list[str]:
    """A line of cells of the first array, and the first weight that it holds."""
    layer = layers[0]
    path = layout.cells.path.format(array=f"{layer.cells}/r0.c0")
    order, places, bits = layer.layout.order, layer.layout, layer.image.cell_bits
    content = (folder / path).read_bytes()
    lines = content.decode("ascii").splitlines()
    number = len(lines) if order.rows == "descending" else 1
    line = lines[number - 1]
    shown = line if len(line) <= ENDING else f"...{line[-ENDING:]}"
    if order.bit_order == "msb-first" and len(line) > ENDING:
        shown = f"{line[:ENDING]}..."
    cells = order.in_rows(order.cells(content, places.rows, places.columns, bits))[None]
    held = places.digits(cells, slice(0, 1))[0, 0]
    code, stored = layer.image, layer.op.stored
    per = 1 + layer.op.crossbar.columns_by_polarity
    terms, total = [], -code.offset
    for k, one in enumerate(code.slices):
        pair = [int(n) for n in held[k]]
        value = pair[0] - pair[1] if code.polarities == 2 else pair[0]
        text = " - ".join(map(str, pair))
        if one.signed and value >> bits - 1:
            value, text = value - (1 << bits), f"{value} - {1 << bits}"
        value, text = value - code.baseline, f"{text} - {code.baseline}" if code.baseline else text
        if code.flips and stored.slices[k * per].flipped[0, 0]:
            value, text = code.complement - value, f"{code.complement} - ({text}), flagged,"
        total += one.sign * one.factor * value << one.shift
        terms.append(
            f"slice {k}: {text} = {value}, which counts {one.sign * one.factor} << {one.shift}"
        )
    return [
        f"`{path}`, line {number}, is word line 0: `{shown}`.",
        f"Row 0, weight 0, {'; '.join(terms)}. Together, less the offset {code.offset}: the weight "
        f"is {total}.",
    ]


def _line_example(layers: Sequence[DrivenLayer], folder: Path, one: LineFile) -> str:
    """The last line of such a file, of the first layer that has one."""
    for layer in layers:
        path = f"directed/{one.path.format(layer=layer.name)}"
        file = folder / path
        if file.is_file() and (lines := file.read_text("ascii").splitlines()):
            fields = zip(one.fields, lines[-1].split(), strict=True)
            told = ", ".join(f"{name} {value}" for name, value in fields)
            return f"`{path}`, last line: `{lines[-1]}` is {told}."
    return "No layer of this hand-off has it."
