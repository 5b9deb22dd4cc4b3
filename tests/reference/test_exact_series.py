import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.reference import exact_series as module
from cimtool.reference.exact_series import (
    MOST_ORDERS,
    along,
    derivatives,
    expand,
    remainder,
    series_of,
)


def make(d, a_s, seed):
    """delta^2 and s of a pair, with a = 1."""
    rng = np.random.default_rng(seed)
    s = a_s * rng.uniform(size=d)
    s[0] = a_s
    return rng.uniform(size=d) ** 2 / d, s


def series(side, b, square, s, a=1.0):
    return series_of(side, a, b, square, s, float(s.max()), np.empty(len(s)), MOST_ORDERS)


def exact_exponent(v, side, b, square, s, a=1.0):
    """F(v) in mpmath's digits."""
    total = side * b * v
    for q, x in zip(square, s, strict=True):
        factor = 1 + 2 * side * a * v * mpmath.mpf(float(x))
        total -= mpmath.log(factor) / 2 + side * a * v * mpmath.mpf(float(q)) / factor
    return total


@st.composite
def pairs(draw):
    square, s = make(
        draw(st.integers(1, 30)), 10.0 ** draw(st.floats(-6, -1.5)), draw(st.integers(0, 99))
    )
    return draw(st.sampled_from([1.0, -1.0])), draw(st.floats(-20, 20)), square, s


@given(pairs(), st.floats(0.1, 5.0), st.floats(0.0, 12.0))
def test_the_remainder_bounds_what_is_left_out(pair, c, t):
    side, b, square, s = pair
    found = series(side, b, square, s)
    if not len(found.terms):
        return
    expand(found, c)
    parts = np.empty((3, 1))
    along(found, c, np.array([t]), *parts)
    (re,), (im,), (left,) = parts
    value, _, _ = derivatives(found, c)
    with mpmath.workdps(50):
        exact = exact_exponent(mpmath.mpc(c, t), side, b, square, s)
        error = abs(exact - value - mpmath.mpc(re, im))
    bound = remainder(found, math.hypot(c, t))
    rounding = 1e-15 * (abs(b) + 1) * (c + t + 1)
    assert error <= bound + rounding
    assert left == pytest.approx(bound, rel=1e-12)


def test_the_remainder_counts_the_variances_that_are_there():
    # One wide dimension among many narrow ones: next to all of A_1 is theirs, not of A_K.
    s = np.array([0.01, *np.full(1000, 1e-4)])
    square = np.full(len(s), 1e-3)
    found = series(1.0, 0.0, square, s)
    count = len(found.terms)
    assert found.weight < (s.sum() / (count + 1) + square.sum()) / 10
    with mpmath.workdps(50):
        exact = float(exact_exponent(8.0, 1.0, 0.0, square, s))
    assert abs(exact - derivatives(found, 8.0)[0]) < remainder(found, 8.0) + 1e-14


@pytest.mark.parametrize("a_s", [1e-290, 1e-60])
def test_powers_of_tiny_variances_do_not_underflow_in_the_remainder(a_s):
    square, s = make(30, a_s, 3)
    found = series(1.0, -5.0, square, s)
    assert len(found.terms) == module.AT_ONCE
    assert 0 <= remainder(found, 3.0) < 1e-14


def test_the_remainder_is_nearly_met():
    # All of one variance and without distance: only A_k / k for A_1 / (K + 1) is given away.
    s = np.full(10, 0.01)
    found = series(-1.0, 0.0, np.zeros(10), s)
    v, count = 8.0, len(found.terms)
    short = found._replace(terms=found.terms[:4])
    with mpmath.workdps(50):
        exact = float(exact_exponent(v, -1.0, 0.0, np.zeros(10), s))
    missing = exact - derivatives(short, v)[0]
    bound = remainder(short._replace(weight=short.weight * (count + 1) / 5), v)
    assert 0.9 * bound < missing < bound


def test_derivatives_are_those_of_the_exponent():
    square, s = make(20, 0.003, 1)
    found = series(1.0, 2.0, square, s)
    for v in (0.3, 1.0, 4.5):
        with mpmath.workdps(50):
            expected = [
                float(mpmath.diff(lambda x: exact_exponent(x, 1.0, 2.0, square, s), v, k))
                for k in range(3)
            ]
        np.testing.assert_allclose(derivatives(found, v), expected, rtol=1e-9)


def test_wider_pairs_take_more_terms_and_the_widest_none():
    counts = [len(series(1.0, 0.0, *make(30, a_s, 2)).terms) for a_s in (1e-6, 1e-3, 1e-2, 1.0)]
    assert counts[0] == module.AT_ONCE
    assert counts == [*sorted(counts[:-1]), 0]
    assert counts[-2] <= MOST_ORDERS


@pytest.mark.parametrize("a", [0.1, 10.0])
def test_terms_are_cumulants(a):
    # D = s chi^2_1: its cumulants are 2^(k-1) (k-1)! s^k.
    s = np.array([1e-3])
    found = series(1.0, 0.5, np.zeros(1), s, a)
    expected = [(-a) ** k * 2 ** (k - 1) * s[0] ** k / k for k in range(1, len(found.terms) + 1)]
    expected[0] += 0.5
    np.testing.assert_allclose(found.terms, expected, rtol=1e-14)
