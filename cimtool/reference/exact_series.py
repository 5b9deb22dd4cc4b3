"""The exponent of the exact probability as a power series, if variances are small; compiled.

With A_k = sum s^k and B_k = sum delta^2 s^k over a pair's dimensions, L = log E exp(-u D) is

    L(u) = sum over k >= 1 of (-u)^k 2^(k-1) (A_k / k + B_(k-1))     for |2 u| max s < 1

(the cumulants of D, a generalised chi-square, over k!). With u = side a v, K terms, w = max s and
q = 2 a w, the terms left out add up to at most

    R(v) = a |v| (A_K / (K+1) + B_(K-1)) / w^(K-1) (q |v|)^K / (1 - q |v|),

as A_(k+1) <= w A_k and B_(k+1) <= w B_k. A pair costs K multiplications per dimension, for any
number of points at which L is needed. R is compared with the result: if the series is too
inaccurate, the pair is summed over its dimensions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.compiled import jit_summand, wide_vectors

AT_ONCE = 4
"""Orders that one pass over the dimensions adds."""

MOST_ORDERS, MORE_ORDERS = 5 * AT_ONCE, 7 * AT_ONCE
"""Most orders of a series, for results to the last bit and for those that may be a little off.

More orders take less time than sums over dimensions, and round otherwise.
"""

DOUBT = 1e-12
"""Share of the result that the remainder may change; it is mostly far smaller."""

LIKELY = 0.01
"""Share of DOUBT below which a series is accepted before the line is known."""

LEAST_POWER = 1e-200
"""The least w^(K-1) by which R is divided; below, A_1 and B_0 w^(1-K) bound the sums."""

NEAR = 0.9
"""The series is used if q |v| is below this; it diverges at 1."""

EXPONENT = 35.0
"""The integrand's negative exponent at which the line ends: e^-35 is 6e-16."""


class Series(NamedTuple):
    """F(v) = sum of `terms[k]` v^(k+1), for compiled code; no terms if the series is not used.

    The remainder at v is `weight` |v| (q |v|)^K / (1 - q |v|), with q = `ratio`. `around` [K] is
    room for the terms at another point.
    """

    terms: FloatArray
    around: FloatArray
    weight: float
    ratio: float


@jit_summand
def series_of(
    side: float, a: float, b: float, square: FloatArray, s: FloatArray, widest: float,
    power: FloatArray, most: int,
) -> Series:  # fmt: skip
    """The shortest series of `most` orders that is likely accurate enough; `power` is overwritten.

    `square` is delta^2 [d]. The largest value of `s` [d] is `widest`, above 0.
    """
    ratio = 2.0 * a * widest
    terms = np.empty(most)
    power[:] = 1.0
    weight, factor = 0.0, 1.0
    for done in range(0, most, AT_ONCE):
        of_s, of_square = _sums(square, s, power)
        for j in range(AT_ONCE):
            factor *= -side * a
            terms[done + j] = factor * (of_s[j] / (done + j + 1) + of_square[j])
            factor *= 2.0
        count = done + AT_ONCE
        if done == 0:
            mean, half = of_s[0], of_square[0]
            # F''(0) = Var y. The line ends where Var y t^2 / 2 + pi t is EXPONENT.
            variance = 2.0 * terms[1]
            end = _root(variance, EXPONENT) + 1.0
            if ratio * end > NEAR:
                break
        weight, power_of_widest = a * (mean / (count + 1) + half), widest ** (count - 1)
        if power_of_widest > LEAST_POWER:
            weight = a * (of_s[3] / (count + 1) + of_square[3]) / power_of_widest
        # |v|^(K+1) times the size of the integrand is largest here.
        top = (math.sqrt(math.pi**2 + 4.0 * variance * (count + 1)) - math.pi) / (2.0 * variance)
        size = math.exp(-(0.5 * variance * top + math.pi) * top)
        if size * _bound(weight, ratio, count, top + 1.0) < LIKELY * DOUBT:
            terms[0] += side * b
            return Series(terms[:count], np.empty(count), weight, ratio)
    return Series(terms[:0], terms[:0], 0.0, 0.0)


@jit_summand
def _root(variance: float, exponent: float) -> float:
    """The t at which variance t^2 / 2 + pi t is `exponent`."""
    return 2.0 * exponent / (math.pi + math.sqrt(math.pi**2 + 2.0 * variance * exponent))


@jit_summand
def _sums(
    square: FloatArray, s: FloatArray, power: FloatArray
) -> tuple[tuple[float, float, float, float], tuple[float, float, float, float]]:
    """The next sums of s^k from k = p + 1 on, and of delta^2 s^k from k = p on; `power` is s^p."""
    wide_vectors()
    s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0
    q1, q2, q3, q4 = 0.0, 0.0, 0.0, 0.0
    for i in range(len(s)):
        q, x, p = square[i], s[i], power[i]
        q1 += q * p
        p *= x
        s1 += p
        q2 += q * p
        p *= x
        s2 += p
        q3 += q * p
        p *= x
        s3 += p
        q4 += q * p
        p *= x
        s4 += p
        power[i] = p
    return (s1, s2, s3, s4), (q1, q2, q3, q4)


@jit_summand
def _bound(weight: float, ratio: float, count: int, v: float) -> float:
    near = ratio * v
    return weight * v * near**count / (1.0 - near) if near < NEAR else math.inf


@jit_summand
def remainder(series: Series, v: float) -> float:
    """Bound on the terms of F that the series leaves out at |v|; infinite beyond its reach."""
    return _bound(series.weight, series.ratio, len(series.terms), v)


@jit_summand
def derivatives(series: Series, v: float) -> tuple[float, float, float]:
    """F(v), F'(v) and F''(v) for real v."""
    value, slope, half = 0.0, 0.0, 0.0
    for k in range(len(series.terms) - 1, -1, -1):
        half = half * v + slope
        slope = slope * v + value
        value = value * v + series.terms[k]
    # The polynomial is v times the values so far.
    half = half * v + slope
    slope = slope * v + value
    return value * v, slope, 2.0 * half


@jit_summand
def expand(series: Series, c: float) -> None:
    """Write F^(k)(c) / k! for k = 1 to K into `around`."""
    around, count = series.around, len(series.terms)
    for k in range(count):  # an assignment of arrays takes 3 s to compile
        around[k] = series.terms[k]
    # Repeated synthetic division by v - c; the constant F(c) is not needed.
    for first in range(-1, count - 1):
        for k in range(count - 2, max(first, 0) - 1, -1):
            around[k] += c * around[k + 1]


@jit_summand
def along(
    series: Series, c: float, t: FloatArray, real: FloatArray, imaginary: FloatArray,
    left: FloatArray,
) -> None:  # fmt: skip
    """Write both parts of F(c + i t) - F(c) [m], of the series expanded at c, and `remainder`.

    There are an even number of terms.
    """
    around, ratio = series.around, series.ratio
    for k in range(len(t)):
        real[k], imaginary[k], left[k] = 0.0, 0.0, 1.0
    for order in range(len(around) - 2, -1, -2):
        odd, even = around[order], around[order + 1]
        for k in range(len(t)):
            square = t[k] * t[k]
            near_square = ratio * ratio * (c * c + square)
            imaginary[k] = odd - imaginary[k] * square
            real[k] = even - real[k] * square
            left[k] *= near_square
    for k in range(len(t)):
        square = t[k] * t[k]
        real[k] *= -square
        imaginary[k] *= t[k]
        v = math.sqrt(c * c + square)
        near = ratio * v
        left[k] = series.weight * v * left[k] / (1.0 - near) if near < NEAR else math.inf
