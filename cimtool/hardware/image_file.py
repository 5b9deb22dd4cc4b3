"""`images.json`: the layers and arrays whose cells images hold, and the sums of these cells."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from cimtool.base.arrays import Array, IntArray
from cimtool.base.toml_files import TomlTable
from cimtool.hardware.image import ArrayLayout, ImageSpec
from cimtool.hardware.keys import PairAxis

CellCount = Annotated[int, Field(ge=1, le=1 << 24)]
PlaceNumber = Annotated[int, Field(ge=0, le=1 << 24)]
PlaceRange = Annotated[tuple[PlaceNumber, PlaceNumber], Field(strict=False)]
Checksums = Annotated[tuple[Annotated[int, Field(ge=0, le=1 << 32)], ...], Field(strict=False)]
WholeNumber = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits")]


class ImageSlice(TomlTable):
    """A slice, whose digits count `sign * factor << shift`; `signed` are in two's complement."""

    shift: Annotated[int, Field(ge=0, le=62)]
    sign: Literal[-1, 1]
    signed: bool
    factor: Annotated[int, Field(ge=1, le=(1 << 16) - 1)] = 1


class ArrayImage(TomlTable):
    """An array: its name within the layer, its place, its weights, and sums of its cells.

    `number` counts arrays as they are placed, `core` the cores of a chip.
    """

    name: str
    number: PlaceNumber
    core: PlaceNumber
    rows: PlaceRange
    columns: PlaceRange
    row_sums: Checksums
    column_sums: Checksums


class LayerImage(TomlTable):
    """A layer's weights [rows, columns] in images of arrays.

    An array holds `array_rows` x `array_columns` weights. The weight is the sum of its digits, each
    less `baseline`, times what they count, less `offset`; a flag in an array's `flipped` makes it
    `complement` less the digit.
    """

    rows: CellCount
    columns: CellCount
    array_rows: CellCount
    array_columns: CellCount
    encoding: str
    weight_bits: Annotated[int, Field(ge=1, le=62)]
    cell_bits: Annotated[int, Field(ge=1, le=8)]
    slices: Annotated[tuple[ImageSlice, ...], Field(strict=False, min_length=1, max_length=64)]
    polarities: Literal[1, 2]
    pairs: PairAxis
    baseline: Annotated[int, Field(ge=0, le=255)]
    complement: WholeNumber
    offset: WholeNumber
    flips: bool
    unit_column: bool
    reference_column: bool
    row_groups: Annotated[tuple[PlaceRange, ...], Field(strict=False)]
    weights_sha256: Sha256
    arrays: Annotated[tuple[ArrayImage, ...], Field(strict=False)]

    def layout(self, images: ImagesFile) -> ArrayLayout:
        """The places of its cells in an array of this many rows and columns of cells."""
        return ArrayLayout(
            rows=images.array_rows,
            columns=images.array_columns,
            across=self.array_columns,
            slices=len(self.slices),
            polarities=self.polarities,
            pairs=self.pairs,
            auxiliary=self.unit_column + self.reference_column,
            order=images.order,
        )

    def weights(self, digits: Array, flipped: Array | None) -> IntArray:
        """Weights [n] by the digits [n, slices, polarities] of their cells.

        `flipped` [n, slices] are the flags of their row groups.
        """
        total = np.full(len(digits), -self.offset, np.int64)
        for k, one in enumerate(self.slices):
            held = digits[:, k].astype(np.int64)
            value = held[:, 0] - held[:, 1] if self.polarities == 2 else held[:, 0]
            if one.signed:
                half = 1 << self.cell_bits - 1
                value = (value ^ half) - half
            value = value - self.baseline
            if flipped is not None:
                value = np.where(flipped[:, k], self.complement - value, value)
            total += one.sign * one.factor * value << one.shift
        return total


class ImagesFile(TomlTable):
    """`images.json`: arrays of `array_rows` x `array_columns` cells, and the layers in them."""

    format_version: Literal[1] = 1
    order: ImageSpec
    array_rows: CellCount
    array_columns: CellCount
    layers: dict[str, LayerImage]


def weights_digest(parts: Iterable[IntArray]) -> str:
    """The SHA-256 of weights in the order of rows, as little-endian integers of 64 bits."""
    digest = hashlib.sha256()
    for weights in parts:
        digest.update(np.ascontiguousarray(weights, "<i8").data)
    return digest.hexdigest()


IMAGES = "images.json"
CELLS, FLIPPED = "cells", "flipped"


def array_name(row: int, column: int) -> str:
    """The name of the array in this many rows and columns of arrays of a layer."""
    return f"r{row}.c{column}"
