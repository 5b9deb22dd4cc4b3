"""The integer contract of a crossbar, readable: encodings, conversions, shift-and-add in int64.

    mvm(x, W) = sum over row groups r, slices k, cycles c of
                sign_k * sign_c * ( adc_k(x_c[r] . W_k[r]) << (e_k + k * cell_bits + c * dac_bits) )

With `adc_on = polarity` each polarity of a slice is a term k of its own; with `shift_add = analog`
the sum over c is inside the adc; where erased cells leak, sums count in 2^-LEAK_BITS of a digit.

This file is the definition (docs/integer-contract.md works one tile by hand); `kernels.py` and the
emitted ONNX are tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.hardware.converter import Converter
from cimtool.ir.format import Rounding, adc_limits

Encoding = Literal["differential", "offset", "offset-flip", "twos-complement"]
InputEncoding = Literal["unsigned", "twos-complement", "offset", "bipolar"]
AdcOn = Literal["difference", "polarity"]
ShiftAdd = Literal["digital", "analog"]
OffsetSum = Literal["digital", "unit-column"]
UnusedRows = Literal["off", "driven"]

LEAK_BITS = 12
"""Where erased cells conduct, column sums are counted in so many binary places of a digit."""


def slice_count(encoding: Encoding, weight_bits: int, cell_bits: int) -> int:
    """Count the cells that hold one weight's digits; a differential pair stores digits of |W|."""
    stored = weight_bits - 1 if encoding == "differential" else weight_bits
    return -(-stored // cell_bits)


def leak_of(on_off_ratio: float | None, cell_bits: int) -> int:
    """What an erased cell conducts, in 2^-LEAK_BITS of a digit: the digits span g_min to g_max.

    Zero for a ratio of None (infinite), or one so large that the leak rounds to nothing.
    """
    if on_off_ratio is None:
        return 0
    digit = ((1 << cell_bits) - 1) / (on_off_ratio - 1)
    return int(np.floor(digit * (1 << LEAK_BITS) + 0.5))


@dataclass(frozen=True)
class Crossbar:
    """How one layer is laid onto arrays, and how its inputs are driven.

    `rows` weights lie in one column of an array (None: all rows of the layer) and `rows_active` of
    them are summed in one conversion (None: all). Inputs take at most `dac_bits` a cycle.
    `adc_bits` None is a lossless converter; otherwise either `rounding` or `transfer` (its measured
    thresholds) says how it converts, `adc_on` whether it sees the difference of a differential pair
    or each polarity, `shift_add` whether cycles are added before it (analog) or behind it.
    `offset_sum` says how the inputs' sum is found that offset weights need. `leak` is what an
    erased cell conducts in 2^-LEAK_BITS of a digit, also in `unused_rows` that are driven.
    """

    rows: int | None
    cell_bits: int
    dac_bits: int
    encoding: Encoding
    weight_bits: int
    input_encoding: InputEncoding
    input_bits: int
    adc_bits: int | None
    rounding: Rounding | None
    accumulator_bits: int
    rows_active: int | None = None
    adc_on: AdcOn = "difference"
    shift_add: ShiftAdd = "digital"
    offset_sum: OffsetSum = "digital"
    leak: int = 0
    unused_rows: UnusedRows = "off"
    transfer: tuple[int, ...] | None = None

    @property
    def slices(self) -> int:
        """Columns that are converted for each weight: its slices, each polarity where converted."""
        count = slice_count(self.encoding, self.weight_bits, self.cell_bits)
        return 2 * count if self.encoding == "differential" and self.adc_on == "polarity" else count

    @property
    def cell_maximum(self) -> int:
        """The largest digit that a cell holds."""
        return (1 << self.cell_bits) - 1

    @property
    def offset_weights(self) -> bool:
        """Whether cells hold W + 2^(n-1), so that the inputs' sum is taken off again."""
        return self.encoding in ("offset", "offset-flip")

    @property
    def unit_column(self) -> bool:
        """Whether a column of ones, converted like the others, measures the inputs' sum."""
        return self.offset_weights and self.offset_sum == "unit-column"

    @property
    def column_leak(self) -> int:
        """What each row adds to a column sum beside its digit; cancels in analog differences."""
        return 0 if self.encoding == "differential" and self.adc_on == "difference" else self.leak

    @property
    def fraction_bits(self) -> int:
        """Binary places in which column sums are counted: none where no leak makes fractions."""
        return LEAK_BITS if self.column_leak else 0

    @property
    def digit_limits(self) -> tuple[int, int]:
        """Smallest and largest digit that a cycle drives."""
        if self.shift_add == "analog":
            top = 1 << self.input_bits
            if self.input_encoding == "twos-complement":
                return -(top >> 1), (top >> 1) - 1
            return (1 - (top >> 1), (top >> 1) - 1) if self._bipolar else (0, top - 1)
        largest = max((1 << bits) - 1 for _, bits, _ in input_cycles(self))
        return (-largest, largest) if self._bipolar else (0, largest)

    @property
    def _bipolar(self) -> bool:
        return self.input_encoding == "bipolar"

    @property
    def signed_sums(self) -> bool:
        """Whether a column sum can be negative, so that its converter needs a sign."""
        difference = self.encoding == "differential" and self.adc_on == "difference"
        return difference or self.digit_limits[0] < 0

    @cached_property
    def converter(self) -> Converter:
        """The converter of the column sums; TypeError where it is lossless."""
        if self.adc_bits is None:
            raise TypeError("a lossless converter has no codes")
        return Converter(self.adc_bits, self.signed_sums, self.rounding, self.transfer)

    @property
    def adc_limits(self) -> tuple[int, int]:
        """Smallest and largest code of the converter."""
        if self.adc_bits is None:
            raise TypeError("a lossless converter has no codes")
        return adc_limits(self.adc_bits, self.signed_sums)

    def groups(self, rows: int) -> tuple[slice, ...]:
        """The row groups of a layer with so many rows; none reaches over the end of an array."""
        height = rows if self.rows is None else self.rows
        active = height if self.rows_active is None else self.rows_active
        return tuple(
            slice(first, min(first + active, start + height, rows))
            for start in range(0, rows, height)
            for first in range(start, min(start + height, rows), active)
        )

    def idle_rows(self, rows: int) -> IntArray:
        """Rows [groups] that are driven beside a layer's own, with the code of zero."""
        groups = self.groups(rows)
        if self.unused_rows == "off" or self.rows is None:
            return np.zeros(len(groups), np.int64)
        active = self.rows if self.rows_active is None else self.rows_active
        ends = [min(g.start + active, g.start - g.start % self.rows + self.rows) for g in groups]
        return np.array([end - g.stop for end, g in zip(ends, groups, strict=True)], np.int64)


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
class Cells:
    """What the arrays of one layer conduct: whole numbers of 2^-fraction_bits of a digit.

    `slices[k].digits` [K, N] of the perfect array are its digits and `leak`, what an erased cell
    conducts; those of a die are what its devices came to. `leak` is what the digital side takes off
    for each row.
    """

    slices: tuple[Slice, ...]
    fraction_bits: int
    leak: int


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
    count = slice_count(crossbar.encoding, crossbar.weight_bits, crossbar.cell_bits)
    for k in range(count):
        shift = k * crossbar.cell_bits
        if crossbar.encoding == "differential":
            digits = np.sign(weight) * (np.abs(weight) >> shift & crossbar.cell_maximum)
            if crossbar.adc_on == "difference":
                slices.append(Slice(digits, plain, shift, 1))
            else:
                slices.append(Slice(np.maximum(digits, 0), plain, shift, 1))
                slices.append(Slice(np.maximum(-digits, 0), plain, shift, -1))
        elif crossbar.encoding == "twos-complement":
            top = k == count - 1
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


def drive_cycles(crossbar: Crossbar) -> tuple[tuple[int, int, int], ...]:
    """(shift, bits, sign) of each cycle in which the array is driven, least significant first.

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


def input_cycles(crossbar: Crossbar) -> tuple[tuple[int, int, int], ...]:
    """(shift, bits, sign) of the column sums that are converted: all cycles in one where analog."""
    if crossbar.shift_add == "analog":
        return ((0, crossbar.input_bits, 1),)
    return drive_cycles(crossbar)


def encode_inputs(x: IntArray, crossbar: Crossbar) -> Iterator[Cycle]:
    """Cut integer inputs [n, K] into the digits that make each converted column sum, as int64."""
    x = x.astype(np.int64, copy=False)
    if crossbar.input_encoding == "offset":
        x = x + (1 << crossbar.input_bits - 1)
    if crossbar.shift_add == "analog":
        yield Cycle(x, 0, 1)
        return
    sign = np.ones_like(x)
    if crossbar.input_encoding == "bipolar":
        sign, x = np.sign(x), np.abs(x)
    for shift, bits, weight in input_cycles(crossbar):
        yield Cycle(sign * (x >> shift & (1 << bits) - 1), shift, weight)


def zero_digits(crossbar: Crossbar) -> IntArray:
    """The digit [cycles] with which a row is driven whose input is zero."""
    zero = np.zeros((1, 1), np.int64)
    return np.array([cycle.digits[0, 0] for cycle in encode_inputs(zero, crossbar)])


def unit_cells(rows: int, crossbar: Crossbar) -> Slice:
    """The unit column: a slice of one column whose cells all hold 1."""
    plain = np.zeros((len(crossbar.groups(rows)), 1), bool)
    return Slice(np.ones((rows, 1), np.int64), plain, 0, 1)


def perfect_cells(weight: IntArray, crossbar: Crossbar) -> Cells:
    """The cells of integer weights [K, N] as the contract has them, every device perfect."""
    fraction, leak = crossbar.fraction_bits, crossbar.column_leak
    slices = tuple(perfect(stored, crossbar) for stored in encode_weights(weight, crossbar))
    return Cells(slices, fraction, leak)


def perfect(stored: Slice, crossbar: Crossbar) -> Slice:
    """What stored digits conduct on perfect devices."""
    fraction, leak = crossbar.fraction_bits, crossbar.column_leak
    if not fraction and not leak:
        return stored
    return replace(stored, digits=(stored.digits << fraction) + leak)


def correction(weight: IntArray, crossbar: Crossbar) -> IntArray:
    """What offset inputs add to every output [N], to be taken off in the digital bias."""
    if crossbar.input_encoding != "offset":
        return np.zeros(weight.shape[1], np.int64)
    total: IntArray = weight.sum(axis=0)
    return total << (crossbar.input_bits - 1)


def row_sum_factors(slices: tuple[Slice, ...], crossbar: Crossbar) -> IntArray:
    """How often the sum of a group's encoded inputs is added to each output [groups, N]."""
    terms = [s.flipped * (s.sign * crossbar.cell_maximum << s.shift) for s in slices]
    total = np.asarray(np.sum(terms, axis=0), np.int64)
    return total - (1 << crossbar.weight_bits - 1) if crossbar.offset_weights else total


def mvm(
    x: IntArray,
    weight: IntArray,
    crossbar: Crossbar,
    steps: tuple[int | None, ...],
    unit_step: int | None = None,
) -> IntArray:
    """The crossbar product [n, N] of integer inputs [n, K] and weights [K, N].

    `steps[k]` is the exponent of slice k's converter step and `unit_step` that of the unit column,
    None where the conversion is lossless; steps count from 2^-fraction_bits of a digit.
    """
    return -correction(weight, crossbar) + cells_mvm(
        x, perfect_cells(weight, crossbar), crossbar, steps, unit_step
    )


Convert = Callable[[IntArray, int, int, int], IntArray]
"""(column sums [n, N], row group, slice, cycle) to what the digital side takes them for."""


def cells_mvm(
    x: IntArray,
    cells: Cells,
    crossbar: Crossbar,
    steps: tuple[int | None, ...],
    unit_step: int | None = None,
    convert: Convert | None = None,
) -> IntArray:
    """What arrays that conduct as `cells` say make of inputs [n, K]: `mvm` without `correction`.

    Steps are those of `mvm`: cells of more places than the contract's are converted at the same
    steps. `convert` stands for converters that are not those of the contract.
    """
    height, width = cells.slices[0].digits.shape
    groups, idle = crossbar.groups(height), crossbar.idle_rows(height)
    fraction = cells.fraction_bits
    finer = fraction - crossbar.fraction_bits
    total = np.zeros((x.shape[0], width), np.int64)
    driving = zip(encode_inputs(x, crossbar), zero_digits(crossbar), strict=True)
    for c, (cycle, zero) in enumerate(driving):
        for r, group in enumerate(groups):
            driven = cycle.digits[:, group]
            summed = driven.sum(axis=1, keepdims=True)
            unused = cells.leak * idle[r] * zero
            leak = cells.leak * summed + unused
            if crossbar.unit_column:
                summed = _converted(summed, crossbar, unit_step)
            row_sum = summed << fraction
            for k, (column, step) in enumerate(zip(cells.slices, steps, strict=True)):
                p = _product(driven, column.digits[group]) + unused
                if convert is None:
                    p = _converted(p, crossbar, None if step is None else step + finer)
                else:
                    p = convert(p, r, k, c)
                p = p - leak
                p = np.where(column.flipped[r], crossbar.cell_maximum * row_sum - p, p)
                total += cycle.sign * column.sign * (p << (cycle.shift + column.shift))
            if crossbar.offset_weights:
                half = crossbar.weight_bits - 1 + cycle.shift
                total -= cycle.sign * (row_sum << half)
    return total + (1 << fraction >> 1) >> fraction


def _product(x: IntArray, cells: IntArray) -> IntArray:
    """`x @ cells`, in float64 where every sum is exact there: integers have no BLAS."""
    largest = (int(np.abs(factor).max(initial=0)) for factor in (x, cells))
    if math.prod(largest) * len(cells) >= 1 << 53:
        return x @ cells
    return (x.astype(np.float64) @ cells.astype(np.float64)).astype(np.int64)


def _converted(p: IntArray, crossbar: Crossbar, step: int | None) -> IntArray:
    return p if step is None else crossbar.converter.codes(p, step) << step
