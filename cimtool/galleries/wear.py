"""Wear of a gallery's cells: the writes of each cell by a change, and the limit of endurance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.errors import CimError
from cimtool.bundle.ledger import ArrayWrites
from cimtool.costs.cam_search import CamUse
from cimtool.costs.memory_use import MemoryUse
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance
from cimtool.hardware.image import ArrayLayout, ImageSpec
from cimtool.hardware.image_file import array_name
from cimtool.hardware.placement import crossbar_layers, item_products, placed, stored_cells
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import cell_digits
from cimtool.ir.program import Graph

WriteCounts = Mapping[str, Array]
"""Writes [row parts, column parts, rows, columns] of the cells of each stored matrix's arrays."""


@dataclass(frozen=True, eq=False)
class ArrayCells:
    """The cells of items in arrays: `row_parts` row parts, each with arrays side by side.

    `laid(row_part)` gives the contents [column parts, rows, columns] of the arrays of one row part,
    uint8, and a mask of the cells that belong to items.
    """

    row_parts: int
    laid: Callable[[int], tuple[Array, BoolArray]]


def word_cells(graph: Graph, cam: Cam) -> dict[str, ArrayCells]:
    """The cells of a graph whose items a CAM holds, by the name of its search.

    Each word of an item is in another row part.
    """
    height = cam.array.words

    def cells(search: CellDistance) -> ArrayCells:
        items, parts = len(search.stored), search.words
        shape = -(-items // height) * height, search.cells

        def laid(row_part: int) -> tuple[Array, BoolArray]:
            values = search.stored[:, parts[row_part]]
            contents, used = np.zeros(shape, np.uint8), np.zeros(shape, np.bool_)
            contents[:items, : values.shape[1]] = values - DONT_CARE
            used[:items, : values.shape[1]] = True
            arrays = -1, height, search.cells
            return contents.reshape(arrays), used.reshape(arrays)

        return ArrayCells(len(parts), laid)

    return {
        f"{graph.name}.{name}": cells(op) for name, op in graph.operations(CellDistance).items()
    }


def matrix_cells(graph: Graph, settings: Settings, order: ImageSpec) -> dict[str, ArrayCells]:
    """The cells of the item matrices of a programmed graph, by the layer that owns each matrix.

    Unit and reference columns are left out; they are the same for every gallery.
    """
    layers, owners = crossbar_layers(graph), stored_cells(graph)

    def cells(layer: str) -> ArrayCells:
        op, own = layers[layer], settings.of_layer(layer)
        place = placed(graph.name, layer, op.stored.shape, op.crossbar, own)
        code, high = op.crossbar.weights, 2 if settings.pairs == "rows" else 1
        layout = ArrayLayout(
            rows=settings.rows or place.array_rows * high,
            columns=settings.columns or place.array_columns * place.cells_per_weight // high,
            across=place.array_columns,
            slices=code.slices,
            polarities=1 + code.paired,
            pairs=settings.pairs,
            auxiliary=0,
            order=order,
        )

        def laid(row_part: int) -> tuple[Array, BoolArray]:
            start, none = row_part * place.array_rows, np.empty(0, np.uint8)
            stop = min(start + place.array_rows, place.rows)
            shape = stop - start, place.columns, code.slices, 1 + code.paired
            contents = layout.cells(cell_digits(op.stored, slice(start, stop)), none)
            return contents, layout.cells(np.ones(shape, np.uint8), none).astype(bool)

        return ArrayCells(place.row_parts, laid)

    stored = (owners[f"{graph.name}.{name}"] for name in item_products(graph))
    return {layer: cells(layer) for layer in dict.fromkeys(stored)}


def first_counts(cells: Mapping[str, ArrayCells]) -> dict[str, Array]:
    """The counts of a gallery programmed into fresh arrays: each cell is written once."""
    return counts_after({}, {}, cells)


def counts_after(
    counts: WriteCounts, before: Mapping[str, ArrayCells], after: Mapping[str, ArrayCells]
) -> dict[str, Array]:
    """The counts after a change: plus one for each cell whose content differs.

    A cell that held no item before is always written, as its content is not known. A cell that no
    longer holds an item is not written. Raises CimError for counts of other arrays.
    """
    found = dict(counts)
    for name, cells in after.items():
        written = np.stack(
            [_written(before.get(name), cells, part) for part in range(cells.row_parts)]
        )
        earlier = counts.get(name, np.zeros((0,) * 4, np.int32))
        shape = tuple(map(max, earlier.shape, written.shape))
        # Arrays grow along one axis only; other shapes mean counts of other arrays.
        if earlier.ndim != 4 or math.prod(shape) > earlier.size + written.size:
            raise CimError(
                f"{name} counts writes of arrays {list(earlier.shape)}; expected the arrays of the "
                f"gallery, {list(written.shape)}"
            )
        found[name] = _widened(earlier.astype(np.int32), shape) + _widened(written, shape)
    return found


def _written(before: ArrayCells | None, after: ArrayCells, row_part: int) -> BoolArray:
    """The cells of one row part that a change writes."""
    new, used = after.laid(row_part)
    if before is None:
        return used
    old, held = before.laid(row_part)
    shape = tuple(map(max, old.shape, new.shape))
    same = (_widened(old, shape) == _widened(new, shape)) & _widened(held, shape)
    found: BoolArray = _widened(used, shape) & ~same
    return found


def _widened(values: Array, shape: tuple[int, ...]) -> Array:
    """The values padded with zeros at the end of each axis."""
    return np.pad(values, [(0, most - own) for own, most in zip(values.shape, shape, strict=True)])


def first_writes(cells: Mapping[str, ArrayCells]) -> dict[str, tuple[ArrayWrites, ...]]:
    """The writes of each array of a gallery programmed into fresh arrays."""
    return {
        name: tuple(
            ArrayWrites(array_name(r, c), int(used.sum()), 1)
            for r in range(held.row_parts)
            for c, used in enumerate(held.laid(r)[1])
        )
        for name, held in cells.items()
    }


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


def check_endurance(
    writes: Mapping[str, tuple[ArrayWrites, ...]], use: MemoryUse | CamUse, target: str
) -> None:
    """Raise CimError if a cell would be written more often than a cell of `target` endures."""
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
