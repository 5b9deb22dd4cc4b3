"""A program on a measured chip: what its cells conduct, and where its converters switch."""

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
    """A layer's cells on a chip, whose arrays are numbered from `first` on.

    They are numbered as they are placed: all columns of the first rows of weights, and so on.
    """

    name: str
    stored: StoredWeights
    arrays: Arrays
    first: int

    @property
    def cells(self) -> int:
        """The cells of all weights, and those of reference columns."""
        return sum(rows * columns for rows, columns in self.shapes)

    @property
    def cells_per_weight(self) -> int:
        """The cells of a weight: its slices, times two where each is a pair."""
        return len(self.stored.slices) * (1 + self.stored.crossbar.by_difference)

    @property
    def layout(self) -> PhysicalLayout:
        """The places of cells in an array."""
        return layout_of(self.stored, self.arrays, self.cells_per_weight)

    def levels(self, full: float) -> CellLevels:
        """The target conductances of cells whose largest digit conducts `full`."""
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
        """Yield the rows of weights in one array after another, and the digits of their cells."""
        for rows in row_blocks(self.stored):
            yield rows, device_digits(self.stored, rows, self.arrays)

    def on_arrays(self, band: CellBand) -> Iterator[Array]:
        """Yield the numbers of a band as its arrays [rows, columns] have them."""
        for number, columns in enumerate(column_blocks(self.stored, self.arrays)):
            yield self.layout.cells(band, number, columns)

    def with_arrays(self, matrices: Mapping[int, FloatArray], full: float) -> Cells:
        """The cells that conduct as `matrices` [rows, columns] of each array say, in uS.

        Where these are NaN, and in arrays without one, cells are as programmed.
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
        """The converter of each column [groups, slices, N], array after array."""
        return converter_numbers(self.stored, self.arrays.across, sharing)

    def converters_of_array(self, sharing: int) -> int:
        """Converters of an array that is full of weights."""
        width = self.stored.shape[1]
        across = min(self.arrays.across or width, width)
        return -(-across * self.stored.crossbar.slices // sharing)


def layers_of_chip(program: Program, settings: Settings, argument: str) -> dict[str, LayerOfChip]:
    """The layers that have cells of their own, in the order in which they are placed.

    Raises CimError, which says to leave `argument` out, for cells that no conductance stands for.
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
        """The layer's cells as they conduct."""

    def converters(self, layer: LayerOfChip, codes: int, lo: int) -> MeasuredConverters | None:
        """The measured converters of a layer, of so many codes from `lo` on; None without any."""


def on_chip(program: Program, settings: Settings, chip: Chip) -> DieProgram:
    """Put a program on a measured chip; what was not measured is as the contract has it."""
    layers = layers_of_chip(program, settings, "chip")

    def layer(op: CrossbarMvm, x: Type, place: LayerOnArrays) -> tuple[NoisyMvm, ReadoutCost]:
        own, known, law = layers[place.cells], op.infer(x), op.crossbar.law
        codes = (1, 0) if law is None else (law.hi - law.lo + 1, law.lo)
        measured = chip.converters(own, *codes)
        if measured is not None and op.crossbar.scope.levels:
            raise CimError(
                f"{own.name}: its converters have thresholds that were set "
                f'(references = "{op.crossbar.references}"); expected none that were measured'
            )
        converted = layer_with(op, chip.cells(own))
        return NoisyMvm(op, converted, known.lo, known.hi, measured=measured), ReadoutCost()

    return with_layers(program, settings, layer)
