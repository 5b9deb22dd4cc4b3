import math

import numpy as np
import pytest

from cimtool.reference import exact_kernels as kernels
from cimtool.reference.exact_series import Series, series_of


def make(d, a_s, seed):
    """delta^2 and s of a pair, padded, with a = 1."""
    rng = np.random.default_rng(seed)
    square, s = np.zeros((2, -(-d // kernels.STEP) * kernels.STEP))
    square[:d], s[:d] = a_s * rng.normal(size=d) ** 2, a_s * rng.uniform(size=d)
    s[0] = a_s
    return square, s


def pair_of(side, b, square, s, a=1.0):
    """A pair whose exponent is summed over dimensions."""
    nothing = np.empty(0)
    none = Series(nothing, nothing, 0.0, 0.0)
    return kernels.Pair(side, a, b, square, s, float(s.max()), np.empty((2, len(s))), none)


def with_series(pair):
    """The same pair with the series that is chosen for it."""
    side, a, b, square, s, widest, room, *_ = pair
    most = kernels.MOST_ORDERS
    return pair._replace(series=series_of(side, a, b, square, s, widest, room[0], most))


def line(low, high, pair):
    """log of I_N, for the strip that begins at N = `low`."""
    c, value, width = kernels.saddle(low, high, pair)
    return value + math.log(kernels.line(c, low, width, 0.0, pair))


@pytest.mark.parametrize(("d", "a_s"), [(1, 0.2), (1, 15.0), (6, 2.0), (300, 0.02), (300, 0.5)])
@pytest.mark.parametrize("mean_y", [-4.0, -1.0, 0.0, 1.0, 4.0])
def test_both_sides_add_up_to_one(d, a_s, mean_y):
    square, s = make(d, a_s, 0)
    b = float((square + s).sum()) + mean_y
    room = np.empty((2, len(s)))
    p, rest = (
        math.exp(kernels.log_expectation(side, 1.0, b, square, s, room, True))
        for side in (1.0, -1.0)
    )
    assert min(p, rest) < 0.7
    assert p + rest == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(("d", "a_s"), [(1, 1.0), (8, 0.5), (200, 0.05), (1000, 0.1)])
@pytest.mark.parametrize("mean_y", [-2.0, -7.0, -12.0])
def test_a_strip_further_differs_by_one_term(d, a_s, mean_y):
    square, s = make(d, a_s, 1)
    b = float((square + s).sum()) + mean_y
    pair = pair_of(1.0, b, square, s)
    here = math.exp(line(0.0, 1.0, pair))
    for n in (1, 2, 3):
        term = math.exp(kernels.exponent(float(n), pair)[0])
        beyond = math.exp(line(float(n), n + 1.0, pair))
        assert here + beyond == pytest.approx(term, rel=1e-10)
        here = beyond


def test_the_terms_alone_are_the_line():
    square, s = make(400, 0.01, 2)
    b = float((square + s).sum()) - 30.0
    room = np.empty((2, len(s)))
    terms = kernels.log_expectation(1.0, 1.0, b, square, s, room, True)
    assert line(0.0, 1.0, pair_of(1.0, b, square, s)) == pytest.approx(terms, abs=1e-10)


def test_slopes_of_the_exponent_are_its_differences():
    square, s = make(37, 0.8, 3)
    v, h = 0.6, 1e-4
    below, here, above = (
        kernels.exponent(v + k * h, pair_of(1.0, 3.0, square, s)) for k in (-1, 0, 1)
    )
    assert here[1] == pytest.approx((above[0] - below[0]) / (2 * h), rel=1e-7)
    assert here[2] == pytest.approx((above[1] - below[1]) / (2 * h), rel=1e-7)
    direct = -(0.5 * np.log1p(2 * v * s) + v * square / (1 + 2 * v * s)).sum() + 3.0 * v
    assert here[0] == pytest.approx(direct, rel=1e-13)


@pytest.mark.parametrize("reach", [0.5, 30.0, 1e12])
def test_factors_are_taken_together_with_all_their_turns(reach):
    rng = np.random.default_rng(4)
    r, e = reach * rng.uniform(size=200), rng.uniform(size=200)
    t = np.linspace(0, 2, 8)
    nodes = np.full(kernels.ROWS * kernels.MOST_LANES, np.nan)
    nodes[:8] = t
    kernels._multiply(8, r.max(), r, e, nodes)
    _, p, q, turns, log_square, phase, decay = nodes.reshape(kernels.ROWS, -1)[:7, :8]
    x = np.outer(t, r)
    np.testing.assert_allclose(
        np.arctan2(q, p) + 2 * np.pi * turns, np.arctan(x).sum(axis=1), rtol=1e-12
    )
    np.testing.assert_allclose(log_square, np.log1p(x * x).sum(axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(phase, (e / (1 + x * x)).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(decay, (e * r / (1 + x * x)).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 40, 1024])
@pytest.mark.parametrize("a_s", [1e-9, 1e-4, 1e-2])
@pytest.mark.parametrize("mean_y", [-25.0, -9.0, -1.0, 0.5, 9.0, 25.0])
def test_a_series_gives_what_the_dimensions_give(d, a_s, mean_y):
    square, s = make(d, a_s, 5)
    square *= 0.3 / max(a_s, 0.3 * square.sum())  # of a distance of at most 1
    b = float((square + s).sum()) + mean_y
    side = 1.0 if mean_y < 0 else -1.0
    summed = pair_of(side, b, square, s)
    short = with_series(summed)
    assert len(short.series.terms)
    found, expected = kernels._expected(short), kernels._expected(summed)
    assert found == pytest.approx(expected, abs=3e-12)


def test_a_series_that_is_not_enough_is_given_up():
    square, s = make(64, 0.01, 6)
    b = float((square + s).sum()) - 1.0
    summed = pair_of(1.0, b, square, s)
    short = with_series(summed)
    assert not math.isnan(kernels._expected(short))
    series = short.series
    for worse in (
        series._replace(terms=series.terms[:2], around=series.around[:2]),
        series._replace(ratio=0.6),  # the line leaves its reach before it has ended
    ):
        assert math.isnan(kernels._expected(short._replace(series=worse)))


def test_a_kernel_is_compiled_once_for_any_number_of_nodes():
    square, s = make(40, 2.0, 7)  # no series, and a step that is halved
    log_p = kernels.log_expectation(
        1.0, 1.0, float((square + s).sum()), square, s, np.empty((2, 40)), True
    )
    assert -1 < log_p < 0
    for kernel in (kernels._integrand, kernels._by_dimensions, kernels._multiply):
        # None where the kernel that calls it was kept by an earlier process.
        assert len(kernel.nopython_signatures) <= 1
