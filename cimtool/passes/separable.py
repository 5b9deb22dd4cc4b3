"""A function of two numbers as a sum of products of functions of one: what matrix products compute.

sum_i f(x_i, y_i) over all pairs of rows x and y is then one product of matrices for each term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from cimtool.base.arrays import Array, FloatArray
from cimtool.passes.approximate import COEFFICIENT_BITS
from cimtool.passes.calibrate import significant

NODES = 24
"""Chebyshev nodes of each variable: more than analytic functions of a narrow range need."""

POINTS = 301
"""Points of each variable at which an error is measured."""

NEGLIGIBLE = 2.0**-13
"""Share of the largest Chebyshev coefficient up to which the last ones are left out."""

NARROWING = 2.0**-24
"""Share of a sum's parts that narrowing it in the digital unit may take off or add."""

PairFunction = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class SeparableTerm:
    """A product of two polynomials of u and v in [-1, 1], and the largest size of each there."""

    left: tuple[float, ...]
    right: tuple[float, ...]
    reach: tuple[float, float]


@dataclass(frozen=True)
class SeparableFit:
    """`f(centre + half u, centre + half v)` as a sum of terms, and a bound of its error."""

    terms: tuple[SeparableTerm, ...]
    error: float


def fit_antisymmetric(
    function: PairFunction, centre: float, half: float, share: float, most: int
) -> SeparableFit | None:
    """Fit `f(x, y) = -f(y, x)` by the fewest terms within a share of its largest size.

    None if `most` terms do not suffice. Its Chebyshev coefficients are a matrix C with C = -C', so
    i C is Hermitian, with eigenvalues in pairs s and -s. Each pair gives two terms, of the real and
    the imaginary part of one eigenvector: no sum of as many products is much closer. The error is
    measured at 301 x 301 points; that of narrowing in Horner's scheme, by a bound, is added.
    """
    nodes = chebyshev.chebpts1(NODES)
    basis = np.linalg.inv(chebyshev.chebvander(nodes, NODES - 1))
    x = centre + half * nodes
    coefficients = basis @ function(x[:, None], x[None]) @ basis.T
    sizes, vectors = np.linalg.eigh(0.5j * (coefficients - coefficients.T))
    u = np.linspace(-1.0, 1.0, POINTS)
    exact = function((centre + half * u)[:, None], (centre + half * u)[None])
    found: FloatArray = np.zeros_like(exact)
    terms: list[SeparableTerm] = []
    narrowing = 0.0
    for size, vector in zip(sizes[::-1][: most // 2], vectors.T[::-1], strict=False):
        # The phase of an eigenvector is left open; with this one it is the same on every CPU.
        largest = vector[significant(np.abs(vector), np.rint).argmax()]
        z = np.sqrt(2 * size) * vector * np.conj(largest) / np.abs(largest)
        real, imaginary = _powers(z.real), _powers(z.imag)
        a, b = polynomial.polyval(u, real), polynomial.polyval(u, imaginary)
        found = found + np.outer(b, a) - np.outer(a, b)
        ends = [float(significant(np.abs(one).max(), np.ceil)) for one in (a, b)]
        first, second, minus = (tuple(one.tolist()) for one in (real, imaginary, -real))
        terms.append(SeparableTerm(second, first, (ends[1], ends[0])))
        terms.append(SeparableTerm(minus, second, (ends[0], ends[1])))
        narrowing += 2 * (_narrowing(real) * ends[1] + _narrowing(imaginary) * ends[0])
        error = float(np.abs(found - exact).max()) + narrowing
        if error <= share * float(np.abs(exact).max()):
            return SeparableFit(tuple(terms), error)
    return None


def _narrowing(powers: FloatArray) -> float:
    return NARROWING * len(powers) * float(np.abs(powers).sum())


def _powers(series: Array) -> FloatArray:
    """A Chebyshev series as powers from the lowest on, of degree 1 at least."""
    last = int(np.flatnonzero(np.abs(series) > NEGLIGIBLE * np.abs(series).max())[-1])
    powers = significant(chebyshev.cheb2poly(series[: last + 1]), np.rint, COEFFICIENT_BITS)
    return np.pad(powers, (0, max(2 - len(powers), 0)))
