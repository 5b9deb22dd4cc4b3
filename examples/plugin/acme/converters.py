"""Converters: one whose codes count by powers of two, and a capacitor ladder with a trim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import THRESHOLD_BITS, Converter, ConverterKeys, StaircaseLaw
from cimtool.ir.format import adc_limits


@dataclass(frozen=True)
class Logarithmic(Converter, name="logarithmic"):
    """Codes stand for 0 and for powers of two of either sign, with thresholds half-way between."""

    bits: int

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        if bits not in range(2, 5):
            raise ValueError(f"adc_bits = {bits}: a logarithmic converter has 2 to 4")
        return cls(bits)

    def law(self, signed: bool) -> StaircaseLaw:
        lo, hi = adc_limits(self.bits, signed)
        codes = np.arange(lo, hi + 1)
        levels = np.sign(codes) << np.maximum(np.abs(codes) - 1, 0)
        return StaircaseLaw(lo, halfway(levels), levels)


TRIM_BITS = 3


@dataclass(frozen=True)
class CapacitorLadder(Converter, name="capacitor-ladder"):
    """Equal steps whose width the `trim` of the ladder's last capacitor moves by 1/16 each.

    Trim 4 is the nominal ladder; with t the thresholds are (12 + t)/16 of their nominal place,
    while the digital side goes on taking a code for a whole number of steps.
    """

    bits: int
    trim: int

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        trim = (keys.adc_parameters or {}).get("trim", 4)
        if not isinstance(trim, int) or trim not in range(1 << TRIM_BITS):
            raise ValueError(f"adc_parameters.trim = {trim}: must be an integer from 0 to 7")
        return cls(bits, trim)

    def law(self, signed: bool) -> StaircaseLaw:
        lo, hi = adc_limits(self.bits, signed)
        levels = np.arange(lo, hi + 1)
        return StaircaseLaw(lo, halfway(levels) * (12 + self.trim) >> 4, levels)


def halfway(levels: IntArray) -> IntArray:
    """Thresholds in the middle between rising levels, counted as laws do: in 1/16 of a step."""
    return levels[:-1] + levels[1:] << THRESHOLD_BITS - 1
