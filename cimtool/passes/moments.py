"""Second moments of a layer's rows, shrunk and factored, the same on every machine.

Rows are integers, so that their products are exact, and real numbers are added in a fixed order. A
BLAS adds in an order that depends on the CPU; the loops here add in the order written, and numba
fuses no multiplication with an addition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import jit

RIDGE = 0.01
"""Share of the mean second moment that is added to each, so that none is 0."""

SHRINKAGE_STEPS = 1024
"""Steps that the shrinkage is rounded to: it must not depend on the last bits of a CPU's sums."""

LEAST_SQUARES = 0.25
"""Whole numbers that differ have more than this for `sum (x - mean)^2`; less is a sum's rounding.
"""

PANEL = 32
"""Columns of a matrix that are factored before the rest is updated."""


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """`products` `sum x x^T` [K, K] of `rows` [n, K] of integers; exact below 2^53.

    With `centred` those of differences from the mean count.
    """

    rows: Array
    products: FloatArray
    centred: bool

    @classmethod
    def of(cls, rows: Array, centred: bool) -> SecondMoments:
        """The moments of some rows."""
        real = rows.astype(np.float64)
        return cls(rows, real.T @ real, centred)

    def with_rows_of(self, other: SecondMoments, rows: Array) -> SecondMoments:
        """The moments of `rows`, which are those of both, in any order."""
        return SecondMoments(rows, self.products + other.products, self.centred)

    @cached_property
    def sums(self) -> FloatArray:
        """The sums [K] of the rows."""
        return np.asarray(self.rows.sum(axis=0), np.float64)

    @cached_property
    def matrix(self) -> FloatArray:
        """`sum x x^T` [K, K] over the rows, or over their differences from the mean."""
        if not self.centred:
            return self.products
        return np.asarray(self.products - np.multiply.outer(self.sums, self.sums) / len(self.rows))

    @cached_property
    def shrinkage(self) -> float:
        """The share 0 to 1 by which products of different numbers are taken to be chance.

        Few rows show products that unseen rows do not have. Schaefer and Strimmer (2005), for
        correlations: the sum of their variances over that of their squares.
        """
        n, squares = len(self.rows), self.matrix.diagonal()
        live = squares >= LEAST_SQUARES
        weights = np.divide(n, squares, out=np.zeros(len(squares)), where=live)
        products = np.square(self.matrix)
        products *= weights / n
        own = products.diagonal() * weights / n
        total = math.fsum(products.sum(axis=1) * weights / n) - math.fsum(own)
        means = self.sums / n if self.centred else np.zeros(len(squares))
        # Over all pairs of different numbers, without their matrix.
        fourth = _fourth_moments(self.rows, means, weights) / n
        share = (fourth - total) / max(n - 1, 1) / total if total > 0 else 1.0
        return math.ceil(min(max(share, 0.0), 1.0) * SHRINKAGE_STEPS) / SHRINKAGE_STEPS

    def factors(self) -> Factors:
        """The factors of the moments, shrunk, and each with a RIDGE."""
        moments = self.matrix * (1 - self.shrinkage)
        squares = self.matrix.diagonal()
        ridge = RIDGE * math.fsum(squares) / len(squares) or 1
        moments[np.diag_indices_from(moments)] = squares + ridge
        # Numbers that count most come last: rounded first, they have least to make up for.
        order = np.argsort(squares, kind="stable")
        return Factors(order, *unit_triangle(moments[np.ix_(order, order)]))


@jit
def _fourth_moments(rows, means, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The sum over rows and pairs of different columns of `w_i d_i^2 w_j d_j^2`, `d = x - mean`."""
    total = 0.0
    for n in range(len(rows)):
        row, every, same = rows[n], 0.0, 0.0
        for k in range(len(means)):
            d = row[k] - means[k]
            z = weights[k] * d * d
            every += z
            same += z * z
        total += every * every - same
    return total


@dataclass(frozen=True, eq=False)
class Factors:
    """Second moments as `U^T D U` of numbers taken in an `order` [K].

    `upper` [K, K] is U, unit upper triangular, and `pivots` [K] the diagonal of D.
    """

    order: IntArray
    upper: FloatArray
    pivots: FloatArray


def unit_triangle(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`U` [K, K], unit upper triangular, and the diagonal of `D` [K]: `matrix = U^T D U`.

    The matrix is positive definite.
    """
    upper, pivots = matrix.copy(), np.empty(len(matrix))
    _factor(upper, pivots, PANEL)
    return upper, pivots


@jit
def _factor(a, pivots, panel):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Turn the upper half of a symmetric matrix into U, a panel of rows at a time."""
    size = len(a)
    scaled = np.empty((panel, size))
    for start in range(0, size, panel):
        end = min(start + panel, size)
        for k in range(start, end):
            pivot = a[k, k]
            pivots[k] = pivot
            for j in range(k, size):
                scaled[k - start, j] = a[k, j]
                a[k, j] = a[k, j] / pivot
            for i in range(k + 1, end):
                factor = scaled[k - start, i]
                for j in range(i, size):
                    a[i, j] -= factor * a[k, j]
        for i in range(end, size):
            row = a[i]
            k = start
            while k + 3 < end:
                f0, f1 = scaled[k - start, i], scaled[k + 1 - start, i]
                f2, f3 = scaled[k + 2 - start, i], scaled[k + 3 - start, i]
                u0, u1, u2, u3 = a[k], a[k + 1], a[k + 2], a[k + 3]
                for j in range(i, size):
                    row[j] -= f0 * u0[j] + f1 * u1[j] + f2 * u2[j] + f3 * u3[j]
                k += 4
            while k < end:
                f0, u0 = scaled[k - start, i], a[k]
                for j in range(i, size):
                    row[j] -= f0 * u0[j]
                k += 1
