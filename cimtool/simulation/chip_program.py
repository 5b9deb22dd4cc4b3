"""A program on a measured chip, with its cell conductances and its converter thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import CimError
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import (
    Arrays,
    CellBand,
    CellLevels,
    PhysicalLayout,
    cells_with,
    column_blocks,
    device_digits,
    digit_errors,
    layout_of,
    row_blocks,
)
from cimtool.hardware.noise.mvm import MeasuredConverters, NoisyMvm
from cimtool.hardware.placement import crossbar_layers, stored_cells
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.program import Program
from cimtool.ir.types import Type
from cimtool.simulation.compensation import ReadoutCost
from cimtool.simulation.die_program import (
    DieProgram,
    LayerOnArrays,
    arrays_of,
    check_analog,
    converter_numbers,
    layer_with,
    with_layers,
)


@dataclass(frozen=True, eq=False)
class LayerOfChip:
    """A layer's cells on a chip. The layer's first array has the number `first`.

    Arrays are numbered in the order of placement: first all arrays with the first rows of weights,
    from left to right, then those with the next rows.
    """

    name: str
    stored: StoredWeights
    arrays: Arrays
    first: int

    @property
    def cells(self) -> int:
        """Count the cells, reference columns included."""
        return sum(rows * columns for rows, columns in self.shapes)

    @property
    def cells_per_weight(self) -> int:
        """Cells per weight: one per slice, or two if a slice is a pair of cells."""
        return len(self.stored.slices) * (1 + self.stored.crossbar.by_difference)

    @property
    def layout(self) -> PhysicalLayout:
        """The positions of cells in an array."""
        return layout_of(self.stored, self.arrays, self.cells_per_weight)

    def levels(self, full: float) -> CellLevels:
        """Target conductances if a cell with the largest digit conducts `full` uS."""
        top = self.stored.crossbar.weights.cell_maximum
        return CellLevels(full, top, self.arrays.on_off_ratio)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of cells in each array."""
        layout = self.layout
        return [
            (
                (rows.stop - rows.start) * layout.rows_per_weight,
                (columns.stop - columns.start) * layout.columns_per_weight + layout.references,
            )
            for rows in row_blocks(self.stored)
            for columns in column_blocks(self.stored, self.arrays)
        ]

    def bands(self) -> Iterator[tuple[slice, CellBand]]:
        """Yield each band of arrays: its rows of weights and the digits of their cells."""
        for rows in row_blocks(self.stored):
            yield rows, device_digits(self.stored, rows, self.arrays)

    def on_arrays(self, band: CellBand) -> Iterator[Array]:
        """Split a band's cells into its arrays [rows, columns]."""
        for number, columns in enumerate(column_blocks(self.stored, self.arrays)):
            yield self.layout.cells(band, number, columns)

    def with_arrays(self, matrices: Mapping[int, FloatArray], full: float) -> Cells:
        """The layer's cells with conductances `matrices` [rows, columns] in uS, by array number.

        A cell keeps its target if its conductance is NaN or its array has no matrix.
        """
        levels, stored = self.levels(full), self.stored
        error = np.empty((len(stored.slices), *stored.shape), np.float32)
        number = 0
        for rows, digits in self.bands():
            g = CellBand(levels.asked(digits.weights), levels.asked(digits.references))
            for place, columns in enumerate(column_blocks(stored, self.arrays)):
                if number in matrices:
                    asked, read = self.layout.cells(g, place, columns), matrices[number]
                    self.layout.write(np.where(np.isnan(read), asked, read), g, place, columns)
                number += 1
            error[:, rows] = digit_errors(g, digits, stored, self.arrays, levels)
        return cells_with(stored, error)

    def converters(self, sharing: int) -> IntArray:
        """The converter number of each column [groups, slices, N], counted over the arrays."""
        return converter_numbers(self.stored, self.arrays.across, sharing)

    def converters_of_array(self, sharing: int) -> int:
        """Count the converters of an array that is full of weights."""
        width = self.stored.shape[1]
        across = min(self.arrays.across or width, width)
        return -(-across * self.stored.crossbar.slices // sharing)


def layers_of_chip(program: Program, settings: Settings, argument: str) -> dict[str, LayerOfChip]:
    """The layers that have cells, in the order of placement; a layer that reuses cells is left out.

    Raises CimError if no conductance can hold a layer's digits. The message says to leave
    `argument` out.
    """
    found: dict[str, LayerOfChip] = {}
    first = 0
    for graph in program.graphs:
        stored = stored_cells(graph)
        for name, op in crossbar_layers(graph).items():
            check_analog(op.crossbar, name, argument)
            if stored[name] == name:
                arrays = arrays_of(settings, name, op.crossbar.weights.bits)
                found[name] = LayerOfChip(name, op.stored, arrays, first)
                first += len(found[name].shapes)
    return found


class Chip(Protocol):
    """The measurements of a chip, layer by layer."""

    def cells(self, layer: LayerOfChip) -> Cells:
        """The layer's cells with their measured conductances."""

    def converters(self, layer: LayerOfChip, codes: int, lo: int) -> MeasuredConverters | None:
        """The measured converters of a layer, with `codes` codes from `lo` on; or None."""


def on_chip(program: Program, settings: Settings, chip: Chip) -> DieProgram:
    """Put a program on a measured chip. Unmeasured parts behave as the contract defines."""
    layers = layers_of_chip(program, settings, "chip")

    def layer(op: CrossbarMvm, x: Type, place: LayerOnArrays) -> tuple[NoisyMvm, ReadoutCost]:
        own, known, law = layers[place.cells], op.infer(x), op.crossbar.law
        codes = (1, 0) if law is None else (law.hi - law.lo + 1, law.lo)
        measured = chip.converters(own, *codes)
        if measured is not None and op.crossbar.scope.levels:
            raise CimError(
                f"{own.name}: its converters have thresholds that were set (references = "
                f'"{op.crossbar.references}"); expected no measured ones'
            )
        converted = layer_with(op, chip.cells(own))
        return NoisyMvm(op, converted, known.lo, known.hi, measured=measured), ReadoutCost()

    return with_layers(program, settings, layer)
