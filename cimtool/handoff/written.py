"""Reading of a hand-off folder: checksums of all files, and the weights from their cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from cimtool.base.arrays import Array, IntArray, blocks
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.json_files import read_table
from cimtool.base.toml_files import TomlTable, validated
from cimtool.base.untrusted import NUMBER, Budget, read_bounded
from cimtool.bundle.inspect import Described, Facts
from cimtool.hardware.image_file import (
    CELLS,
    FLIPPED,
    IMAGES,
    ArrayImage,
    ImagesFile,
    LayerImage,
    Sha256,
    array_name,
    weights_digest,
)

HANDOFF = "handoff.json"


class HandoffFolder(Described, name="handoff"):
    """A hand-off: every file is checked, and weights are read back from the cells."""

    file = HANDOFF

    @classmethod
    def facts(cls, folder: Path) -> Facts:
        """The hand-off's layers and arrays."""
        return describe_handoff(folder)


class HandoffFile(TomlTable):
    """`handoff.json`: the parts of a hand-off, and the SHA-256 of each file by its path."""

    model_config = ConfigDict(extra="ignore")

    format_version: Literal[1]
    bundle: str
    parts: tuple[str, ...] = Field(default=("images",), strict=False)
    files: dict[str, Sha256] = Field(description="a table of SHA-256 by path")


def describe_handoff(folder: Path) -> dict[str, Any]:
    """Verify a hand-off folder, or an export of some parts of it, and summarise its images.

    Raises CimError for the first file that is missing or changed; if cells do not match their check
    sums, it names array, row and column. Raises CimError also for weights that were not exported.
    """
    listed = validated(HandoffFile, read_table(folder / HANDOFF, "export"), str(folder / HANDOFF))
    images = f"images/{IMAGES}"
    if "images" not in listed.parts:
        for name in sorted(listed.files):
            _check(folder, name, listed.files[name])
        return {
            "kind": "parts of a hand-off",
            "bundle": listed.bundle,
            "files": len(listed.files),
            "parts": list(listed.parts),
        }
    _check(folder, images, listed.files.get(images))
    held = validated(ImagesFile, read_table(folder / images, "export"), str(folder / images))
    # Cells come last: their error names array, row and column.
    cells = {f"images/{name}" for name in _files(held, CELLS)}
    others = {f"images/{name}" for name in _files(held, FLIPPED)}
    for name in sorted(others | listed.files.keys() - cells):
        _check(folder, name, listed.files.get(name))
    layers = {
        name: _layer(folder / "images", name, layer, held, listed.files)
        for name, layer in held.layers.items()
    }
    return {
        "kind": "hand-off",
        "bundle": listed.bundle,
        "files": len(listed.files),
        "array": f"{held.array_rows} x {held.array_columns} cells",
        "order": held.order.model_dump(exclude_none=True),
        "layers": layers,
    }


def _layer(
    folder: Path, name: str, layer: LayerImage, images: ImagesFile, files: Mapping[str, str]
) -> str:
    """Verify the arrays of a layer, and describe it."""
    digest = weights_digest(read_weights(folder, name, layer, images))
    for one in layer.arrays:
        path = f"{folder.name}/{_file(name, one, CELLS, images)}"
        _check(folder.parent, path, files.get(path))
    if digest != layer.weights_sha256:
        raise CimError(
            f"{folder / name}: weights read back differ from the bundle's (their SHA-256 is not "
            f"the one in {IMAGES}); export again"
        )
    return f"{layer.rows} x {layer.columns} weights read back (arrays: {len(layer.arrays)})"


BLOCK = 1 << 20
"""Cells whose digits are widened to 64-bit integers at a time."""


def read_weights(
    folder: Path, name: str, layer: LayerImage, images: ImagesFile
) -> Iterator[IntArray]:
    """Yield the weights of a layer whose images are in `folder`, row by row, in blocks.

    Sums are verified. Cells and flags are held as bytes, for one row of arrays at a time.
    """
    _check_layer(folder / IMAGES, name, layer, images)
    layout, across = layer.layout(images), -(-layer.columns // layer.array_columns)
    starts = np.array([start for start, _ in layer.row_groups])
    each = len(layer.slices) * layer.polarities
    for r, first in enumerate(range(0, layer.rows, layer.array_rows)):
        stop = min(first + layer.array_rows, layer.rows)
        own = layer.arrays[r * across : (r + 1) * across]
        cells = np.stack([_cells(folder, name, one, layer, images) for one in own])
        begin, end = np.searchsorted(starts, (first, stop))
        flags = None
        if layer.flips:
            files = [folder / _file(name, one, FLIPPED, images) for one in own]
            width = layout.across * layout.slices
            read = [
                layout.unlaned(_image(file, int(end - begin), width, 1, images)) for file in files
            ]
            flags = np.stack(read, axis=1).reshape(end - begin, -1, len(layer.slices))
        for rows in blocks(stop - first, BLOCK // (layer.columns * each)):
            digits = layout.digits(cells, rows)[:, : layer.columns]
            digits = digits.reshape(-1, len(layer.slices), layer.polarities)
            numbers = np.arange(first + rows.start, first + rows.stop)
            groups = np.searchsorted(starts[begin:end], numbers, side="right") - 1
            for part in blocks(len(digits), BLOCK // each):
                flipped = None
                if flags is not None:
                    row, column = np.divmod(np.arange(part.start, part.stop), layer.columns)
                    flipped = flags[groups[row], column]
                yield layer.weights(digits[part], flipped)


def _files(images: ImagesFile, what: str) -> list[str]:
    """The files of cells of all arrays, or the files of flags of arrays that have flags."""
    return [
        _file(name, one, what, images)
        for name, layer in images.layers.items()
        if what == CELLS or layer.flips
        for one in layer.arrays
    ]


def _file(layer: str, array: ArrayImage, what: str, images: ImagesFile) -> str:
    return f"{layer}/{array.name}/{what}.{images.order.suffix}"


def _cells(
    folder: Path, layer_name: str, array: ArrayImage, layer: LayerImage, images: ImagesFile
) -> Array:
    """The cells [rows, columns] of an array, verified by their sums."""
    name = _file(layer_name, array, CELLS, images)
    extents = images.array_rows, images.array_columns, layer.cell_bits
    cells = images.order.in_rows(_image(folder / name, *extents, images))
    row, column = (
        next((i for i, (a, b) in enumerate(zip(found, held, strict=True)) if a != b), None)
        for found, held in (
            (cells.sum(axis=1, dtype=np.int64).tolist(), array.row_sums),
            (cells.sum(axis=0, dtype=np.int64).tolist(), array.column_sums),
        )
    )
    if row is not None or column is not None:
        places = (f"row {row}" * (row is not None), f"column {column}" * (column is not None))
        raise CimError(
            f"{folder / name}: array {array.name} of {layer_name} does not match its checksums, "
            f"first in {' and '.join(filter(None, places))}; expected the image as exported"
        )
    return cells


def _image(file: Path, rows: int, columns: int, bits: int, images: ImagesFile) -> Array:
    """The numbers [rows, columns] of an image; its size is verified before it is read."""
    size = rows * images.order.line_bytes(columns * bits)
    if not file.is_file():
        raise CimError(f"{file}: is missing from the hand-off; export again")
    found = file.stat().st_size
    if found != size:
        raise CimError(
            f"{file}: has {found:,} bytes; expected {size:,}, {rows} lines of {columns} cells of "
            f"{bits} bits"
        )
    budget = Budget.of(file)
    budget.take_file(file)
    budget.take(-(-rows * columns // NUMBER), NUMBER, f"{file}: it")
    text = read_bounded(file, size)
    try:
        return images.order.cells(text, rows, columns, bits)
    except ValueError as error:
        raise CimError(f"{file}: {error}; expected the image as exported") from None


def _check_layer(file: Path, name: str, layer: LayerImage, images: ImagesFile) -> None:
    """Raise CimError for a layer whose arrays or row groups do not match its extents."""
    layout = layer.layout(images)
    across, down = -(-layer.columns // layer.array_columns), -(-layer.rows // layer.array_rows)
    places = product(range(down), range(across))
    ends = [0, *(stop for _, stop in layer.row_groups)]
    begin = {start for start, _ in layer.row_groups}
    whole = (
        NAME.fullmatch(name) is not None
        and len(layer.arrays) == down * across
        and all(one.name == array_name(*at) for one, at in zip(layer.arrays, places, strict=True))
        and all(len(one.row_sums) == images.array_rows for one in layer.arrays)
        and all(len(one.column_sums) == images.array_columns for one in layer.arrays)
        and [start for start, _ in layer.row_groups] == ends[:-1]
        and all(one < after for one, after in pairwise(ends))
        and ends[-1] == layer.rows
        and begin.issuperset(range(0, layer.rows, layer.array_rows))
        and layout.own_columns + layout.auxiliary <= images.array_columns
        and layer.array_rows * layout.rows_per_weight <= images.array_rows
    )
    if not whole:
        raise CimError(
            f"{file}: layers.{name} has arrays, sums or row groups that do not match its "
            f"{layer.rows} x {layer.columns} weights; export again"
        )


NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.+-]{0,199}")
"""Names of files and folders in a hand-off; their length fits file systems."""

DEEPEST_FOLDER = 16
"""Names at most in the path of a file in a hand-off."""


def _check(folder: Path, name: str, digest: str | None) -> None:
    """Raise CimError for a file that is missing, outside the folder, unlisted or changed."""
    file = folder / name
    if digest is None:
        raise CimError(f"{file}: is not listed in {HANDOFF}; export again")
    names = name.split("/")
    if len(names) > DEEPEST_FOLDER or not all(map(NAME.fullmatch, names)):
        raise CimError(f"{folder / HANDOFF}: files names {name!r}, which is not in the folder")
    if file.is_symlink() or not file.is_file():
        raise CimError(f"{file}: is missing from the hand-off; export again")
    if sha256(file) != digest:
        raise CimError(
            f"{file}: changed since it was exported (its SHA-256 differs from the one in "
            f"{HANDOFF}); export again"
        )
