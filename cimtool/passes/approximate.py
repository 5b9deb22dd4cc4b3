"""Polynomial stand-ins for functions that hardware lacks, each with its densely checked error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.passes.calibrate import significant

DENSE_POINTS = 20_001
"""Points at which the error of an approximation is measured, ends included."""

COEFFICIENT_BITS = 26
"""Significant bits of a coefficient and of exp's maximum, whose product float64 holds exactly.

Beyond them exp and least squares differ between CPUs.
"""

ROUNDING = 2.0**-COEFFICIENT_BITS
"""Relative error that rounding exp's maximum adds, and more."""

TANH_LIMIT = 5.5
"""From here on tanh is taken as constant: it is within 2^-14.8 of 1."""

MAX_MULTIPLY_ADDS = 24
"""The highest degree of a polynomial for exp or tanh: one multiply-add each."""

MAX_NEWTON_STEPS = 8


@dataclass(frozen=True)
class ExpPolynomial:
    """`exp(centre + half * u)`, |u| <= 1, as `sum c_i u^i`; `error` is a share of its maximum."""

    centre: float
    half: float
    coefficients: tuple[float, ...]
    error: float


def _scaled_exp(u: FloatArray, half: float) -> FloatArray:
    return np.exp(half * (u - 1))


def _interpolations(function: Callable[[FloatArray], FloatArray]) -> Iterator[FloatArray]:
    """Rounded coefficients of the interpolations at Chebyshev nodes, from degree 1 up."""
    for degree in range(1, MAX_MULTIPLY_ADDS + 1):
        nodes = chebyshev.chebpts1(degree + 1)
        fitted = chebyshev.chebfit(nodes, function(nodes), degree)
        yield significant(chebyshev.cheb2poly(fitted), np.rint, COEFFICIENT_BITS)


def fit_exp(lo: float, hi: float, tolerance: float) -> ExpPolynomial:
    """Interpolate exp at Chebyshev nodes of [lo, hi], with the lowest degree within `tolerance`.

    The error is that of near-minimax interpolation, at most a small factor above the best
    polynomial's; it is measured at 20,001 points, relative to the largest value exp(hi).
    """
    centre, half = (lo + hi) / 2, max((hi - lo) / 2, 2.0**-20)
    u = np.linspace(-1.0, 1.0, DENSE_POINTS)
    exact = _scaled_exp(u, half)
    top = significant(np.exp(centre + half), np.rint, COEFFICIENT_BITS)
    for powers in _interpolations(lambda nodes: _scaled_exp(nodes, half)):
        error = float(np.abs(polynomial.polyval(u, powers) - exact).max()) + ROUNDING
        if error <= tolerance:
            return ExpPolynomial(centre, half, tuple(float(c) for c in powers * top), error)
    raise CimError(
        f"logvar spans {lo:.3g} to {hi:.3g} on the calibration data, too wide for exp in "
        f"{MAX_MULTIPLY_ADDS} multiply-adds; expected a span below about 50 (clamp it, or check "
        "the data)"
    )


@dataclass(frozen=True)
class TanhPolynomial:
    """`tanh(x)` as `u * sum c_i (2 |u| - 1)^i` with `u = clip(x / limit, -1, 1)`."""

    limit: float
    coefficients: tuple[float, ...]
    error: float


def fit_tanh(top: float, tolerance: float) -> TanhPolynomial:
    """Interpolate `tanh(x) / x` at Chebyshev nodes of [0, top], with the lowest degree.

    Only half the curve is fitted, as it is odd: about the middle of [0, top] its polynomial has
    no large coefficients that cancel, as one over [-top, top] has. From TANH_LIMIT on it is
    constant. `error` is measured at 20,001 points of [0, top], and there beyond that limit too;
    `tolerance` is at least 2^-14.
    """
    limit = min(max(top, 2.0**-20), TANH_LIMIT)
    v = np.linspace(-1.0, 1.0, DENSE_POINTS)
    u = (v + 1) / 2
    exact = np.tanh(limit * u)
    if limit == TANH_LIMIT:
        u, v, exact = np.append(u, 1.0), np.append(v, 1.0), np.append(exact, 1.0)

    def slope(nodes: FloatArray) -> FloatArray:
        shares = (nodes + 1) / 2
        return np.tanh(limit * shares) / shares

    for powers in _interpolations(slope):
        error = float(np.abs(u * polynomial.polyval(v, powers) - exact).max())
        if error <= tolerance:
            return TanhPolynomial(limit, tuple(float(c) for c in powers), error)
    raise ValueError(f"tanh up to {limit} is not within {tolerance} at degree {MAX_MULTIPLY_ADDS}")


@dataclass(frozen=True)
class NewtonRoot:
    """`1/sqrt(x)` on [lo, hi]: start `y = alpha + beta x`, then `steps` of `y (3 - x y^2) / 2`."""

    alpha: float
    beta: float
    steps: int
    error: float


def fit_inverse_root(lo: float, hi: float, tolerance: float) -> NewtonRoot:
    """Fit the start line at Chebyshev nodes and count the Newton steps to a relative error."""
    x = np.linspace(lo, hi, DENSE_POINTS)
    nodes = (lo + hi) / 2 + (hi - lo) / 2 * np.array([-np.sqrt(0.5), np.sqrt(0.5)])
    ends = 1 / np.sqrt(nodes)
    beta = float((ends[1] - ends[0]) / (nodes[1] - nodes[0])) if nodes[1] > nodes[0] else 0.0
    alpha = float(ends[0] - beta * nodes[0])
    y: FloatArray = alpha + beta * x
    for steps in range(MAX_NEWTON_STEPS + 1):
        error = float(np.abs(y * np.sqrt(x) - 1).max())
        if error <= tolerance:
            return NewtonRoot(alpha, beta, steps, error)
        y = y * (1.5 - 0.5 * x * y * y)
    raise CimError(
        f"row norms before normalisation span {np.sqrt(lo):.3g} to {np.sqrt(hi):.3g} on the "
        f"calibration data, too wide for {MAX_NEWTON_STEPS} Newton steps"
    )
