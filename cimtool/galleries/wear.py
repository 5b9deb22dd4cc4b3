"""Wear of a gallery's cells: what a change writes, cell by cell, and where endurance ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import CimError
from cimtool.bundle.ledger import ArrayWrites
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance
from cimtool.hardware.image import ArrayLayout, ImageSpec
from cimtool.hardware.image_file import array_name
from cimtool.hardware.placement import (
    Placement,
    crossbar_layers,
    item_products,
    placed,
    stored_cells,
)
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights, cell_digits
from cimtool.ir.program import Graph

WriteCounts = Mapping[str, Array]
"""Writes [row parts, column parts, rows, columns] of the cells of each stored matrix's arrays."""


class ArrayCells(Protocol):
    """The cells of items in arrays that lie in row parts, and side by side in each."""

    @property
    def row_parts(self) -> int:
        """The number of row parts."""

    def contents(self, row_part: int) -> Array:
        """Contents [column parts, rows, columns] of the arrays of one row part, uint8."""

    def used(self, row_part: int) -> BoolArray:
        """True for the cells of items, in the arrays of one row part."""


class Endurance(Protocol):
    """Figures of a memory's cells, None where they are not given."""

    @property
    def pulses(self) -> float | None:
        """Pulses of a write."""

    @property
    def endurance(self) -> float | None:
        """Pulses that a cell bears."""

    @property
    def programmings(self) -> float | None:
        """Writes that a cell bears."""


@dataclass(frozen=True, eq=False)
class MatrixCells:
    """The cells of one stored matrix, by its arrays.

    Unit and reference columns, which are the same for every gallery, are not among them.
    """

    stored: StoredWeights
    place: Placement
    layout: ArrayLayout

    @property
    def row_parts(self) -> int:
        """The number of row parts."""
        return self.place.row_parts

    def contents(self, row_part: int) -> Array:
        """Contents [column parts, rows, columns] of the arrays of one row part, uint8."""
        return self._laid(cell_digits(self.stored, self._rows(row_part)))

    def used(self, row_part: int) -> BoolArray:
        """True for the cells of items, in the arrays of one row part."""
        code, rows = self.stored.crossbar.weights, self._rows(row_part)
        height = min(rows.stop, self.place.rows) - rows.start
        shape = (height, self.place.columns, code.slices, 1 + code.paired)
        return self._laid(np.ones(shape, np.uint8)).astype(bool)

    def _rows(self, row_part: int) -> slice:
        height = self.place.array_rows
        return slice(row_part * height, (row_part + 1) * height)

    def _laid(self, digits: Array) -> Array:
        return self.layout.cells(digits, np.empty(0, np.uint8))


@dataclass(frozen=True, eq=False)
class WordCells:
    """The cells of items in a content-addressable memory whose arrays have so many `words`.

    The words of an item lie in as many row parts.
    """

    search: CellDistance
    words: int

    @property
    def row_parts(self) -> int:
        """The number of row parts."""
        return len(self.search.words)

    def contents(self, row_part: int) -> Array:
        """Contents [column parts, words, cells] of the arrays of one row part, from 0 on."""
        return self._laid(self._stored(row_part) - DONT_CARE)

    def used(self, row_part: int) -> BoolArray:
        """True for the cells of items, in the arrays of one row part."""
        return self._laid(np.ones_like(self._stored(row_part))).astype(bool)

    def _stored(self, row_part: int) -> IntArray:
        return self.search.stored[:, self.search.words[row_part]]

    def _laid(self, values: IntArray) -> Array:
        items, width = values.shape
        cells = np.zeros((-(-items // self.words) * self.words, self.search.cells), np.uint8)
        cells[:items, :width] = values
        return cells.reshape(-1, self.words, self.search.cells)


def word_cells(graph: Graph, cam: Cam) -> dict[str, WordCells]:
    """The cells of a graph whose items a CAM holds, by the name of its search."""
    searches = graph.operations(CellDistance)
    return {f"{graph.name}.{name}": WordCells(op, cam.array.words) for name, op in searches.items()}


def matrix_cells(graph: Graph, settings: Settings, order: ImageSpec) -> dict[str, MatrixCells]:
    """The cells of the matrices of items of a programmed graph, by the layer that owns each."""
    layers, owners = crossbar_layers(graph), stored_cells(graph)
    found = {}
    stored = (owners[f"{graph.name}.{name}"] for name in item_products(graph))
    for layer in dict.fromkeys(stored):
        op, own = layers[layer], settings.of_layer(layer)
        place = placed(graph.name, layer, op.stored.shape, op.crossbar, own)
        high = 2 if settings.pairs == "rows" else 1
        layout = ArrayLayout(
            rows=settings.rows or place.array_rows * high,
            columns=settings.columns or place.array_columns * place.cells_per_weight // high,
            across=place.array_columns,
            slices=op.crossbar.weights.slices,
            polarities=1 + op.crossbar.weights.paired,
            pairs=settings.pairs,
            auxiliary=0,
            order=order,
        )
        found[layer] = MatrixCells(op.stored, place, layout)
    return found


def first_counts(cells: Mapping[str, ArrayCells]) -> dict[str, Array]:
    """The counts of a gallery programmed into fresh arrays: each of its cells is written once."""
    return counts_after({}, {}, cells)


def counts_after(
    counts: WriteCounts, before: Mapping[str, ArrayCells], after: Mapping[str, ArrayCells]
) -> dict[str, Array]:
    """The counts after a change: one more of each cell whose content differs.

    A cell that held no item before is written whatever it holds: what is left in it of an earlier
    item is not known. Cells that hold no item any more are not written. Raises CimError for counts
    of other arrays.
    """
    found = dict(counts)
    for name, cells in after.items():
        written = np.stack(
            [_written(before.get(name), cells, part) for part in range(cells.row_parts)]
        )
        earlier = counts.get(name, np.zeros((0,) * 4, np.int32))
        shape = tuple(map(max, earlier.shape, written.shape))
        # Arrays grow along one axis alone; a file that says otherwise is not one of these arrays.
        if earlier.ndim != 4 or math.prod(shape) > earlier.size + written.size:
            raise CimError(
                f"{name} has writes of arrays {list(earlier.shape)}; expected arrays like those of "
                f"the gallery, {list(written.shape)}"
            )
        found[name] = _widened(earlier.astype(np.int32), shape) + _widened(written, shape)
    return found


def _written(before: ArrayCells | None, after: ArrayCells, row_part: int) -> BoolArray:
    used = after.used(row_part)
    if before is None:
        return used
    old, new = before.contents(row_part), after.contents(row_part)
    shape = tuple(map(max, old.shape, new.shape))
    same = _widened(old, shape) == _widened(new, shape)
    same &= _widened(before.used(row_part), shape)
    found: BoolArray = _widened(used, shape) & ~same
    return found


def _widened(values: Array, shape: tuple[int, ...]) -> Array:
    """The values with zeros behind them along every axis."""
    return np.pad(values, [(0, most - own) for own, most in zip(values.shape, shape, strict=True)])


def array_writes(counts: WriteCounts) -> dict[str, tuple[ArrayWrites, ...]]:
    """The writes of each array of each matrix."""
    return {
        name: tuple(
            ArrayWrites(array_name(r, c), int(cells.sum(dtype=np.int64)), int(cells.max()))
            for r, row in enumerate(found)
            for c, cells in enumerate(row)
        )
        for name, found in counts.items()
    }


def first_writes(cells: Mapping[str, MatrixCells]) -> dict[str, tuple[ArrayWrites, ...]]:
    """The writes of each array of a gallery in fresh arrays, without looking at any cell."""
    found = {}
    for name, matrix in cells.items():
        place = matrix.place
        numbers = np.ndindex(place.row_parts, place.column_parts)
        found[name] = tuple(
            ArrayWrites(array_name(r, c), height * width * place.cells_per_weight, 1)
            for (r, c), (height, width) in zip(numbers, place.tiles, strict=True)
        )
    return found


def check_endurance(
    writes: Mapping[str, tuple[ArrayWrites, ...]], use: Endurance, target: str
) -> None:
    """Raise CimError where a cell would be written more often than the cells of `target` bear."""
    most = use.programmings
    if most is None:
        return
    for name, arrays in writes.items():
        worst = max(arrays, key=lambda one: one.most_written)
        if worst.most_written > most:
            raise CimError(
                f"{name}: a cell of array {worst.array} would be written {worst.most_written:,} "
                f"times; expected at most {int(most):,}, by endurance = {use.endurance:g} and "
                f"write_pulses = {use.pulses or 1:g} of {target}; program a fresh chip"
            )
