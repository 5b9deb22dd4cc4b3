"""Exponentials, logarithms, sines and cosines of many numbers at once; compiled, in vectors.

The C library takes one number at a time.
"""

from __future__ import annotations

import math

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.compiled import jit_fused_part

LIMIT = 708.0
"""Largest exponent: e^708 is finite, and a sigmoid beyond is below 1e-300 of the largest."""

LOG2_E, LN2 = 1 / math.log(2), math.log(2)
LN2_HIGH = math.ldexp(math.floor(math.ldexp(LN2, 42)), -42)
"""The first bits of ln 2: their product with an exponent of at most 11 bits is exact."""

LN2_LOW = 5.497923018708371e-14
"""ln 2 - LN2_HIGH."""

ROUND = 1.5 * 2.0**52
"""A number plus this has the nearest integer in its lowest bits."""

T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13 = (1 / math.factorial(n) for n in range(2, 14))
"""Coefficients of e^r for |r| < 0.35: the next term is below 1e-17."""

S3, S5, S7, S9, S11, S13, S15 = (-T3, T5, -T7, T9, -T11, T13, -1 / math.factorial(15))
C4, C6, C8, C10, C12 = (T4, -T6, T8, -T10, T12)
C14, C16 = -1 / math.factorial(14), 1 / math.factorial(16)
"""Coefficients of sine and cosine for |r| < pi / 4: the next terms are below 1e-16 of the sums."""

QUARTERS = 2 / math.pi
QUARTER_HIGH = math.ldexp(math.floor(math.ldexp(math.pi / 2, 32)), -32)
"""The first 33 bits of pi / 2: their product with an integer of 20 bits is exact."""

QUARTER_MIDDLE = 6.077100506303966e-11
QUARTER_LOW = 2.0222662487959506e-21
"""The next 33 bits of pi / 2, and what is left of it."""


A3, A5, A7, A9, A11, A13, A15, A17, A19, A21, A23, A25, A27, A29, A31, A33 = (
    1 / odd for odd in range(3, 34, 2)
)
"""Coefficients of the area hyperbolic tangent for z <= 1/3: the next term is below 1e-17."""


@jit_fused_part
def logarithms_of_one_plus(y: FloatArray) -> None:
    """Replace y [m], from 0 to 1, by log(1 + y) within 4 units in the last place.

    It is twice the area hyperbolic tangent of y / (2 + y).
    """
    for k in range(len(y)):
        z = y[k] / (2.0 + y[k])
        z2 = z * z
        z4 = z2 * z2
        z8 = z4 * z4
        z16 = z8 * z8
        # Estrin's scheme.
        a = (A3 + A5 * z2) + (A7 + A9 * z2) * z4
        b = (A11 + A13 * z2) + (A15 + A17 * z2) * z4
        c = (A19 + A21 * z2) + (A23 + A25 * z2) * z4
        d = (A27 + A29 * z2) + (A31 + A33 * z2) * z4
        y[k] = 2.0 * (z + z * z2 * ((a + b * z8) + (c + d * z8) * z16))


@jit_fused_part
def exponentials(y: FloatArray, room: FloatArray) -> None:
    """Replace y [m] by e^y within 2 units in the last place; beyond +-LIMIT by e^+-LIMIT.

    `room` [m] is overwritten.
    """
    for k in range(len(y)):
        near = LIMIT if y[k] > LIMIT else y[k]
        near = -LIMIT if near < -LIMIT else near
        rounded = near * LOG2_E + ROUND
        whole = rounded - ROUND
        r = (near - whole * LN2_HIGH) - whole * LN2_LOW
        r2 = r * r
        r4 = r2 * r2
        # Estrin's scheme: short chains, and the small terms first.
        e8 = (T12 + T13 * r) * r4 + ((T8 + T9 * r) + (T10 + T11 * r) * r2)
        e4 = (T4 + T5 * r) + (T6 + T7 * r) * r2
        e0 = (1.0 + r) + (T2 + T3 * r) * r2
        y[k], room[k] = (e8 * r4 + e4) * r4 + e0, rounded
    bits = room.view(np.int64)
    for k in range(len(y)):
        bits[k] = (bits[k] + 1023) << 52  # now a float64, 2^whole
    for k in range(len(y)):
        y[k] *= room[k]


@jit_fused_part
def cosines(angles: FloatArray, sines: FloatArray, room: FloatArray) -> None:
    """Replace angles [m] by their cosines and write their sines, both within 1e-15.

    Angles are up to 1e6; the error of larger ones grows with them, as their own rounding does.
    `room` [m] is overwritten.
    """
    for k in range(len(angles)):
        rounded = angles[k] * QUARTERS + ROUND
        whole = rounded - ROUND
        r = ((angles[k] - whole * QUARTER_HIGH) - whole * QUARTER_MIDDLE) - whole * QUARTER_LOW
        r2 = r * r
        r4 = r2 * r2
        of_sine = (S3 + S5 * r2) + ((S7 + S9 * r2) + (S11 + S13 * r2 + S15 * r4) * r4) * r4
        of_cosine = (C4 + C6 * r2) + ((C8 + C10 * r2) + (C12 + C14 * r2 + C16 * r4) * r4) * r4
        sines[k], angles[k] = r + of_sine * (r2 * r), 1.0 - (0.5 * r2 - of_cosine * r4)
        room[k] = rounded
    quarters = room.view(np.int64)
    for k in range(len(angles)):
        sine, cosine, turn = sines[k], angles[k], quarters[k]
        one, other = (cosine, sine) if turn & 1 else (sine, cosine)
        sines[k] = -one if turn & 2 else one
        angles[k] = -other if (turn + 1) & 2 else other
