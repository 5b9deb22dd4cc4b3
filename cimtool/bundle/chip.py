"""A measured chip as a folder of CSV files: conductances of cells, stuck cells, converters.

`chip.toml` names the bundle whose weights the chip holds. `LAYER.csv` has a line per cell,
`stuck.csv` a line per stuck cell, `converters.csv` a line per threshold of a measured converter.
Cells and converters that no file lists are as programmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.csv_files import CsvColumn, CsvRows, header_of, read_table
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.escapes import toml_string
from cimtool.base.named import nearest
from cimtool.base.toml_files import TomlTable, read_toml, validated
from cimtool.bundle.bundle import CONSTANTS, Bundle
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.converters import THRESHOLD_BITS, measured_thresholds
from cimtool.hardware.noise.model import PositiveNumber
from cimtool.hardware.noise.mvm import MeasuredConverters
from cimtool.simulation.chip_program import LayerOfChip, layers_of_chip, on_chip
from cimtool.simulation.die_program import DieProgram

DESCRIPTION, STUCK, CONVERTERS = "chip.toml", "stuck.csv", "converters.csv"
PLACE = ("array", "row", "column")
CELLS = ("core", *PLACE, "level", "target_conductance", "tolerance")
"""The columns of an exported layer."""

MEASURED = "conductance"
"""The column of a cell's measured conductance; the target's column is then optional."""

MOST = 2.0
"""A cell's largest conductance, as a multiple of `g_max`: its digits then fit in two bytes."""

LARGEST_CODE = 1 << 16


class ChipFile(TomlTable):
    """`chip.toml`: whose weights a chip holds, and the units of its measurements.

    `g_max` is the conductance of a cell that holds the largest digit.
    """

    format_version: Literal[1] = 1
    bundle: str = Field(description="a text")
    constants: str = Field(description="the SHA-256 of the bundle's constants")
    g_max: PositiveNumber
    columns_per_converter: int = Field(1, ge=1, le=1 << 20)

    def text(self) -> str:
        """The file's text."""
        values = self.model_dump()
        lines = (
            f"{key} = {toml_string(value) if isinstance(value, str) else value}\n"
            for key, value in values.items()
        )
        return "".join(lines)


@dataclass(frozen=True)
class MeasuredChip:
    """A measured chip that holds a bundle's weights; its files are read layer by layer."""

    folder: Path
    described: ChipFile
    layers: Mapping[str, LayerOfChip]
    measured: dict[str, int] = field(default_factory=dict)
    """Number of cells with a measured conductance, by layer; filled as `cells` reads the layers."""

    def cells(self, layer: LayerOfChip) -> Cells:
        """The layer's cells with their measured conductances."""
        full = self.described.g_max
        matrices = self._measured(layer)
        self.measured[layer.name] = sum(int((~np.isnan(m)).sum()) for m in matrices.values())
        levels, shapes = layer.levels(full), layer.shapes
        states = (levels.erased, levels.full)
        for array, row, column, on in self._stuck:
            number = array - layer.first
            if 0 <= number < len(shapes):
                matrix = matrices.setdefault(number, np.full(shapes[number], np.nan))
                matrix[row, column] = states[on]
        return layer.with_arrays(matrices, full)

    def converters(self, layer: LayerOfChip, codes: int, lo: int) -> MeasuredConverters | None:
        """The measured converters of a layer, with `codes` codes from `lo` on; None without any.

        Raises CimError if a threshold is missing, is given twice, or is below the previous one.
        """
        file, sharing = self.folder / CONVERTERS, self.described.columns_per_converter
        per_array, arrays = layer.converters_of_array(sharing), len(layer.shapes)
        found: dict[int, FloatArray] = {}
        for rows in self._thresholds():
            array, converter, code, threshold = rows.columns.values()
            own = np.flatnonzero((array >= layer.first) & (array < layer.first + arrays))
            for row in own.tolist():
                if codes == 1:
                    raise rows.error(row, f"array {array[row]:.0f} has no converters")
                within(rows, row, "converter", converter, per_array - 1)
                within(rows, row, "code", code, codes - 1)
                number = int(array[row] - layer.first) * per_array + int(converter[row])
                table = found.setdefault(number, np.full(codes - 1, np.nan))
                if not np.isnan(table[int(code[row]) - 1]):
                    raise rows.error(row, "gives a threshold again; expected it once")
                table[int(code[row]) - 1] = threshold[row]
        if not found:
            return None
        for number, table in found.items():
            place = f"converter {number % per_array} of array {layer.first + number // per_array}"
            _check_rising(f"{file}: {place}", table)
        rising = [measured_thresholds(table.tolist()) for table in found.values()]
        numbers = layer.converters(sharing)
        tables = np.full(max(int(numbers.max()), *found) + 1, -1)
        tables[list(found)] = np.arange(len(found))
        lowest = lo << THRESHOLD_BITS
        return MeasuredConverters(np.array(rising, np.int64) + lowest, tables[numbers])

    def _thresholds(self) -> Iterable[CsvRows]:
        file = self.folder / CONVERTERS
        if not file.exists():
            return ()
        columns = {
            "array": self._arrays,
            "converter": CsvColumn(0, 1 << 20, whole=True),
            "code": CsvColumn(1, LARGEST_CODE, whole=True),
            "threshold": CsvColumn(-LARGEST_CODE, LARGEST_CODE),
        }
        return read_table(file, columns)

    @property
    def _arrays(self) -> CsvColumn:
        return CsvColumn(0, sum(len(one.shapes) for one in self.layers.values()) - 1, whole=True)

    @cached_property
    def _stuck(self) -> list[tuple[int, int, int, int]]:
        """Array, row, column and state of each stuck cell; state 1 conducts `g_max`."""
        file = self.folder / STUCK
        if not file.exists():
            return []
        place = CsvColumn(0, 1 << 20, whole=True)
        columns = dict(zip(PLACE, (self._arrays, place, place), strict=True))
        columns["state"] = CsvColumn(0, 1, words={"on": 1.0, "off": 0.0})
        shapes = [shape for one in self.layers.values() for shape in one.shapes]
        found: dict[tuple[int, int, int], int] = {}
        for rows in read_table(file, columns):
            for index, line in enumerate(zip(*rows.columns.values(), strict=True)):
                array, row, column, state = map(int, line)
                height, width = shapes[array]
                if row >= height or column >= width:
                    raise rows.error(index, outside(array, height, width))
                if (array, row, column) in found:
                    raise rows.error(index, "names a cell again; expected it once")
                found[array, row, column] = state
        return [(*place, state) for place, state in found.items()]

    def _measured(self, layer: LayerOfChip) -> dict[int, FloatArray]:
        """Conductances [rows, columns] of each array's cells; NaN for cells not measured."""
        file = self.folder / f"{layer.name}.csv"
        if not file.exists():
            return {}
        most = MOST * self.described.g_max
        name = MEASURED if MEASURED in header_of(file) else "target_conductance"
        shapes = layer.shapes
        size = [CsvColumn(0, max(one[axis] for one in shapes) - 1, whole=True) for axis in (0, 1)]
        arrays = CsvColumn(layer.first, layer.first + len(shapes) - 1, whole=True)
        columns = dict(zip(PLACE, (arrays, *size), strict=True)) | {name: CsvColumn(-most, most)}
        heights, widths = (np.array(one) for one in zip(*shapes, strict=True))
        starts = np.concatenate([[0], np.cumsum(heights * widths)])
        flat = np.full(starts[-1], np.nan)
        for rows in read_table(file, columns, {*CELLS, MEASURED} - columns.keys()):
            array, row, column = (rows.columns[one].astype(np.int64) for one in PLACE)
            array -= layer.first
            beyond = (row >= heights[array]) | (column >= widths[array])
            if beyond.any():
                at = int(beyond.argmax())
                here = int(array[at])
                raise rows.error(at, outside(here + layer.first, *shapes[here]))
            place = starts[array] + row * widths[array] + column
            _require_new(rows, flat, place)
            flat[place] = rows.columns[name]
        parts = (flat[a:b] for a, b in pairwise(starts))
        matrices = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
        return {number: m for number, m in enumerate(matrices) if not np.isnan(m).all()}


def _check_rising(where: str, table: FloatArray) -> None:
    """Raise CimError if a threshold is missing (NaN) or below the previous one."""
    missing, falls = np.isnan(table), np.diff(table) < 0
    if missing.any():
        code = int(missing.argmax()) + 1
        raise CimError(f"{where} has no threshold for code {code}; expected 1 to {len(table)}")
    if falls.any():
        raise CimError(f"{where} has a threshold of code {int(falls.argmax()) + 2} below the last")


def _require_new(rows: CsvRows, flat: FloatArray, place: IntArray) -> None:
    """Raise CimError for the first row that names a cell again."""
    order = np.argsort(place, kind="stable")
    again = np.zeros(len(place), np.bool_)
    again[order[1:]] = place[order[1:]] == place[order[:-1]]
    again |= ~np.isnan(flat[place])
    if again.any():
        raise rows.error(int(again.argmax()), "names a cell again; expected it once")


def outside(array: int, height: int, width: int) -> str:
    """The sentence about a cell outside an array."""
    return (
        f"names a cell beyond array {array}; expected row 0 to {height - 1} and column 0 to "
        f"{width - 1}"
    )


def within(rows: CsvRows, row: int, name: str, values: FloatArray, most: int) -> None:
    """Raise CimError if a value is above `most`."""
    if values[row] > most:
        raise rows.error(row, f"{name} is {values[row]:.0f}; expected at most {most}")


def read_chip(folder: Path, bundle: Bundle) -> MeasuredChip:
    """Open a chip's folder.

    Raises CimError if it is not a chip, or holds the weights of another bundle.
    """
    file = folder / DESCRIPTION
    if not file.is_file():
        raise CimError(
            f"{folder}: is not a chip (it has no {DESCRIPTION}); `cimtool export --format "
            "conductances` writes one"
        )
    described = validated(ChipFile, read_toml(file), str(file))
    if described.constants != bundle.manifest["files"][CONSTANTS]:
        raise CimError(
            f"{file}: constants differ from those of {bundle.name}; expected a chip that holds its "
            "weights"
        )
    layers = layers_of_chip(bundle.program, bundle.settings, "chip")
    known = [*(f"{name}.csv" for name in layers), STUCK, CONVERTERS]
    for found in sorted(folder.glob("*.csv")):
        if found.name not in known:
            raise CimError(
                f"{found}: belongs to no layer; expected "
                f"{', '.join(known)}{nearest(found.name, known)}"
            )
    return MeasuredChip(folder, described, layers)


def chip_die(bundle: Bundle, folder: Path) -> tuple[DieProgram, str]:
    """The bundle's program on a measured chip, and a sentence on the measured cells."""
    chip = read_chip(folder, bundle)
    die = on_chip(bundle.program, bundle.settings, chip)
    cells = sum(one.cells for one in chip.layers.values())
    measured = sum(chip.measured.values())
    return die, (
        f"chip {folder}: {measured:,} of {cells:,} cells have a conductance, {len(chip._stuck):,} "
        "are stuck"
    )


def check_one_source(noise: object, chip: object) -> None:
    """Raise CimError if dies are drawn and a chip is given."""
    if noise is not None and chip is not None:
        raise ArgumentError("{chip} replaces drawn dies; expected it without {noise}")
