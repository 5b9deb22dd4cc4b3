"""The integer contract of a crossbar, readable: encodings, conversions, shift-and-add in int64.

    mvm(x, W) = sum over row groups r, slices k, cycles c of
                sign_k * sign_c * ( adc_k(x_c[r] . W_k[r]) << (e_k + k * cell_bits + c * dac_bits) )

This file is the definition (docs/integer-contract.md works one tile by hand); `kernels.py` and the
emitted ONNX are tested against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cimtool.arrays import BoolArray, IntArray
from cimtool.ir.format import Rounding, adc, adc_limits

Encoding = Literal["differential", "offset", "offset-flip", "twos-complement"]
InputEncoding = Literal["unsigned", "twos-complement", "offset", "bipolar"]


def slice_count(encoding: Encoding, weight_bits: int, cell_bits: int) -> int:
    """Count the cells that hold one weight's digits; a differential pair stores digits of |W|."""
    stored = weight_bits - 1 if encoding == "differential" else weight_bits
    return -(-stored // cell_bits)


@dataclass(frozen=True)
class Crossbar:
    """How one layer is laid onto arrays, and how its inputs are driven.

    `rows` are summed in one conversion (None: all rows of the layer); inputs take at most
    `dac_bits` a cycle; `adc_bits` None is a lossless converter.
    """

    rows: int | None
    cell_bits: int
    dac_bits: int
    encoding: Encoding
    weight_bits: int
    input_encoding: InputEncoding
    input_bits: int
    adc_bits: int | None
    rounding: Rounding
    accumulator_bits: int

    @property
    def slices(self) -> int:
        """Slices of a weight: `weight_bits` (less the sign where it is analog) in cells."""
        return slice_count(self.encoding, self.weight_bits, self.cell_bits)

    @property
    def cell_maximum(self) -> int:
        """The largest digit that a cell holds."""
        return (1 << self.cell_bits) - 1

    @property
    def signed_sums(self) -> bool:
        """Whether a column sum can be negative, so that its converter needs a sign."""
        return self.encoding == "differential" or self.input_encoding == "bipolar"

    @property
    def adc_limits(self) -> tuple[int, int]:
        """Smallest and largest code of the converter."""
        if self.adc_bits is None:
            raise TypeError("a lossless converter has no codes")
        return adc_limits(self.adc_bits, self.signed_sums)

    def groups(self, rows: int) -> tuple[slice, ...]:
        """The row groups of a layer with so many rows."""
        height = rows if self.rows is None else self.rows
        return tuple(slice(start, min(start + height, rows)) for start in range(0, rows, height))


@dataclass(frozen=True)
class Slice:
    """The cells of one slice: digits [K, N] as stored, and which columns hold complements.

    `flipped` [groups, N]; the digit's weight in the sum is `sign << shift`.
    """

    digits: IntArray
    flipped: BoolArray
    shift: int
    sign: int


@dataclass(frozen=True)
class Cycle:
    """The digits [n, K] that one cycle drives; their weight in the sum is `sign << shift`."""

    digits: IntArray
    shift: int
    sign: int


def encode_weights(weight: IntArray, crossbar: Crossbar) -> tuple[Slice, ...]:
    """Cut integer weights [K, N] into the slices that the cells store, least significant first."""
    groups = crossbar.groups(weight.shape[0])
    plain = np.zeros((len(groups), weight.shape[1]), bool)
    slices = []
    for k in range(crossbar.slices):
        shift = k * crossbar.cell_bits
        if crossbar.encoding == "differential":
            digits = np.sign(weight) * (np.abs(weight) >> shift & crossbar.cell_maximum)
            slices.append(Slice(digits, plain, shift, 1))
        elif crossbar.encoding == "twos-complement":
            top = k == crossbar.slices - 1
            digits = weight >> shift if top else weight >> shift & crossbar.cell_maximum
            if top and crossbar.cell_bits == 1:
                slices.append(Slice(-digits, plain, shift, -1))
            else:
                slices.append(Slice(digits, plain, shift, 1))
        else:
            digits = weight + (1 << crossbar.weight_bits - 1) >> shift & crossbar.cell_maximum
            flipped = plain
            if crossbar.encoding == "offset-flip":
                digits, flipped = _flip(digits, groups, crossbar.cell_maximum)
            slices.append(Slice(digits, flipped, shift, 1))
    return tuple(slices)


def _flip(digits: IntArray, groups: tuple[slice, ...], maximum: int) -> tuple[IntArray, BoolArray]:
    """Store the complement where a column's cells sum to more than half of their maximum."""
    stored, flags = digits.copy(), []
    for group in groups:
        cells = digits[group]
        flip = 2 * cells.sum(axis=0) > maximum * cells.shape[0]
        stored[group] = np.where(flip, maximum - cells, cells)
        flags.append(flip)
    return stored, np.stack(flags)


def input_cycles(crossbar: Crossbar) -> tuple[tuple[int, int, int], ...]:
    """(shift, bits, sign) of each cycle, least significant first.

    The sign of a two's complement input is a cycle of its own, of one bit; the magnitude of a
    bipolar input has one bit less than the input.
    """
    magnitude = crossbar.input_bits
    if crossbar.input_encoding in ("twos-complement", "bipolar"):
        magnitude -= 1
    cycles = [
        (shift, min(crossbar.dac_bits, magnitude - shift), 1)
        for shift in range(0, magnitude, crossbar.dac_bits)
    ]
    if crossbar.input_encoding == "twos-complement":
        cycles.append((magnitude, 1, -1))
    return tuple(cycles)


def encode_inputs(x: IntArray, crossbar: Crossbar) -> Iterator[Cycle]:
    """Cut integer inputs [n, K] into the digits that each cycle drives."""
    sign = np.ones_like(x)
    if crossbar.input_encoding == "bipolar":
        sign, x = np.sign(x), np.abs(x)
    elif crossbar.input_encoding == "offset":
        x = x + (1 << crossbar.input_bits - 1)
    for shift, bits, weight in input_cycles(crossbar):
        yield Cycle(sign * (x >> shift & (1 << bits) - 1), shift, weight)


def column_bounds(cells: Slice, crossbar: Crossbar) -> tuple[IntArray, IntArray]:
    """Smallest and largest column sum [groups, N] that any input can make, from stored cells."""
    largest = max((1 << bits) - 1 for _, bits, _ in input_cycles(crossbar))
    positive, negative = np.maximum(cells.digits, 0), np.minimum(cells.digits, 0)
    groups = crossbar.groups(cells.digits.shape[0])
    up = np.stack([positive[group].sum(axis=0) for group in groups]) * largest
    down = np.stack([negative[group].sum(axis=0) for group in groups]) * largest
    if crossbar.input_encoding == "bipolar":  # every row may be driven with the sign of its cell
        return down - up, up - down
    return down, up


def lossless(cells: Slice, crossbar: Crossbar) -> bool:
    """Whether no column sum of a slice can be clipped at step 1, proved column by column."""
    if crossbar.adc_bits is None:
        return True
    lo, hi = crossbar.adc_limits
    down, up = column_bounds(cells, crossbar)
    return bool(down.min() >= lo and up.max() <= hi)


def conversion_error(cells: Slice, crossbar: Crossbar, step: int) -> IntArray:
    """Largest |converted - exact| of any conversion [groups, N], in units of the column sum."""
    lo, hi = crossbar.adc_limits
    down, up = column_bounds(cells, crossbar)
    rounding = (1 << step) - 1 if crossbar.rounding == "floor" else (1 << step) >> 1
    excess = np.maximum(up - (hi << step), (lo << step) - down)
    return np.maximum(excess, rounding)


def converted_bounds(
    cells: Slice, crossbar: Crossbar, step: int | None
) -> tuple[IntArray, IntArray]:
    """Smallest and largest value [groups, N] that a column's conversions can stand for."""
    down, up = column_bounds(cells, crossbar)
    if step is None:
        return down, up
    lo, hi = (
        adc(edge, step, *crossbar.adc_limits, crossbar.rounding) << step for edge in (down, up)
    )
    return lo, hi


def correction(weight: IntArray, crossbar: Crossbar) -> IntArray:
    """What offset inputs add to every output [N], to be taken off in the digital bias."""
    if crossbar.input_encoding != "offset":
        return np.zeros(weight.shape[1], np.int64)
    total: IntArray = weight.sum(axis=0)
    return total << (crossbar.input_bits - 1)


def mvm(
    x: IntArray, weight: IntArray, crossbar: Crossbar, steps: tuple[int | None, ...]
) -> IntArray:
    """The crossbar product [n, N] of integer inputs [n, K] and weights [K, N].

    `steps[k]` is the exponent of slice k's converter step, None where its converter is lossless.
    """
    slices = encode_weights(weight, crossbar)
    groups = crossbar.groups(weight.shape[0])
    offset_weights = crossbar.encoding in ("offset", "offset-flip")
    total = np.zeros((x.shape[0], weight.shape[1]), np.int64) - correction(weight, crossbar)
    for cycle in encode_inputs(x, crossbar):
        for r, group in enumerate(groups):
            driven = cycle.digits[:, group]
            row_sum = driven.sum(axis=1, keepdims=True)
            for cells, step in zip(slices, steps, strict=True):
                p = driven @ cells.digits[group]
                if step is not None:
                    p = adc(p, step, *crossbar.adc_limits, crossbar.rounding) << step
                p = np.where(cells.flipped[r], crossbar.cell_maximum * row_sum - p, p)
                total += cycle.sign * cells.sign * (p << (cycle.shift + cells.shift))
            if offset_weights:
                half = crossbar.weight_bits - 1 + cycle.shift
                total -= cycle.sign * (row_sum << half)
    return total
