"""Weight codes: how the cells of an array hold signed integer weights.

A code yields plain data: for each slice the digits that its cells hold, what they count, and which
columns hold complements; and the offset that all cells of a weight hold beyond it, which the
digital side takes off. Every backend and pass reads these data and never asks for a code's name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray, narrow
from cimtool.base.named import Named
from cimtool.base.plugins import fault_of
from cimtool.base.toml_files import name_of


@dataclass(frozen=True)
class Slice:
    """The cells of one slice: digits [K, N] as stored, and which columns hold complements.

    `flipped` [groups, N]; a digit counts `sign << shift` in the sum.
    """

    digits: IntArray
    flipped: BoolArray
    shift: int
    sign: int

    @property
    def signs(self) -> IntArray:
        """Signs [groups, N] with which column sums count: turned where complements are held."""
        return np.where(self.flipped, -self.sign, self.sign)


@dataclass(frozen=True)
class WeightCode(Named):
    """Base of the weight codes: weights of `bits`, a sign included, in cells of `cell_bits`."""

    bits: int
    cell_bits: int

    paired: ClassVar[bool] = False
    """Each digit has a sign, and two cells hold it, one for each polarity."""
    analog: ClassVar[bool] = True
    """Cells conduct, and converters read their sums; else an array adds digitally."""
    is_offset: ClassVar[bool] = False
    """Cells hold weights with an offset, so that the sum of the inputs is needed."""
    complements: ClassVar[bool] = False
    """Columns may hold complements."""
    reference_column: ClassVar[bool] = False
    """Converters see each column of an array less one that conducts `baseline` in every row."""

    @classmethod
    def stored_bits(cls, bits: int) -> int:
        """Bits of a weight that its cells hold."""
        return bits

    @property
    def slices(self) -> int:
        """Slices of a weight."""
        return -(-self.stored_bits(self.bits) // self.cell_bits)

    @property
    def shifts(self) -> range:
        """The lowest bit of each slice's digits, least significant slice first."""
        return range(0, self.slices * self.cell_bits, self.cell_bits)

    @property
    def cells_per_weight(self) -> int:
        """Physical cells of one weight: its slices, twice that where cells come in pairs."""
        return (1 + self.paired) * self.slices

    @property
    def cell_maximum(self) -> int:
        """The largest digit that a cell holds."""
        return (1 << self.cell_bits) - 1

    @property
    def digit_limits(self) -> tuple[int, int]:
        """Smallest and largest digit of a slice: below 0 if cells come in pairs.

        Digits count from the `baseline` of a reference column. Override this if a single cell
        holds signed digits. Such cells get no noise, because they are not conductances.
        """
        if self.paired:
            return -self.cell_maximum, self.cell_maximum
        return -self.baseline, self.cell_maximum - self.baseline

    @property
    def baseline(self) -> int:
        """The digit that the cells of a reference column hold; 0 if there is none."""
        return 0

    @property
    def complement(self) -> int:
        """The sum of a digit and its complement."""
        return sum(self.digit_limits)

    @property
    def offset(self) -> int:
        """The excess of a weight's cells over the weight."""
        return 0

    @abstractmethod
    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        """Slices of integer weights [K, N] in row groups, least significant first."""


def plain(digits: IntArray, groups: Sequence[slice], shift: int, sign: int = 1) -> Slice:
    """A slice without complements."""
    return Slice(digits, np.zeros((len(groups), digits.shape[1]), bool), shift, sign)


@dataclass(frozen=True)
class Differential(WeightCode, name="differential"):
    """Digits of |W| with its sign, in pairs of cells of which one is erased."""

    paired: ClassVar[bool] = True

    @classmethod
    def stored_bits(cls, bits: int) -> int:
        return bits - 1

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        sign, size = np.sign(weight), np.abs(weight)
        return tuple(plain(sign * (size >> k & self.cell_maximum), groups, k) for k in self.shifts)


@dataclass(frozen=True)
class Offset(WeightCode, name="offset"):
    """Digits of W + 2^(bits-1), which is never negative."""

    is_offset: ClassVar[bool] = True

    @property
    def offset(self) -> int:
        return 1 << self.bits - 1

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        lifted = narrow(weight + (1 << self.bits - 1), (np.int32, np.int64))
        return tuple(self._slice(lifted >> k & self.cell_maximum, groups, k) for k in self.shifts)

    def _slice(self, digits: IntArray, groups: Sequence[slice], shift: int) -> Slice:
        return plain(digits, groups, shift)


@dataclass(frozen=True)
class OffsetFlip(Offset, name="offset-flip"):
    """As `offset`; a column of a slice that holds more than half its maximum holds complements."""

    complements: ClassVar[bool] = True

    def _slice(self, digits: IntArray, groups: Sequence[slice], shift: int) -> Slice:
        stored, flags = digits.copy(), []
        for group in groups:
            cells = digits[group]
            flip = 2 * cells.sum(axis=0) > self.cell_maximum * cells.shape[0]
            stored[group] = np.where(flip, self.cell_maximum - cells, cells)
            flags.append(flip)
        return Slice(stored, np.stack(flags), shift, 1)


@dataclass(frozen=True)
class Centred(OffsetFlip, name="centred"):
    """As `offset-flip`, less a reference column whose cells hold the digit below the middle.

    What all columns of an array have in common, the number of driven rows, is so taken off before
    the converter. RAELLA (Andrulis et al. 2023) has a centre for each column instead.
    """

    reference_column: ClassVar[bool] = True

    @property
    def baseline(self) -> int:
        return self.cell_maximum // 2

    @property
    def offset(self) -> int:
        return super().offset - sum(self.baseline << shift for shift in self.shifts)

    def _slice(self, digits: IntArray, groups: Sequence[slice], shift: int) -> Slice:
        held = super()._slice(digits, groups, shift)
        return replace(held, digits=held.digits - self.baseline)


@dataclass(frozen=True)
class TwosComplement(WeightCode, name="twos-complement"):
    """Two's complement digits in cells that digital adders read; the top digit is signed."""

    analog: ClassVar[bool] = False

    @property
    def digit_limits(self) -> tuple[int, int]:
        return -(1 << self.cell_bits - 1), self.cell_maximum

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        *lower, top = self.shifts
        slices = [plain(weight >> k & self.cell_maximum, groups, k) for k in lower]
        if self.cell_bits == 1:
            return (*slices, plain(-(weight >> top), groups, top, -1))
        return (*slices, plain(weight >> top, groups, top))


def stored_slices(code: WeightCode, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
    """Slices of weights [K, N] in row groups, checked: their digits make up the weights.

    Raises CimError naming the plug-in of a code that yields others, ValueError for one of cimtool.
    """
    slices = tuple(code.encode(weight, groups))
    for wrong in _wrong_forms(code, slices, weight.shape, len(groups)):
        raise fault_of(type(code), f"{type(code).__name__}.encode yields {wrong}", ValueError)
    for r, group in enumerate(groups):
        found = _weights_of(code, slices, r, group)
        if not np.array_equal(found, weight[group]):
            row, column = np.argwhere(found != weight[group])[0]
            sentence = (
                f"{type(code).__name__}.encode yields digits that make {found[row, column]} of the "
                f"weight {weight[group][row, column]}; expected the sum of its digits times sign "
                "<< shift, less its offset, to be the weight"
            )
            raise fault_of(type(code), sentence, ValueError)
    return slices


def _wrong_forms(
    code: WeightCode, slices: tuple[Slice, ...], shape: tuple[int, ...], groups: int
) -> Iterator[str]:
    """Yield what is wrong with the number, the forms and the limits of slices."""
    if len(slices) != code.slices or not all(isinstance(one, Slice) for one in slices):
        kinds = " or ".join(sorted({type(one).__name__ for one in slices}))
        yield f"{len(slices)} slices ({kinds or 'none'}); expected {code.slices} of type Slice"
    lo, hi = code.digit_limits
    for k, one in enumerate(slices):
        digits, flags = np.asarray(one.digits), np.asarray(one.flipped)
        if digits.shape != shape or digits.dtype.kind not in "iu":
            yield (
                f"digits {list(digits.shape)} of {digits.dtype} in slice {k}; expected integers "
                f"{list(shape)}"
            )
        if flags.shape != (groups, shape[1]) or flags.dtype != bool:
            yield (
                f"flipped {list(flags.shape)} of {flags.dtype} in slice {k}; expected bool "
                f"{[groups, shape[1]]}"
            )
        if digits.size and not lo <= digits.min() <= digits.max() <= hi:
            yield (
                f"digits from {digits.min()} to {digits.max()} in slice {k}; expected {lo} to "
                f"{hi}, its digit_limits"
            )


def _weights_of(code: WeightCode, slices: tuple[Slice, ...], index: int, group: slice) -> IntArray:
    """The weights of a row group that slices hold."""
    held = (one.flipped[index] * (one.sign * code.complement << one.shift) for one in slices)
    total = np.asarray(sum(held), np.int64) - code.offset
    for one in slices:
        total = total + one.digits[group] * (one.signs[index] << one.shift)
    return np.asarray(total)


Encoding = name_of(WeightCode)
"""The name of a weight code, in a validated table."""
