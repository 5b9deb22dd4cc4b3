"""A die: what the devices of a layer conduct after they were written, and when they are read.

Conductances run from g_min (digit 0) to g_max (the largest digit). What a column then conducts is
counted in whole numbers of 2^-fraction_bits of a digit, so its sums are exact integers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, narrow
from cimtool.base.threads import map_rows
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.keys import PairAxis
from cimtool.hardware.noise.model import (
    ArrayNoise,
    ArrayState,
    DeviceNoise,
    DeviceState,
    NonIdeality,
    ReadNoise,
    ReadState,
)
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.stored import StoredWeights

CELL_BITS = 14
"""Bits of digits and their binary places together: two bytes with a sign and room for errors."""

ROUNDING_SHARE = 1 / 100
"""The most that rounding may add to the mean square error of a die's cells."""

READOUT = 6
"""The stream of random numbers for inputs that are read back; mechanisms have other streams."""

NAMED = 7
"""From here on the streams of mechanisms that have no number, by the hash of their name."""


@dataclass(frozen=True)
class Die:
    """A die of a seed, read `seconds` after t0."""

    seed: int
    index: int
    seconds: float

    def numbers(self, mechanism: NonIdeality, layer: str, *place: int) -> np.random.Generator:
        """The random numbers of a mechanism at one place of a layer: a separate Philox stream.

        The time of reading matters only to numbers that are drawn anew for each reading.
        """
        return np.random.Generator(np.random.Philox(self._of_mechanism(mechanism, layer, place)))

    def readout(self, layer: str) -> np.random.Generator:
        """The random numbers of the known inputs that are read back."""
        return np.random.Generator(np.random.Philox(self._entropy(READOUT, layer, 0)))

    def key(self, mechanism: NonIdeality, layer: str) -> int:
        """A number of 64 bits for the counters of a layer."""
        return int(self._of_mechanism(mechanism, layer, ()).generate_state(1, np.uint64)[0])

    def _of_mechanism(
        self, mechanism: NonIdeality, layer: str, place: tuple[int, ...]
    ) -> np.random.SeedSequence:
        epoch = round(self.seconds * 1000) if mechanism.redrawn else 0
        stream = mechanism.stream
        if stream is None:
            stream = NAMED + zlib.crc32(mechanism.name.encode())
        return self._entropy(stream, layer, epoch, *place)

    def _entropy(self, stream: int, layer: str, *place: int) -> np.random.SeedSequence:
        where = (self.index, stream, zlib.crc32(layer.encode()), *place)
        return np.random.SeedSequence(self.seed, spawn_key=where)


@dataclass(frozen=True)
class Arrays:
    """The arrays of a layer: weights side by side (None: all), and the place of pairs.

    Each has `redundant` columns that hold no weights.
    """

    across: int | None
    pairs: PairAxis
    on_off_ratio: float | None
    redundant: int = 0


@dataclass(frozen=True, eq=False)
class DrawnCells:
    """A layer's cells on a die; `variance[k]` [K, N] is that of its reads in digits squared."""

    cells: Cells
    variance: tuple[Array, ...] | None


@dataclass(frozen=True, eq=False)
class CellBand:
    """Numbers of the cells in one row of arrays.

    `weights` [cells, rows, N] of each slice and polarity, `references` [rows, arrays] of the
    reference column of each array, [rows, 0] if arrays have none.
    """

    weights: Array
    references: Array


class CellLevels:
    """The target conductance (uS) of a cell by its digit, from `erased` to `full` at `top`."""

    def __init__(self, full: float, top: int, on_off_ratio: float | None):
        self.full = full
        self.erased = 0.0 if on_off_ratio is None else full / on_off_ratio
        self.unit = (full - self.erased) / top
        self.top = top
        self.targets = np.asarray(self.erased + self.unit * np.arange(top + 1), np.float64)

    def asked(self, digits: IntArray) -> FloatArray:
        """Target conductances of cells that hold `digits`, in uS."""
        found: FloatArray = self.targets[digits]
        return found


class Devices(CellLevels):
    """The conductance (uS) of a device by the digit that its cell holds, and its statistics."""

    def __init__(self, noise: Noise, top: int, on_off_ratio: float | None, die: Die):
        super().__init__(noise.g_max * noise.devices, top, on_off_ratio)
        self.noise = noise
        self.levels = self.targets / noise.devices
        self.die = die

    def conductances(self, digits: IntArray, layer: str, *place: int) -> FloatArray:
        """Their conductances, in uS, exactly the targets if nothing is wrong.

        Stuck cells and wires come later.
        """
        noise, die, asked = self.noise, self.die, self.levels[digits]
        total, x = self.asked(digits), self.levels / noise.g_max
        for device in range(noise.devices):
            g = asked.copy()
            for one in noise.of(DeviceNoise):
                rng = die.numbers(one, layer, *place, device)
                state = DeviceState(digits, x, noise.g_max, die.seconds, noise.t0, rng, noise.heat)
                g = one.effective(g, state)
            total += g - asked
        return total

    def read_variance(self, g: FloatArray) -> FloatArray:
        """The variance in digits squared of a read of cells that conduct `g` uS."""
        noise, total = self.noise, np.zeros_like(g)
        state = ReadState(noise.devices, self.unit, self.die.seconds, noise.t0)
        for one in noise.of(ReadNoise):
            total += one.variance(g / self.unit, state)
        return total


def draw(stored: StoredWeights, arrays: Arrays, noise: Noise, die: Die, layer: str) -> DrawnCells:
    """Draw the cells of stored weights on a die; the same for every number of threads."""
    slices, crossbar = stored.slices, stored.crossbar
    blocks = row_blocks(stored)
    devices = Devices(noise, crossbar.weights.cell_maximum, arrays.on_off_ratio, die)
    error = np.empty((len(slices), *stored.shape), np.float32)
    variance = np.empty_like(error) if noise.of(ReadNoise) else None

    def work(index: int) -> None:
        rows = blocks[index]
        digits = device_digits(stored, rows, arrays)
        held = enumerate([*digits.weights, digits.references])
        *g, references = (devices.conductances(d, layer, index, i) for i, d in held)
        found = _on_arrays(
            CellBand(np.stack(g), references), digits, stored, arrays, devices, layer, index
        )
        error[:, rows] = digit_errors(found, digits, stored, arrays, devices)
        if variance is not None:
            square = devices.read_variance(found.weights)
            paired = square.reshape(len(slices), -1, *square.shape[1:])
            variance[:, rows] = paired.sum(axis=1)
            variance[:, rows] += _spread(devices.read_variance(found.references), stored, arrays)

    map_rows(lambda block: work(block.start), len(blocks), 1)
    cells = cells_with(stored, error)
    return DrawnCells(cells, None if variance is None else tuple(variance))


def row_blocks(stored: StoredWeights) -> list[slice]:
    """The rows of weights that lie in one array after another."""
    rows = len(stored.weight)
    height = stored.crossbar.tiling.height or rows
    return [slice(s, min(s + height, rows)) for s in range(0, rows, height)]


def column_blocks(stored: StoredWeights, arrays: Arrays) -> list[slice]:
    """The columns of weights that lie in one array after another."""
    width = stored.shape[1]
    across = arrays.across or width
    return [slice(s, min(s + across, width)) for s in range(0, width, across)]


def digit_errors(
    g: CellBand, digits: CellBand, stored: StoredWeights, arrays: Arrays, levels: CellLevels
) -> FloatArray:
    """Errors [slices, rows, N] in digits of cells that conduct `g` uS, as converters see them."""
    beyond: FloatArray = (g.weights - levels.asked(digits.weights)) / levels.unit
    if stored.crossbar.by_difference:
        beyond = beyond[0::2] - beyond[1::2]
    common = (g.references - levels.asked(digits.references)) / levels.unit
    return beyond - _spread(common, stored, arrays)


def _spread(references: FloatArray, stored: StoredWeights, arrays: Arrays) -> FloatArray:
    """Numbers [rows, arrays] of reference columns, as their arrays' columns [rows, N] have them."""
    if not references.shape[1]:
        return np.zeros((len(references), 1))
    width = stored.shape[1]
    return np.repeat(references, arrays.across or width, axis=1)[:, :width]


def device_digits(stored: StoredWeights, rows: slice, arrays: Arrays) -> CellBand:
    """The digits that devices hold: of both polarities if they are subtracted."""
    code = stored.crossbar.weights
    digits = np.stack([s.digits[rows].astype(np.int64) for s in stored.slices])
    side = len(column_blocks(stored, arrays)) if code.reference_column else 0
    references = np.full((digits.shape[1], side), code.baseline)
    if not stored.crossbar.by_difference:
        return CellBand(digits + code.baseline, references)
    polarities = np.stack([np.maximum(digits, 0), np.maximum(-digits, 0)], axis=1)
    return CellBand(polarities.reshape(-1, *digits.shape[1:]), references)


def _on_arrays(
    g: CellBand,
    digits: CellBand,
    stored: StoredWeights,
    arrays: Arrays,
    devices: Devices,
    layer: str,
    block: int,
) -> CellBand:
    """Conductances with stuck cells and wires, array by array."""
    mechanisms = devices.noise.of(ArrayNoise)
    if not mechanisms:
        return g
    count = len(g.weights)
    layout = layout_of(stored, arrays, count)
    worths = np.repeat([abs(s.worth) for s in stored.slices], count // len(stored.slices))
    found = CellBand(np.empty_like(g.weights), np.empty_like(g.references))
    for number, part in enumerate(column_blocks(stored, arrays)):
        cells = layout.cells(g, number, part)
        held = layout.cells(digits, number, part).astype(np.float64)
        weights = layout.columns(worths.astype(np.float64), part.stop - part.start)
        for one in mechanisms:
            rng = devices.die.numbers(one, layer, block, number)
            ends = devices.top, devices.full, devices.erased
            cells = one.effective(
                cells, ArrayState(held, weights, *ends, rng, layer, arrays.redundant)
            )
        layout.write(cells, found, number, part)
    return found


def layout_of(stored: StoredWeights, arrays: Arrays, cells: int) -> PhysicalLayout:
    """The places in an array of a layer's weights, of `cells` cells each."""
    code = stored.crossbar.weights
    pairs = 1 + code.paired
    return PhysicalLayout(pairs, cells // pairs, arrays.pairs, int(code.reference_column))


AXES = {"columns": (2, 3, 0, 1), "rows": (2, 1, 3, 0)}
"""The order in which (slice, polarity, row, weight) run over an array, by where pairs lie."""


@dataclass(frozen=True)
class PhysicalLayout:
    """The places of weights' cells in an array: side by side, or a pair in two rows.

    Behind them are its `references`: one reference column, or none.
    """

    polarities: int
    slices: int
    pairs: PairAxis
    references: int

    @property
    def rows_per_weight(self) -> int:
        """Rows of cells that a weight takes."""
        return self.polarities if self.pairs == "rows" else 1

    @property
    def columns_per_weight(self) -> int:
        """Columns of cells that a weight takes."""
        return self.slices * self.polarities // self.rows_per_weight

    def cells(self, band: CellBand, number: int, part: slice) -> Array:
        """Lay out array `number` of a band, with weights `part`: its [rows, columns]."""
        _, rows, _ = band.weights.shape
        parts = band.weights[:, :, part].reshape(self.slices, self.polarities, rows, -1)
        own = parts.transpose(AXES[self.pairs]).reshape(rows * self.rows_per_weight, -1)
        reference = band.references[:, number : number + self.references]
        return np.hstack([own, reference]) if self.references else own

    def write(self, cells: FloatArray, band: CellBand, number: int, part: slice) -> None:
        """Undo `cells` into a band."""
        own = cells[:, : cells.shape[1] - self.references]
        rows = cells.shape[0] // self.rows_per_weight
        extents = self.slices, self.polarities, rows, -1
        parts = own.reshape([extents[axis] for axis in AXES[self.pairs]])
        back = parts.transpose(np.argsort(AXES[self.pairs]))
        band.weights[:, :, part] = back.reshape(self.slices * self.polarities, rows, -1)
        if self.references:
            band.references[:, number] = cells[:, -1]

    def columns(self, of_cells: FloatArray, weights: int) -> FloatArray:
        """Values [slices x polarities] for every column of an array of `weights` weights.

        A reference column has the values of all weights, added as squares, as their errors add.
        """
        own = of_cells[:: self.rows_per_weight]
        reference = np.full(self.references, own.sum() * np.sqrt(weights))
        return np.concatenate([np.tile(own, weights), reference])


def fraction_of(error: Array, digits: Sequence[IntArray], crossbar: Crossbar) -> int:
    """The binary places in which a die's cells are counted.

    Few places keep sums fast. There are enough that rounding adds at most ROUNDING_SHARE to the
    cells' mean square error (less the part that one factor could correct), and never fewer than the
    contract's. Cells keep within CELL_BITS; a die without errors has the places of the contract.
    """
    if not error.any():
        return crossbar.fraction_bits
    finest = max(0, CELL_BITS - crossbar.weights.cell_bits)
    remaining = _remaining(error, digits)
    needed = finest
    if remaining > 0:
        needed = math.ceil(0.5 * math.log2(1 / (12 * ROUNDING_SHARE * remaining)))
    return max(min(needed, finest), crossbar.fraction_bits)


def _remaining(error: Array, digits: Sequence[IntArray]) -> float:
    """The mean square of errors that are not a common share of the digits."""
    square = shared = whole = 0.0
    for off, held in zip(error, digits, strict=True):
        square += float(np.sum(np.square(off, dtype=np.float64)))
        shared += float(np.sum(off * held, dtype=np.float64))
        whole += float(np.sum(np.square(held, dtype=np.float64)))
    alike = shared**2 / whole if whole > 0 else 0.0
    return max(0.0, square - alike) / error.size


def cells_with(stored: StoredWeights, error: Array) -> Cells:
    """Cells with errors [slices, K, N] in digits, rounded to the units in which the die counts."""
    slices, crossbar = stored.slices, stored.crossbar
    digits = [s.digits.astype(np.int64) for s in slices]
    fraction = fraction_of(error, digits, crossbar)
    leak = crossbar.column_leak << fraction - crossbar.fraction_bits
    conducting = []
    for cells, held, off in zip(slices, digits, error, strict=True):
        whole = np.floor(off * np.float32(1 << fraction) + np.float32(0.5)).astype(np.int64)
        whole += (held << fraction) + leak
        conducting.append(replace(cells, digits=narrow(whole)))
    return Cells(crossbar, tuple(conducting), fraction, leak)
