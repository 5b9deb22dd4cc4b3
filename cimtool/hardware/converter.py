"""The converter of a column sum: a formula, or the transfer table that was measured on one.

adc(p; e, lo, hi) = clip(round(p / 2^e), lo, hi)          or, with thresholds t_1 <= t_2 <= ..,
adc(p; e, lo, hi) = lo + how many t_j <= p / 2^e - lo     a code either way
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.ir.format import Rounding, adc, adc_limits

TRANSFER_BITS = 4
"""Measured thresholds are kept in so many binary places of a code: 1/16 of it."""


@dataclass(frozen=True)
class Converter:
    """An ADC of `bits`; `transfer` are its 2^bits - 1 thresholds in 1/16 of a code, if measured.

    `rounding` is None where there is a table. `signed` codes go from -2^(bits-1), others from 0;
    a table counts from the lowest code, so that one table serves signed and unsigned sums.
    """

    bits: int
    signed: bool
    rounding: Rounding | None
    transfer: tuple[int, ...] | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest code."""
        return adc_limits(self.bits, self.signed)

    @cached_property
    def thresholds(self) -> IntArray:
        """Threshold j in 1/16 of a code: from it on codes are at least lo + j + 1.

        Raises TypeError where a formula stands.
        """
        if self.transfer is None:
            raise TypeError("a converter with a formula has no thresholds")
        return np.array(self.transfer, np.int64) + (self.limits[0] << TRANSFER_BITS)

    @cached_property
    def table(self) -> tuple[int, IntArray]:
        """The law as a table: its first entry in 1/16 of a step, and the code of each entry.

        Whole steps; sums before it have the first code, sums behind it the last.
        """
        whole = 1 << TRANSFER_BITS
        first = (int(self.thresholds[0]) - 1) // whole * whole
        last = -(-int(self.thresholds[-1]) // whole) * whole
        return first, self.codes(np.arange(first, last + 1), TRANSFER_BITS)

    def codes(self, p: IntArray, step: Array | int) -> IntArray:
        """Convert column sums to codes at step 2^step."""
        lo, hi = self.limits
        if self.rounding is not None:
            return adc(p, step, lo, hi, self.rounding)
        edges = self.thresholds << np.int64(step)
        found: IntArray = np.searchsorted(edges, p << TRANSFER_BITS, side="right")
        return lo + found

    def error(self, step: int) -> int:
        """Largest |converted - exact| within the range of the codes, in units of the column sum."""
        if self.rounding == "floor":
            return (1 << step) - 1
        if self.rounding is not None:
            return (1 << step) >> 1
        lo, hi = self.limits
        codes = np.arange(lo, hi) << TRANSFER_BITS  # threshold j divides code lo + j from the next
        off = np.maximum(self.thresholds - codes, codes + (1 << TRANSFER_BITS) - self.thresholds)
        return (int(off.max()) << step) + (1 << TRANSFER_BITS) - 1 >> TRANSFER_BITS


def transfer_shifts(step: int) -> tuple[int, int]:
    """Bits by which a sum goes up, then down, to be counted in 1/16 of a step 2^step."""
    return max(TRANSFER_BITS - step, 0), max(step - TRANSFER_BITS, 0)


def measured_thresholds(transfer: Sequence[float]) -> tuple[int, ...]:
    """Round thresholds in codes to the 1/16 of a code in which the contract counts them."""
    return tuple(int(np.floor(t * (1 << TRANSFER_BITS) + 0.5)) for t in transfer)
