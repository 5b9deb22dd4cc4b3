"""Fresh read noise of column sums: one normal number a conversion, of the variance of its devices.

The variance of a column sum is x^2 . sigma^2. If a device keeps its error through all cycles of a
product, the sums of two cycles share it: their covariance is (x_c x_c') . sigma^2, and the noise of
all cycles is the covariance's Cholesky factor times one normal number a cycle.

A normal number is a function of its key alone, the same on every machine. A 64-bit mix (splitmix64)
turns a key into 32 bits, and the inverse of the normal distribution turns those into a number: sign
and 31 bits of a tail's probability, so tails reach 6.3 standard deviations. All of it is IEEE
float32 arithmetic without a library function, so a loop over keys runs on vectors and gives the
same bits everywhere. The inverse is M. Giles, "Approximating the erfinv function" (2010), single
precision; the logarithm is that of the Cephes library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import Crossbar

MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
S27, S30, S31, S32 = (np.uint64(bits) for bits in (27, 30, 31, 32))
F = np.float32
TAIL = F(5.0)
"""From this logarithm on the inverse is computed by its form for the tails."""

MIDDLE = tuple(
    map(F, (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941))
)  # fmt: skip
TAILS = tuple(
    map(F, (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
            -0.0076224613, 0.00943887047, 1.00167406, 2.83297682))
)  # fmt: skip
LOGARITHM = tuple(
    map(F, (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
            -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1))
)  # fmt: skip
"""Coefficients of both forms of the inverse and of the logarithm, the highest power first."""


@numba.njit(inline="always")
def mix(z):  # type: ignore[no-untyped-def]
    """64 bits in which every bit of `z` counts (splitmix64's finaliser)."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@numba.njit(inline="always")
def normal(key):  # type: ignore[no-untyped-def]
    """The normal number of a key, float32."""
    bits = np.uint32(mix(key) >> S32)
    p = (F(np.int32(bits & np.uint32(0x7FFFFFFF))) + F(0.5)) * F(2.0**-31)
    w = -_log(p * (F(2.0) - p))  # of (1 - x)(1 + x) with x = 1 - p
    middle = _polynomial(w - F(2.5), MIDDLE)
    tail = _polynomial(np.sqrt(max(w, TAIL)) - F(3.0), TAILS)
    z = (middle if w < TAIL else tail) * (F(1.0) - p) * F(1.4142135623730951)
    return -z if bits >> np.uint32(31) else z


@numba.njit(inline="always")
def _polynomial(x, coefficients):  # type: ignore[no-untyped-def]
    value = coefficients[0]
    for i in range(1, len(coefficients)):
        value = value * x + coefficients[i]
    return value


@numba.njit(inline="always")
def _log(t):  # type: ignore[no-untyped-def]
    bits = np.float32(t).view(np.int32)
    exponent = (bits - np.int32(0x3F3504F3)) >> np.int32(23)
    m = np.int32(bits - (exponent << np.int32(23))).view(np.float32) - F(1.0)
    y = _polynomial(m, LOGARITHM)
    squared = m * m
    return y * m * squared - F(0.5) * squared + m + F(exponent) * F(0.69314718056)


@jit
def _fill_normals(keys, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        key = keys[i]
        for j in range(out.shape[1]):
            out[i, j] = normal(key + np.uint64(j) * GOLDEN)


@jit
def _fill_hashes(x, seed, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        total = np.uint64(0)
        for j in range(x.shape[1]):
            total += np.uint64(x[i, j]) * (mix(seed + np.uint64(j) * GOLDEN) | np.uint64(1))
        out[i] = mix(total ^ seed)


def normals(keys: Array, count: int) -> FloatArray:
    """Normal numbers [n, count], float32, of the keys uint64 [n]: one per column."""
    out = np.empty((len(keys), count), np.float32)
    _fill_normals(keys, out)
    return out  # type: ignore[return-value]


def row_keys(x: IntArray, seed: int) -> Array:
    """A key uint64 [n] for each row of `x` [n, K]: of its content and `seed`, not of its place."""
    out = np.empty(len(x), np.uint64)
    _fill_hashes(x, np.uint64(seed), out)
    return out


def conversion_keys(rows: Array, conversion: int) -> Array:
    """The keys uint64 [n] of one conversion of the rows with these keys."""
    with np.errstate(over="ignore"):
        return mix.py_func(rows + np.uint64(conversion + 1) * MIX_1)  # type: ignore[no-any-return]


ENOUGH = 1 << 10
"""Variances of a column add up to this or more, so that rounding changes them by less than 1%."""

EXACT = 52
"""Sums of squared inputs times variances stay below 2 to this."""

CELL = 30
"""The variance of a cell stays at most 2 to this: it is kept in 32 bits."""


@dataclass(frozen=True, eq=False)
class Fresh:
    """The variance that one unit of drive makes in each cell, and the way it is drawn.

    `variance[k]` [K, N] counts in 2^-bits of a digit squared, `bits` is even. `key` belongs to the
    layer on its die. If `shared`, a device's error stays through all cycles of a product.
    """

    variance: tuple[IntArray, ...]
    bits: int
    fraction_bits: int
    key: int
    shared: bool

    @cached_property
    def scale(self) -> np.float32:
        """From the root of a variance to the units of the column sums: a power of two."""
        return np.float32(2.0 ** (self.fraction_bits - self.bits // 2))

    def pairs(self, crossbar: Crossbar) -> tuple[tuple[int, int], ...]:
        """Cycles (c, c') with c' <= c whose covariance is needed."""
        cycles = range(len(crossbar.cycles))
        if not self.shared:
            return tuple((c, c) for c in cycles)
        return tuple((c, other) for c in cycles for other in range(c + 1))

    def noise(
        self, digits: IntArray, rows: Array, group: slice, conversion: int, k: int, c: int
    ) -> IntArray:
        """The noise [n, N] of cycle c's sums of a row group in slice k, readable.

        `digits[c]` [n, K] are what the cycles drive, `rows` [n] the keys of the rows of inputs and
        `conversion` numbers this row group and slice.
        """
        variance = self.variance[k][group]
        driven = [d[:, group] for d in digits]
        cycles = range(c + 1) if self.shared else (c,)
        covariance = [
            [((driven[a] * driven[b]) @ variance).astype(np.float32) for b in cycles if b <= a]
            for a in cycles
        ]
        total: Array = np.zeros((len(rows), variance.shape[1]), np.float32)
        for b, part in zip(cycles, cholesky(covariance)[-1], strict=True):
            z = normals(conversion_keys(rows, conversion * len(digits) + b), variance.shape[1])
            total = total + part * z
        drawn_units: IntArray = np.floor(total * self.scale + np.float32(0.5)).astype(np.int64)
        return drawn_units


def cholesky(covariance: list[list[Array]]) -> list[list[Array]]:
    """The lower factor of a matrix of arrays, row by row; a row that adds nothing is zero."""
    factor: list[list[Array]] = []
    for a, row in enumerate(covariance):
        found: list[Array] = []
        for b in range(a + 1):
            rest = row[b].copy()
            for i in range(b):
                rest = rest - found[i] * (factor[b][i] if b < a else found[i])
            if b < a:
                pivot = factor[b][b]
                found.append(np.where(pivot > 0, rest / np.where(pivot > 0, pivot, 1), 0))
            else:
                found.append(np.sqrt(np.maximum(rest, 0)))
        factor.append([part.astype(np.float32) for part in found])
    return factor


def fresh_noise(variance: Sequence[Array], cells: Cells, key: int, shared: bool) -> Fresh:
    """Round variances [K, N] of each slice, in digits squared, so that their sums stay exact."""
    lo, hi = cells.crossbar.digit_limits
    driven = max(-lo, hi) ** 2
    sums = np.array([[v[g].sum(axis=0) for g in cells.groups] for v in variance])
    mean, largest = float(sums.mean()), float(sums.max()) * driven
    bits = 0 if mean <= 0 else 2 * math.ceil(math.log2(ENOUGH / mean) / 2)
    if largest > 0:
        most = max(float(v.max()) for v in variance)
        room = min(EXACT - math.log2(largest), CELL - math.log2(most))
        bits = min(bits, 2 * math.floor(room / 2))
    rounded = tuple(np.rint(v * 2.0**bits).astype(np.int32) for v in variance)
    shared = shared and len(cells.crossbar.cycles) > 1
    return Fresh(rounded, bits, cells.fraction_bits, key, shared)  # type: ignore[arg-type]
