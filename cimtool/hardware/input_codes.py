"""Input codes: how integer inputs become the digits that drive the rows of an array.

A code yields plain data: the number that is added to an input first, whether the sign is driven
apart from the magnitude, and the cycles, each with the bits that it drives and their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.named import Named
from cimtool.base.plugins import fault_of
from cimtool.base.toml_files import name_of


@dataclass(frozen=True)
class Cycle:
    """One cycle: `bits` of the inputs from bit `shift` on, which count `sign << shift` in the sum.

    If `bits` is None, the cycle drives all bits from `shift` up.
    """

    shift: int
    bits: int | None
    sign: int

    @property
    def mask(self) -> int:
        """The bits of a shifted input that are driven."""
        return -1 if self.bits is None else (1 << self.bits) - 1

    @property
    def factor(self) -> int:
        """The weight of a digit in the sum."""
        return self.sign << self.shift


@dataclass(frozen=True)
class InputCode(Named):
    """Base of the input codes: inputs of `bits`, at most `dac_bits` of them driven in a cycle."""

    bits: int
    dac_bits: int

    signed: ClassVar[bool] = True
    """Inputs may be negative."""
    sign_magnitude: ClassVar[bool] = False
    """A digit of |x| is driven with the sign of x."""

    @classmethod
    def limits(cls, bits: int) -> tuple[int, int]:
        """Smallest and largest input of this many bits."""
        return -(1 << bits - 1), (1 << bits - 1) - 1

    @classmethod
    def bits_for(cls, lo: int, hi: int) -> int:
        """The fewest bits that hold inputs from `lo` to `hi`."""
        bits = 1
        while not (cls.limits(bits)[0] <= lo and hi <= cls.limits(bits)[1]):
            bits += 1
        return bits

    @property
    def lift(self) -> int:
        """The addend of an input before it is cut into digits."""
        return 0

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """The cycles, least significant first."""
        return self._magnitude_cycles(self.bits)

    @property
    def lifted_limits(self) -> tuple[int, int]:
        """Smallest and largest input with the addend."""
        lo, hi = self.limits(self.bits)
        return lo + self.lift, hi + self.lift

    def digits(self, x: IntArray, cycles: Sequence[Cycle]) -> IntArray:
        """Digits [cycles, n, K] int64 that these cycles drive for inputs [n, K]."""
        x = x.astype(np.int64) + self.lift
        if not self.sign_magnitude:
            return np.stack([x >> cycle.shift & cycle.mask for cycle in cycles])
        sign, x = np.sign(x), np.abs(x)
        return np.stack([sign * (x >> cycle.shift & cycle.mask) for cycle in cycles])

    def digit_limits(self, cycle: Cycle) -> tuple[int, int]:
        """Smallest and largest digit that a cycle of such inputs drives.

        A cycle that takes all above its shift has the sign of the input.
        """
        lo, hi = self.lifted_limits
        if cycle.bits is not None:
            return (-cycle.mask if self.sign_magnitude and lo < 0 else 0), cycle.mask
        if self.sign_magnitude and lo < 0:
            return -(-lo >> cycle.shift), max(hi, 0) >> cycle.shift
        return lo >> cycle.shift, hi >> cycle.shift

    def _magnitude_cycles(self, bits: int) -> tuple[Cycle, ...]:
        """Cycles of unsigned numbers of this many bits."""
        starts = range(0, bits, self.dac_bits)
        return tuple(Cycle(start, min(self.dac_bits, bits - start), 1) for start in starts)


@dataclass(frozen=True)
class Unsigned(InputCode, name="unsigned"):
    """Inputs that are never negative, as they are."""

    signed: ClassVar[bool] = False

    @classmethod
    def limits(cls, bits: int) -> tuple[int, int]:
        return 0, (1 << bits) - 1


@dataclass(frozen=True)
class TwosComplementInput(InputCode, name="twos-complement"):
    """Two's complement: the sign bit is driven in a separate cycle, which counts negative."""

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        top = self.bits - 1
        return (*self._magnitude_cycles(top), Cycle(top, 1, -1))


@dataclass(frozen=True)
class OffsetInput(InputCode, name="offset"):
    """x + 2^(bits-1), which is never negative."""

    @property
    def lift(self) -> int:
        return 1 << self.bits - 1


@dataclass(frozen=True)
class Bipolar(InputCode, name="bipolar"):
    """Sign and magnitude: rows are driven with either polarity."""

    sign_magnitude: ClassVar[bool] = True

    @classmethod
    def limits(cls, bits: int) -> tuple[int, int]:
        return 1 - (1 << bits - 1), (1 << bits - 1) - 1

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        return self._magnitude_cycles(self.bits - 1)


@cache
def check_cycles(code: InputCode) -> None:
    """Check that the digits of a code make up its inputs.

    Raises CimError naming the plug-in of one that does not, ValueError for one of cimtool.
    """
    lo, hi = code.limits(code.bits)
    x = np.array([lo + (hi - lo) * i // CHECKED_INPUTS for i in range(CHECKED_INPUTS + 1)])
    factors = np.array([cycle.factor for cycle in code.cycles], np.int64)
    found = factors @ code.digits(x[:, None], code.cycles)[:, :, 0] - code.lift
    if not np.array_equal(found, x):
        first = int(np.argmax(found != x))
        sentence = (
            f"{type(code).__name__}.cycles drive digits that make {found[first]} of the input "
            f"{x[first]}; expected the sum of the digits times sign << shift, less lift, to be the "
            "input"
        )
        raise fault_of(type(code), sentence, ValueError)


CHECKED_INPUTS = 64
"""Inputs from one limit to the other on which a code is checked, beside the first."""


def _names(signed: bool) -> list[str]:
    return [name for name, code in InputCode.family.items() if code.signed == signed]


InputEncoding = name_of(InputCode, lambda: _names(signed=True))
"""The name of a code for inputs that may be negative, in a validated table."""

UnsignedEncoding = name_of(InputCode, lambda: _names(signed=False))
"""The name of a code for inputs that are never negative."""
