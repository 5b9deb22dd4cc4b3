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

    `flipped` [groups, N]; a digit counts `sign * factor << shift` in the sum. The `factor`, above
    0, is 1 but for digits whose base is no power of two.
    """

    digits: IntArray
    flipped: BoolArray
    shift: int
    sign: int
    factor: int = 1

    @property
    def worth(self) -> int:
        """The number that a digit counts in the sum."""
        return self.sign * self.factor << self.shift

    @property
    def counts(self) -> IntArray:
        """Factors [groups, N] with which column sums count: turned where complements are held."""
        return np.where(self.flipped, -self.worth, self.worth)


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
    holds_digits: ClassVar[bool] = True
    """The cells hold the digits; else the array makes these of what its cells hold."""
    shared_rows: ClassVar[int | None] = None
    """Rows of a column that share an exponent, which lies beside their cells."""
    multiplies: ClassVar[bool] = False
    """The sums of slices are multiplied, by more than shifts, before they are added."""
    widths: ClassVar[tuple[int, ...] | None] = None
    """The bits that a weight may have; None: any."""

    @classmethod
    def takes(cls, bits: int) -> bool:
        """True if weights may have so many bits."""
        return cls.widths is None or bits in cls.widths

    @classmethod
    def stored_bits(cls, bits: int) -> int:
        """Bits of a weight that its cells hold."""
        return bits

    @property
    def symmetric(self) -> bool:
        """Weights reach as far down as up: cells hold magnitudes."""
        return self.paired

    @property
    def largest(self) -> int:
        """The largest weight that a trained one is rounded to; the least is its negative."""
        return (1 << self.precision) - 1

    @property
    def precision(self) -> int:
        """Significant bits of a weight, or of one that shares an exponent before its shift."""
        return self.bits - 1

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
class Ternary(WeightCode, name="ternary"):
    """Balanced ternary digits -1, 0 and 1, which count powers of 3, in pairs of one-bit cells."""

    paired: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cell_bits != 1:
            raise ValueError(
                f'cell_bits = {self.cell_bits}: encoding = "ternary" holds a digit in a pair of '
                "one-bit cells; expected cell_bits = 1 with it"
            )

    @property
    def slices(self) -> int:
        return next(n for n in range(1, self.bits + 1) if 3**n >= 2 * self.largest + 1)

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        rest, slices = weight.astype(np.int64), []
        for place in range(self.slices):
            digits = (rest + 1) % 3 - 1
            slices.append(replace(plain(digits, groups, 0), factor=3**place))
            rest = (rest - digits) // 3
        return tuple(slices)


@dataclass(frozen=True)
class Offset(WeightCode, name="offset"):
    """Digits of W + 2^(bits-1), which is never negative."""

    is_offset: ClassVar[bool] = True

    @property
    def offset(self) -> int:
        return 1 << self.bits - 1

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        lifted = narrow(weight + (1 << self.bits - 1), (np.int16, np.int32, np.int64))
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


@dataclass(frozen=True)
class SignMagnitude(WeightCode, name="sign-magnitude"):
    """Digits of |W| in cells that digital adders read, and the sign of W in one more bit."""

    analog: ClassVar[bool] = False
    holds_digits: ClassVar[bool] = False

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def slices(self) -> int:
        return -(-self.precision // self.cell_bits)

    @property
    def cells_per_weight(self) -> int:
        return -(-self.bits // self.cell_bits)

    @property
    def digit_limits(self) -> tuple[int, int]:
        return -self.cell_maximum, self.cell_maximum

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        sign, size = np.sign(weight), np.abs(weight)
        return tuple(plain(sign * (size >> k & self.cell_maximum), groups, k) for k in self.shifts)


@dataclass(frozen=True)
class MiniFloat(SignMagnitude):
    """Numbers of a sign, an exponent of 2 bits and the rest mantissa, in units of the least.

    E2M1 of 4 bits holds 0, 1, 2, 3, 4, 6, 8, 12: the halves of 0 to 6. Exponents 0 and 1 shift
    nothing, 2 and 3 shift by 1 and 2. An array shifts the digits of the significand, whose hidden
    bit is not stored.
    """

    @property
    def largest(self) -> int:
        return (1 << self.precision) - 1 << MOST_FLOAT_SHIFT

    @property
    def precision(self) -> int:
        return self.bits - 2

    @property
    def digit_limits(self) -> tuple[int, int]:
        most = self.cell_maximum << MOST_FLOAT_SHIFT
        return -most, most

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        size = np.abs(weight)
        beyond = [size >= 1 << self.precision + shift for shift in range(MOST_FLOAT_SHIFT)]
        shift = np.sum(beyond, axis=0)
        significands = super().encode(np.sign(weight) * (size >> shift), groups)
        return tuple(replace(one, digits=one.digits << shift) for one in significands)


MOST_FLOAT_SHIFT = 2
"""The largest shift of a MiniFloat's significand."""


SHARED_ROWS, EXPONENT_BITS = 32, 8
"""Rows that share an exponent in an MX format, and the bits of one: the specification's."""

MOST_EXPONENT = 3
"""The largest exponent of a block of weights."""


@dataclass(frozen=True)
class Microscaled(WeightCode):
    """Elements whose power-of-two exponent is shared by 32 rows of a column, in digital arrays.

    OCP Microscaling Formats (MX) specification 1.0, 2023. There an exponent has 8 bits (E8M0).
    Here a column has a real scale too, so that exponents of 0 to MOST_EXPONENT reach all blocks
    but those whose largest weight is under 1/16 of the column's; these are rounded to steps of
    exponent 0. A weight is `element << exponent`, an integer, so that products stay exact.
    """

    element: ClassVar[type[WeightCode]]
    """The code of an element."""
    analog: ClassVar[bool] = False
    holds_digits: ClassVar[bool] = False
    shared_rows: ClassVar[int | None] = SHARED_ROWS

    @property
    def _element(self) -> WeightCode:
        return self.element(self.bits, self.cell_bits)

    @property
    def largest(self) -> int:
        return self._element.largest << MOST_EXPONENT

    @property
    def precision(self) -> int:
        return self._element.precision

    @property
    def slices(self) -> int:
        return self._element.slices

    @property
    def cells_per_weight(self) -> int:
        return self._element.cells_per_weight

    @property
    def digit_limits(self) -> tuple[int, int]:
        lo, hi = self._element.digit_limits
        return lo << MOST_EXPONENT, hi << MOST_EXPONENT

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        shifts = self.exponents(weight)
        elements = self._element.encode(weight >> shifts, groups)
        return tuple(replace(one, digits=one.digits << shifts) for one in elements)

    def exponents(self, weight: IntArray) -> IntArray:
        """The least exponents with which elements reach the weights [K, N], for each weight."""
        starts, largest = np.arange(0, len(weight), SHARED_ROWS), self._element.largest
        most = np.maximum.reduceat(np.abs(weight), starts, axis=0)
        beyond = [most > largest << shift for shift in range(MOST_EXPONENT)]
        return np.repeat(np.sum(beyond, axis=0), SHARED_ROWS, axis=0)[: len(weight)]


@dataclass(frozen=True)
class MxInt(Microscaled, name="mxint"):
    """Integers of up to 8 bits in two's complement: MXINT8, and the same of fewer bits."""

    element: ClassVar[type[WeightCode]] = TwosComplement
    widths: ClassVar[tuple[int, ...] | None] = tuple(range(2, 9))


@dataclass(frozen=True)
class MxFloat(Microscaled, name="mxfp"):
    """Small floating-point numbers: E2M1 of 4 bits (MXFP4), E2M3 of 6 (MXFP6)."""

    element: ClassVar[type[WeightCode]] = MiniFloat
    widths: ClassVar[tuple[int, ...] | None] = (4, 6)


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
                "* factor << shift, less its offset, to be the weight"
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
    held = (one.flipped[index] * (one.worth * code.complement) for one in slices)
    total = np.asarray(sum(held), np.int64) - code.offset
    for one in slices:
        total = total + one.digits[group] * one.counts[index]
    return np.asarray(total)


Encoding = name_of(WeightCode)
"""The name of a weight code, in a validated table."""
