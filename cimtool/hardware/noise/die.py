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

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.compiled import map_rows
from cimtool.hardware.crossbar import Cells, Crossbar, Slice, encode_weights
from cimtool.hardware.keys import Pairs
from cimtool.hardware.noise.spec import Noise

CELL_BITS = 14
"""What digits and their binary places have together, with a sign and room for errors: two bytes."""

ROUNDING_SHARE = 1 / 100
"""The most that rounding may add to the mean square error of a die's cells."""

EPOCH = ("flicker", "read")
"""What is drawn anew for another time of reading."""

PURPOSES = ("programming", "drift", "flicker", "stuck", "adc", "read", "readout")


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
        epoch = round(self.seconds * 1000) if purpose in EPOCH else 0
        where = (self.index, PURPOSES.index(purpose), zlib.crc32(layer.encode()), epoch, *place)
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
        x = levels / noise.g_max
        t0 = noise.t0 or 0.0
        self.levels = levels
        programming, drift, flicker = noise.programming, noise.drift, noise.flicker
        if programming is not None:
            self.sigma = programming.deviation(x, noise.g_max, die.seconds)
        if drift is not None:
            self.nu, self.nu_sigma = drift.mean.at(x), drift.sigma.at(x)
        if flicker is not None:
            self.flicker = flicker.relative(x, die.seconds, t0)
        self.die = die

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
        noise, die = self.noise, self.die
        asked = self.levels[digits]
        g = asked.copy()
        if noise.programming is not None:
            rng = die.numbers("programming", layer, *place)
            g += noise.programming.draw(rng, self.sigma[digits])
            np.maximum(g, 0.0, out=g)
        if noise.drift is not None and noise.t0 is not None and die.seconds > 0:
            nu = die.numbers("drift", layer, *place).standard_normal(digits.shape)
            nu *= self.nu_sigma[digits]
            nu += self.nu[digits]
            g *= noise.drift.factor(nu, die.seconds, noise.t0)
        if noise.flicker is not None:
            z = die.numbers("flicker", layer, *place).standard_normal(digits.shape)
            z *= self.flicker[digits]
            g += np.abs(g) * z
        g -= asked
        return g


def draw(
    weight: IntArray,
    crossbar: Crossbar,
    arrays: Arrays,
    noise: Noise,
    die: Die,
    layer: str,
) -> Drawn:
    """What the arrays of weights [K, N] conduct on a die; the same for every number of threads."""
    slices = encode_weights(weight, crossbar)
    height = crossbar.rows or len(weight)
    blocks = [slice(s, min(s + height, len(weight))) for s in range(0, len(weight), height)]
    devices = Devices(noise, crossbar.cell_maximum, arrays.on_off_ratio, die)
    error = np.empty((len(slices), *weight.shape), np.float32)
    variance = None if noise.read is None else np.empty_like(error)

    def work(index: int) -> None:
        rows = blocks[index]
        digits = _device_digits(slices, crossbar, rows)
        g = np.stack([devices.conductances(d, layer, index, i) for i, d in enumerate(digits)])
        if noise.stuck is not None or noise.ir_drop is not None:
            g = _on_arrays(g, digits, slices, crossbar, arrays, devices, layer, index)
        beyond = np.stack([g[i] - devices.asked(d) for i, d in enumerate(digits)])
        beyond /= devices.unit
        error[:, rows] = beyond[0::2] - beyond[1::2] if _paired(crossbar) else beyond
        if variance is not None and noise.read is not None:
            square = noise.read.sigma**2 / noise.devices * (g / devices.unit) ** 2
            paired = square.reshape(len(slices), -1, *square.shape[1:])
            variance[:, rows] = paired.sum(axis=1)

    map_rows(lambda block: work(block.start), len(blocks), 1)
    cells = _cells(slices, error, crossbar)
    return Drawn(cells, None if variance is None else tuple(variance))


def _paired(crossbar: Crossbar) -> bool:
    """Whether a converter takes the difference of two devices."""
    return crossbar.encoding == "differential" and crossbar.adc_on == "difference"


def _device_digits(slices: tuple[Slice, ...], crossbar: Crossbar, rows: slice) -> list[IntArray]:
    """The digits of physical cells: of each slice, both polarities where they are subtracted."""
    digits = [s.digits[rows] for s in slices]
    if not _paired(crossbar):
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
    pairs = 2 if crossbar.encoding == "differential" else 1
    layout = PhysicalLayout(pairs, len(g) // pairs, arrays.pairs)
    shifts = [s.shift for s in slices for _ in range(len(g) // len(slices))]
    held = np.stack(digits)
    found = np.empty_like(g)
    for number, start in enumerate(range(0, width, across)):
        part = slice(start, start + across)
        cells = layout.cells(g[:, :, part])
        if noise.stuck is not None:
            weights = layout.columns(np.exp2(shifts), cells.shape[1])
            rng = die.numbers("stuck", layer, block, number)
            wanted = layout.cells(held[:, :, part].astype(np.float64))
            on, off = noise.stuck.draw(rng, wanted, weights, devices.top)
            cells = stuck_at(cells, on, off, devices)
        if noise.ir_drop is not None:
            cells = noise.ir_drop.effective(cells, layer)
        found[:, :, part] = layout.weights(cells)
    return found


def stuck_at(cells: FloatArray, on: BoolArray, off: BoolArray, devices: Devices) -> FloatArray:
    """Conductances with those of stuck cells in their place."""
    return np.where(on, devices.full, np.where(off, devices.erased, cells))


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
    finest = max(0, CELL_BITS - crossbar.cell_bits)
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
    fraction = fraction_of(error, [s.digits for s in slices], crossbar)
    leak = crossbar.column_leak << fraction - crossbar.fraction_bits
    conducting = []
    for cells, off in zip(slices, error, strict=True):
        whole = np.floor(off * np.float32(1 << fraction) + np.float32(0.5)).astype(np.int64)
        whole += (cells.digits << fraction) + leak
        conducting.append(replace(cells, digits=narrow(whole)))
    return Cells(tuple(conducting), fraction, leak)


def narrow(whole: IntArray) -> IntArray:
    """The same numbers in 16 or 32 bits where they fit: a die of a large model is large."""
    lo, hi = whole.min(initial=0), whole.max(initial=0)
    kinds = (kind for kind in (np.int16, np.int32, np.int64) if np.iinfo(kind).min <= lo)
    kind = next(kind for kind in kinds if hi <= np.iinfo(kind).max)
    return whole.astype(kind)
