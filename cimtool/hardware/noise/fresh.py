"""Fresh read noise of column sums: one normal number a conversion, of the variance of its devices.

The variance of a column sum is x^2 . sigma^2. Where a device keeps its error through all cycles of
a product, the sums of two cycles share it: their covariance is (x_c x_c') . sigma^2, and the noise
of all cycles is the covariance's Cholesky factor times one normal number a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.noise.gaussian import conversion_keys, normals

ENOUGH = 1 << 10
"""Variances of a column add up to this or more, so that rounding changes them by less than 1%."""

EXACT = 52
"""Sums of squared inputs times variances stay below 2 to this."""

CELL = 30
"""The variance of a cell stays at most 2 to this: it is kept in 32 bits."""


@dataclass(frozen=True, eq=False)
class Fresh:
    """The variance that one unit of drive makes in each cell, and how it is drawn.

    `variance[k]` [K, N] counts in 2^-bits of a digit squared, `bits` is even. `key` is that of the
    layer on its die; `shared` says that a device's error stays through all cycles of a product.
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
