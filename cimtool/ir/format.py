"""The integer contract's scalar rules: the only place that rounds and clips.

`requant`, `adc` and `quantize` are the definitions of the contract (docs/integer-contract.md),
in NumPy `int64`; everything else in the project calls them or is tested against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from cimtool.base.arrays import Array, IntArray

Rounding = Literal["half-up", "half-even", "floor"]


def requant(x: Array, multiplier: Array, shift: Array, lo: Array, hi: Array) -> Array:
    """`clip((x * M + 2^(sh-1)) >> sh, lo, hi)`: rounds half up; |x * M| < 2^62 - 2^sh."""
    half = np.left_shift(np.int64(1), np.asarray(shift, np.int64) - 1)
    return np.clip((x * multiplier + half) >> shift, lo, hi)


def _half_even(p: IntArray, step: Array) -> Array:
    down = p // step
    twice = 2 * (p - down * step)
    up: IntArray = down + ((twice > step) | ((twice == step) & (down & 1 == 1)))
    return up


ROUNDINGS: dict[Rounding, Callable[[IntArray, Array], Array]] = {
    "half-up": lambda p, step: (p + (step >> 1)) // step,
    "half-even": _half_even,
    "floor": lambda p, step: p // step,
}


def adc(p: IntArray, step: Array | int, lo: int, hi: int, rounding: Rounding) -> Array:
    """Convert column sums to codes: `clip(round(p / step), lo, hi)`, for a whole `step` > 0."""
    return np.clip(ROUNDINGS[rounding](p, np.asarray(step, np.int64)), lo, hi)


def quantize(x: Array, scale: Array, lo: int, hi: int) -> IntArray:
    """Round float32 rows to integers, half to even, after a division in float32."""
    steps = np.rint(np.asarray(x, np.float32) / np.asarray(scale, np.float32))
    return np.clip(steps, lo, hi).astype(np.int64)


def round_half_up(x: Array) -> IntArray:
    """Round real numbers to integers, halves up."""
    return np.floor(np.asarray(x, np.float64) + 0.5).astype(np.int64)


def integer_limits(bits: int, signed: bool) -> tuple[int, int]:
    """Symmetric range of a stored integer: +-(2^(bits-1) - 1), or 0 .. 2^bits - 1."""
    return (1 - (1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def adc_limits(bits: int, signed: bool) -> tuple[int, int]:
    """Codes of a converter: two's complement if the sum can be negative, else from 0."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


@dataclass(frozen=True)
class Ratio:
    """A positive factor as `multiplier / 2^shift`, the form that `requant` takes."""

    multiplier: int
    shift: int


def ratio(factor: Fraction, magnitude: int) -> Ratio:
    """Express `factor` for values up to `magnitude`, with as many bits as the contract allows.

    Raises ValueError if fewer than 15 bits are left, or the shift leaves 1..62.
    """
    return ratio_of(factor.numerator, factor.denominator, magnitude)


def ratio_of(numerator: int, denominator: int, magnitude: int) -> Ratio:
    """`ratio` of a quotient of integers above 0 in lowest terms: layers have thousands of them."""
    if denominator & (denominator - 1) == 0:
        places = denominator.bit_length() - 1
        shift = max(places, 1)
        multiplier = numerator << (shift - places)
        if multiplier.bit_length() <= 31 and shift <= 62 and _fits(multiplier, shift, magnitude):
            return Ratio(multiplier, shift)
    exponent = _exponent(numerator, denominator)
    for bits in range(31, 14, -1):
        shift = bits - exponent
        multiplier = _half_up(numerator, denominator, shift)
        if multiplier.bit_length() > bits:
            shift -= 1
            multiplier = _half_up(numerator, denominator, shift)
        if shift > 62:
            continue
        if shift >= 1 and multiplier >= 1 and _fits(multiplier, shift, magnitude):
            return Ratio(multiplier, shift)
    value = float(Fraction(numerator, denominator))
    raise ValueError(f"no multiplier of 15 bits or more for {value:.3g} x {magnitude}")


def _half_up(numerator: int, denominator: int, shift: int) -> int:
    """The quotient times 2^shift, rounded half up; 0 for a negative shift, which no ratio has."""
    return ((numerator << shift + 1) + denominator) // (2 * denominator) if shift >= 0 else 0


def with_fewer_bits(found: Ratio, magnitude: int) -> Ratio:
    """The ratio with as few bits taken off as values up to `magnitude` need; itself if none."""
    multiplier, shift = found.multiplier, found.shift
    while not _fits(multiplier, shift, magnitude) and multiplier > 1 and shift > 1:
        multiplier, shift = multiplier + 1 >> 1, shift - 1
    return Ratio(multiplier, shift)


def _exponent(numerator: int, denominator: int) -> int:
    """The integer e with 2^(e-1) <= numerator / denominator < 2^e."""
    e = numerator.bit_length() - denominator.bit_length()
    low = numerator << max(-e, 0), denominator << max(e, 0)
    return e + 1 if low[0] >= low[1] else e


def _fits(multiplier: int, shift: int, magnitude: int) -> bool:
    return magnitude * multiplier < (1 << 62) - (1 << shift)
