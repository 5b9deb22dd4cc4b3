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

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import map_rows
from cimtool.hardware.crossbar import Cells, Crossbar
from cimtool.hardware.keys import Pairs
from cimtool.hardware.noise.model import (
    ArrayNoise,
    ArrayState,
    DeviceNoise,
    DeviceState,
    NonIdeality,
)
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.stored import StoredWeights, narrow
from cimtool.hardware.weight_codes import Slice

CELL_BITS = 14
"""What digits and their binary places have together, with a sign and room for errors: two bytes."""

ROUNDING_SHARE = 1 / 100
"""The most that rounding may add to the mean square error of a die's cells."""

STREAMS = ("programming", "drift", "flicker", "stuck", "adc", "read", "readout")
"""Purposes of random numbers by the number of their stream; those of others follow."""


def stream_of(purpose: str) -> int:
    """The number of a purpose's stream."""
    if purpose in STREAMS:
        return STREAMS.index(purpose)
    return len(STREAMS) + zlib.crc32(purpose.encode())


def per_reading(purpose: str) -> bool:
    """Whether numbers are drawn anew for another time of reading."""
    kind = NonIdeality.family.get(purpose)
    return kind is not None and kind.drawn != "die"


@dataclass(frozen=True)
class Die:
    """Which die of a seed, and how many seconds after t0 it is read."""

    seed: int
    index: int
    seconds: float

    def numbers(self, purpose: str, layer: str, *place: int) -> np.random.Generator:
        """The random numbers of one purpose at one place of a layer: a Philox stream of its own.

        Only what is drawn anew for a time of reading depends on it.
        """
        return np.random.Generator(np.random.Philox(self._entropy(purpose, layer, place)))

    def key(self, purpose: str, layer: str) -> int:
        """A number of 64 bits for the counters of a layer."""
        return int(self._entropy(purpose, layer, ()).generate_state(1, np.uint64)[0])

    def _entropy(self, purpose: str, layer: str, place: tuple[int, ...]) -> np.random.SeedSequence:
        epoch = round(self.seconds * 1000) if per_reading(purpose) else 0
        where = (self.index, stream_of(purpose), zlib.crc32(layer.encode()), epoch, *place)
        return np.random.SeedSequence(self.seed, spawn_key=where)


@dataclass(frozen=True)
class Arrays:
    """How a layer lies on arrays: weights side by side (None: all), and where pairs lie."""

    across: int | None
    pairs: Pairs
    on_off_ratio: float | None


@dataclass(frozen=True, eq=False)
class Drawn:
    """A layer's cells on a die; `variance[k]` [K, N] is that of its reads in digits squared."""

    cells: Cells
    variance: tuple[Array, ...] | None


class Devices:
    """The conductance (uS) of a device by the digit that its cell holds, and its statistics."""

    def __init__(self, noise: Noise, top: int, on_off_ratio: float | None, die: Die):
        self.noise = noise
        self.full = noise.g_max * noise.devices
        self.erased = 0.0 if on_off_ratio is None else self.full / on_off_ratio
        self.unit = (self.full - self.erased) / top
        self.top = top
        levels = (self.erased + self.unit * np.arange(top + 1)) / noise.devices
        self.levels = levels
        self.die = die
        state = DeviceState(levels / noise.g_max, noise.g_max, die.seconds, noise.t0)
        changes = (
            (m.name, m.change(state)) for m in noise.mechanisms if isinstance(m, DeviceNoise)
        )
        self.changes = [(name, change) for name, change in changes if change is not None]

    def asked(self, digits: IntArray) -> FloatArray:
        """What cells that hold `digits` should conduct, in uS."""
        return (self.levels * self.noise.devices)[digits]

    def conductances(self, digits: IntArray, layer: str, *place: int) -> FloatArray:
        """What they conduct, in uS; stuck cells and wires come later."""
        total = self.asked(digits)
        for device in range(self.noise.devices):
            total += self._deviation(digits, layer, (*place, device))
        return total

    def _deviation(self, digits: IntArray, layer: str, place: tuple[int, ...]) -> FloatArray:
        """What one device conducts beyond what it should, exactly zero where nothing is wrong."""
        asked = self.levels[digits]
        g = asked.copy()
        for name, change in self.changes:
            g = change(g, digits, self.die.numbers(name, layer, *place))
        return g - asked


def draw(stored: StoredWeights, arrays: Arrays, noise: Noise, die: Die, layer: str) -> Drawn:
    """What the arrays of stored weights conduct on a die; the same for every number of threads."""
    slices, crossbar, rows = stored.slices, stored.crossbar, len(stored.weight)
    height = crossbar.tiling.height or rows
    blocks = [slice(s, min(s + height, rows)) for s in range(0, rows, height)]
    devices = Devices(noise, crossbar.cell_maximum, arrays.on_off_ratio, die)
    error = np.empty((len(slices), *stored.shape), np.float32)
    variance = None if noise.read is None else np.empty_like(error)

    def work(index: int) -> None:
        rows = blocks[index]
        digits = _device_digits(slices, crossbar, rows)
        g = np.stack([devices.conductances(d, layer, index, i) for i, d in enumerate(digits)])
        if any(isinstance(mechanism, ArrayNoise) for mechanism in noise.mechanisms):
            g = _on_arrays(g, digits, slices, crossbar, arrays, devices, layer, index)
        beyond = np.stack([g[i] - devices.asked(d) for i, d in enumerate(digits)])
        beyond /= devices.unit
        error[:, rows] = beyond[0::2] - beyond[1::2] if crossbar.by_difference else beyond
        if variance is not None and noise.read is not None:
            square = noise.read.sigma**2 / noise.devices * (g / devices.unit) ** 2
            paired = square.reshape(len(slices), -1, *square.shape[1:])
            variance[:, rows] = paired.sum(axis=1)

    map_rows(lambda block: work(block.start), len(blocks), 1)
    cells = _cells(slices, error, crossbar)
    return Drawn(cells, None if variance is None else tuple(variance))


def _device_digits(slices: tuple[Slice, ...], crossbar: Crossbar, rows: slice) -> list[IntArray]:
    """The digits of physical cells: of each slice, both polarities where they are subtracted."""
    digits = [s.digits[rows].astype(np.int64) for s in slices]
    if not crossbar.by_difference:
        return digits
    return [np.maximum(part, 0) for d in digits for part in (d, -d)]


def _on_arrays(
    g: FloatArray,
    digits: list[IntArray],
    slices: tuple[Slice, ...],
    crossbar: Crossbar,
    arrays: Arrays,
    devices: Devices,
    layer: str,
    block: int,
) -> FloatArray:
    """Conductances [cells, rows, N] with stuck cells and wires, array by array."""
    noise, die, width = devices.noise, devices.die, g.shape[2]
    across = arrays.across or width
    pairs = 1 + crossbar.weights.paired
    layout = PhysicalLayout(pairs, len(g) // pairs, arrays.pairs)
    shifts = [s.shift for s in slices for _ in range(len(g) // len(slices))]
    held = np.stack(digits)
    found = np.empty_like(g)
    for number, start in enumerate(range(0, width, across)):
        part = slice(start, start + across)
        cells = layout.cells(g[:, :, part])
        wanted = layout.cells(held[:, :, part].astype(np.float64))
        weights = layout.columns(np.exp2(shifts), cells.shape[1])
        for one in noise.mechanisms:
            if isinstance(one, ArrayNoise):
                rng = die.numbers(one.name, layer, block, number)
                ends = devices.top, devices.full, devices.erased
                cells = one.effective(cells, ArrayState(wanted, weights, *ends, rng, layer))
        found[:, :, part] = layout.weights(cells)
    return found


@dataclass(frozen=True)
class PhysicalLayout:
    """Where the cells of weights lie in an array: side by side, or a pair in two rows."""

    polarities: int
    slices: int
    pairs: Pairs

    def cells(self, of_weights: FloatArray) -> FloatArray:
        """Lay [slices x polarities, rows, n] out as the array's [rows, columns]."""
        _, rows, n = of_weights.shape
        parts = of_weights.reshape(self.slices, self.polarities, rows, n)
        if self.pairs == "rows":
            return parts.transpose(2, 1, 3, 0).reshape(rows * self.polarities, n * self.slices)
        return parts.transpose(2, 3, 0, 1).reshape(rows, n * self.slices * self.polarities)

    def weights(self, cells: FloatArray) -> FloatArray:
        """Undo `cells`."""
        s, p = self.slices, self.polarities
        if self.pairs == "rows":
            parts = cells.reshape(cells.shape[0] // p, p, cells.shape[1] // s, s)
            return parts.transpose(3, 1, 0, 2).reshape(s * p, parts.shape[0], parts.shape[2])
        parts = cells.reshape(cells.shape[0], cells.shape[1] // (s * p), s, p)
        return parts.transpose(2, 3, 0, 1).reshape(s * p, parts.shape[0], parts.shape[1])

    def columns(self, of_cells: FloatArray, count: int) -> FloatArray:
        """What each of `count` columns of an array has, from values [slices x polarities]."""
        own = of_cells[:: self.polarities] if self.pairs == "rows" else of_cells
        return np.tile(own, count // len(own))


def fraction_of(error: Array, digits: Sequence[IntArray], crossbar: Crossbar) -> int:
    """The binary places in which a die's cells are counted: so few that sums stay fast.

    But so many that rounding adds at most ROUNDING_SHARE to the cells' mean square error, beside
    what one factor could make up for, and never fewer than the contract's. Cells keep within
    CELL_BITS; a die without errors has the places of the contract.
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


def _cells(slices: tuple[Slice, ...], error: Array, crossbar: Crossbar) -> Cells:
    """Round errors [slices, K, N] in digits to the units in which the die counts."""
    digits = [s.digits.astype(np.int64) for s in slices]
    fraction = fraction_of(error, digits, crossbar)
    leak = crossbar.column_leak << fraction - crossbar.fraction_bits
    conducting = []
    for cells, held, off in zip(slices, digits, error, strict=True):
        whole = np.floor(off * np.float32(1 << fraction) + np.float32(0.5)).astype(np.int64)
        whole += (held << fraction) + leak
        conducting.append(replace(cells, digits=narrow(whole)))
    return Cells(tuple(conducting), fraction, leak)
