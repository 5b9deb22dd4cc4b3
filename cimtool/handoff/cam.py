"""The part `cam/`: a gallery in a content-addressable memory, its queries and right values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cimtool.handoff.formats import NUMBER_BITS, NumberFile
from cimtool.handoff.layers import HandoffPart, HandoffSource
from cimtool.handoff.searches import DrivenSearch

DESCRIPTION = "cam.json"

CAM = {
    "cam_cells": NumberFile(
        "{search}/{words}/cells.hex",
        "the cells of the words of an array; -1: X, which differs from no value. Cells and words "
        "of no item hold 0",
        ("word",),
        "cell",
        "cam_cells",
    ),
    "cam_queries": NumberFile(
        "{search}/{segment}.queries.hex",
        "what a query drives into the arrays in column C; 0 where no item has a cell",
        ("query",),
        "cell",
        "cam_cells",
    ),
    "cam_distances": NumberFile(
        "{search}/{words}/distances.hex",
        "the distance of each word of an array from a query, the sum of its cells' distances",
        ("query",),
        "word",
        "distances",
    ),
    "cam_codes": NumberFile(
        "{search}/{words}/codes.hex",
        "the codes of its converters: floor(distance / step), at most `top`",
        ("query",),
        "word",
        "distances",
    ),
    "cam_sums": NumberFile(
        "{search}/sums.hex",
        "the sum of the codes of an item's words, over all columns of arrays",
        ("query", "item"),
    ),
    "cam_factor": NumberFile(
        "{search}/factor.hex",
        "the factor of the line from an item's sum to its estimate",
        ("item",),
    ),
    "cam_offset": NumberFile("{search}/offset.hex", "what the line adds", ("item",)),
    "cam_estimates": NumberFile(
        "{search}/estimates.hex", "sum x factor + offset of each item", ("query", "item")
    ),
    "cam_shortlist": NumberFile(
        "{search}/shortlist.hex",
        "the items of the smallest estimates, of equal ones the lower item first",
        ("query", "place"),
    ),
}
"""The files of `cam/`."""


def cam_files(search: DrivenSearch, file: NumberFile) -> int:
    """The number of files of a declaration that a search has."""
    segments = len(search.op.words)
    if "{words}" in file.path:
        return segments * -(-search.items // search.height)
    return segments if "{segment}" in file.path else 1


def cam_bytes(source: HandoffSource) -> int:
    """The bytes of the files of a search."""
    search = source.search
    if search is None:
        return 0
    widths = {"number": NUMBER_BITS, **search.widths}
    return sum(
        cam_files(search, file) * file.size(search.extents, widths[file.bits])
        for file in CAM.values()
    )


def write_cam(source: HandoffSource, folder: Path) -> None:
    """Write the files of CAM, and `cam.json`."""
    search = source.search
    assert search is not None
    for column in range(len(search.op.words)):
        queries = search.in_cells(search.queries, column)
        _write(search, folder, "cam_queries", queries, segment=f"c{column}")
    for row, column, items in search.arrays():
        words = search.array(row, column)
        distances = search.distances(column, items)
        _write(search, folder, "cam_cells", search.cells(column, items), words=words)
        _write(search, folder, "cam_distances", distances, words=words)
        _write(search, folder, "cam_codes", search.op.converted(distances), words=words)
    numbers: Mapping[str, np.ndarray] = {
        "cam_sums": search.sums,
        "cam_factor": search.factors,
        "cam_offset": search.offsets,
        "cam_estimates": search.estimates,
        "cam_shortlist": search.shortlist,
    }
    for name, values in numbers.items():
        _write(search, folder, name, values)
    described = {"search": search.name, "queries": search.stimuli, "cam": search.cam.to_json()}
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n", "utf-8")


def _write(search: DrivenSearch, folder: Path, name: str, values: np.ndarray, **names: str) -> None:
    file = CAM[name]
    bits = {"number": NUMBER_BITS, **search.widths}[file.bits]
    file.write(folder, values, bits, search=search.name, **names)


CAM_PART = HandoffPart(
    folder="cam",
    title="A gallery in a content-addressable memory: the cells of its arrays, queries, and the "
    "right values at each tap up to the shortlist",
    write=write_cam,
    size=cam_bytes,
    asked=lambda source: source.search is not None,
    files={DESCRIPTION: "the memory as its file has it, and the names of all queries"},
    formats=CAM,
)
