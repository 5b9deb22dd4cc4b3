import itertools
import time
import tracemalloc
from functools import cache, partial

import mpmath
import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.base.progress import Countdown
from cimtool.reference import exact as module
from cimtool.reference.exact import exact, log_match_probability, pair_probabilities
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians

RELATIVE = 1e-11
"""Tolerance held here; 1e-9 is promised."""


def probability(square, s, a, b):
    """log p and log(1-p) of one pair with these delta^2 and s."""
    delta, zero = np.sqrt(square), np.zeros(len(s))
    log_p, log_1mp = log_match_probability(delta, np.asarray(s, float), zero, zero, a, b)
    return float(log_p), float(log_1mp)


def assert_equal(found, expected):
    """Of log p and log(1-p): they are close, and so are p and 1-p."""
    for one, other in zip(found, expected, strict=True):
        assert abs(mpmath.expm1(one - other)) < RELATIVE
        assert abs(one - other) <= RELATIVE * abs(other)


def logarithms(p, rest):
    """log p and log(1-p), each from the smaller of the two."""
    logs = (
        (mpmath.log(p), mpmath.log1p(-p)) if p < rest else (mpmath.log1p(-rest), mpmath.log(rest))
    )
    return tuple(map(float, logs))


def by_density(a, b, s, d, offset):
    """The definition, in 30 digits: D = offset + s z^2, integrated over the density of chi, z."""
    with mpmath.workdps(30):
        a, b, s, offset = (mpmath.mpf(float(x)) for x in (a, b, s, offset))
        constant = (1 - mpmath.mpf(d) / 2) * mpmath.log(2) - mpmath.loggamma(mpmath.mpf(d) / 2)

        @cache
        def parts(z):
            """Shared by both sides: y, and all but the part of the sigmoid that has its sign."""
            y = b - a * (offset + s * z * z)
            rest = constant + (d - 1) * mpmath.log(z) - z * z / 2
            return y, rest - mpmath.log1p(mpmath.exp(-abs(y)))

        def log_of(z, side):
            y, rest = parts(z)
            return min(side * y, 0) + rest

        # Around where y is 0, and where the density has its peak, or that times e^y.
        turn = mpmath.sqrt(max(b / a - offset, 0) / s)
        peaks = [turn, mpmath.sqrt(d - 1), mpmath.sqrt((d - 1) / (1 + 2 * a * s))]
        scales = [min(1, 1 / (a * s * (turn + 1))), 1 / mpmath.sqrt(1 + 2 * a * s), mpmath.mpf(1)]
        around = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
        points = {m + k * w for m in peaks for w in scales for k in around}
        edges = [0, *sorted(z for z in points if z > 0)]
        found = []
        for side in (1, -1):
            # mpmath's accuracy is absolute: the integrand is brought to about 1.
            size = max(log_of(z, side) for z in edges[1:])
            scaled = mpmath.quad(
                lambda z, side=side, m=size: mpmath.exp(log_of(z, side) - m),
                edges,
                method="gauss-legendre",  # of 26 digits and more here, at a third of the points
            )
            found.append(scaled * mpmath.exp(size))
        return logarithms(*found)


STEP = mpmath.mpf("0.02")
"""Between the points of the contour."""


def by_contour(groups, a, b):
    """log p and log(1-p) for `groups` of (delta^2, s, how many), in many digits and small steps.

    The trapezoid rule at w = 1/2 + i t, whose error is exp(-pi / step).
    """
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for n, (w, exponent, sine) in enumerate(contour(tuple(groups), a)):
            value = (mpmath.exp(b * w + exponent) / sine).real
            total += value / 2 if n == 0 else value
        p = total * STEP
        return logarithms(p, 1 - p)


@cache
def contour(groups, a):
    """The points w of the line, and what there is at each whatever b: exponent, sin(pi w)."""
    found = []
    for n in range(1200):
        w = mpmath.mpc(0.5, n * STEP)
        exponent = mpmath.mpc(0)
        for square, s, count in groups:
            q = 1 + 2 * a * w * mpmath.mpf(s)
            exponent -= count * (mpmath.log(q) / 2 + a * w * mpmath.mpf(square) / q)
        found.append((w, exponent, mpmath.sin(mpmath.pi * w)))
    return found


@pytest.mark.thorough("the whole grid", quick=("-0.1-", "0.4-7"))
@pytest.mark.parametrize("d", [1, 7, 4096])
@pytest.mark.parametrize("a_s", [0.01, 0.4, 15.0])
@pytest.mark.parametrize("mean_y", [-40.0, -0.1, 5.0])
def test_equal_variances_agree_with_the_integral_over_the_density(d, a_s, mean_y):
    a = 0.1
    s = a_s / a
    b = a * d * s + mean_y
    assert_equal(probability(np.zeros(d), np.full(d, s), a, b), by_density(a, b, s, d, 0.0))


@pytest.mark.parametrize(("a_s", "b"), [(15.0, 1000.0), (15.0, 100.0), (3.0, 190.0), (0.3, 34.0)])
@pytest.mark.parametrize("d", [1, 4])
def test_a_small_rest_of_one(a_s, b, d):
    found = probability(np.zeros(d), np.full(d, a_s), 1.0, b)
    assert found[1] < -1.5
    assert_equal(found, by_density(1.0, b, a_s, d, 0.0))


@pytest.mark.parametrize("d", [1, 1024])
@pytest.mark.parametrize("a_s", [0.05, 1.0, 15.0])
@pytest.mark.parametrize("log_p", [-690.0, -60.0])
def test_probabilities_down_to_1e_300(d, a_s, log_p):
    # Nearly all comes from where D is least.
    b = log_p + d / 2 * np.log1p(2 * a_s)
    found = probability(np.zeros(d), np.full(d, a_s), 1.0, b)
    assert_equal(found, by_density(1.0, b, a_s, d, 0.0))


@pytest.mark.parametrize("others", [1, 4095])
@pytest.mark.parametrize("b", [0.0, 20.0, 60.0])
def test_one_dominant_dimension_among_points(others, b):
    offset = 10.0  # of all dimensions without variance
    square = np.r_[0.0, np.full(others, offset / others)]
    found = probability(square, np.r_[15.0, np.zeros(others)], 1.0, b)
    assert_equal(found, by_density(1.0, b, 15.0, 1, offset))


@pytest.mark.parametrize(
    "groups",
    [
        [(0.3, 0.1, 1)],
        [(2.0, 15.0, 1), (0.5, 0.01, 3)],
        [(0.01, 0.02, 500), (0.02, 0.0, 500), (0.0, 0.03, 24)],
        [(1e-3, 1e-3, 4000), (0.0, 15.0, 1), (3.0, 7.0, 2), (0.1, 0.0, 93)],
        [(0.1, 0.1, 300), (0.1, 0.5, 40)],
    ],
)
@pytest.mark.parametrize("mean_y", [-15.0, -1.0, 2.0, 15.0])
def test_mixed_variances_agree_with_a_line_of_many_digits(groups, mean_y):
    square, s = (np.repeat([g[k] for g in groups], [g[2] for g in groups]) for k in (0, 1))
    a = 1.0
    b = float(a * (square + s).sum() + mean_y)
    assert_equal(probability(square, s, a, b), by_contour(groups, a, b))


@pytest.mark.parametrize("y", [-700.0, -36.0, -9.0, -3.0, -1e-3, 0.0, 2.0, 14.0, 30.0])
@pytest.mark.parametrize("s", [0.0, 1e-15])
def test_without_variance_it_is_the_sigmoid_itself(y, s):
    square = np.full(20, 0.5)
    found = probability(square, np.full(20, s), 0.7, y + 7.0)
    expected = -np.logaddexp(0, -y), -np.logaddexp(0, y)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("b", [-30.0, -4.0, 0.0, 4.0, 9.0])
def test_agrees_with_monte_carlo_of_many_samples(b):
    rng = np.random.default_rng(0)
    text, video = (
        Gaussians(rng.normal(size=(2, 12)) * 0.4, 0.4 * rng.uniform(size=(2, 12))) for _ in "tv"
    )
    sampled = monte_carlo(text, video, 0.5, b, samples=800)
    z = (sampled.logit - exact(text, video, 0.5, b).logit) / sampled.standard_error_of_logit
    assert np.abs(z).max() < 5
    assert sampled.standard_error_of_logit.max() < 0.07


@pytest.mark.parametrize("a_s", [100.0, 1e6])
@pytest.mark.parametrize("b", [0.0, 1000.0])
def test_variances_beyond_the_promise(a_s, b):
    assert_equal(probability([0.0], [a_s], 1.0, b), by_density(1.0, b, a_s, 1, 0.0))


@st.composite
def pairs(draw):
    d = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    a = draw(st.sampled_from([0.01, 0.1, 1.0, 10.0]))
    s = draw(st.floats(1e-4, 15)) / a * rng.uniform(size=d) ** draw(st.integers(0, 8))
    s[rng.random(d) < draw(st.sampled_from([0, 0.3]))] = 0
    square = draw(st.floats(0, 20)) / a * rng.uniform(size=d) ** 2
    ed = a * float((square + s).sum())
    return square, s, a, ed + draw(st.floats(-50, 30))


@settings(max_examples=examples(200))
@given(pairs())
def test_p_and_its_rest_are_a_probability_that_rises_with_b(pair):
    square, s, a, b = pair
    log_p, log_1mp = probability(square, s, a, b)
    assert log_p <= 0
    assert log_1mp <= 0
    assert np.exp(log_p) + np.exp(log_1mp) == pytest.approx(1, abs=1e-15)
    higher_p, higher_1mp = probability(square, s, a, b + 1e-3)
    # A logit rises at most as fast as b.
    risen = (higher_p - higher_1mp) - (log_p - log_1mp)
    assert 0 < risen < 1.001e-3


@settings(max_examples=examples(50))
@given(pairs(), st.randoms(use_true_random=False))
def test_dimensions_may_come_in_any_order(pair, random):
    square, s, a, b = pair
    order = random.sample(range(len(s)), len(s))
    found = probability(square[order], s[order], a, b)
    # The order decides rounding, and with it at which step of the rule two results agree: within
    # what `cimtool/reference/exact.py` promises of each.
    np.testing.assert_allclose(found, probability(square, s, a, b), rtol=0, atol=1e-9)


def make(n, d, seed, variance=0.3):
    rng = np.random.default_rng(seed)
    return Gaussians(rng.normal(size=(n, d)) * 0.4, variance * rng.uniform(size=(n, d)))


def test_all_pairs_are_the_broadcast_of_single_ones():
    text, video = make(5, 33, 0), make(7, 33, 1)
    found = exact(text, video, 0.3, 1.0)
    log_p, log_1mp = log_match_probability(
        text.mu[:, None], text.s[:, None], video.mu, video.s, 0.3, 1.0
    )
    assert found.log_p.shape == log_p.shape == (5, 7)
    np.testing.assert_allclose(found.log_p, log_p, rtol=1e-12)
    np.testing.assert_allclose(found.log_1mp, log_1mp, rtol=1e-12)
    np.testing.assert_array_equal(found.logit, found.log_p - found.log_1mp)


def test_each_array_is_broadcast_by_itself():
    text, video = make(4, 9, 0), make(1, 9, 1)
    s = text.s[0]  # one variance for all
    found = log_match_probability(text.mu[:, None], s, video.mu, np.zeros(9), 0.3, 1.0)
    expected = log_match_probability(text.mu, [s] * 4, [video.mu[0]] * 4, np.zeros((4, 9)), 0.3, 1)
    assert found[0].shape == (4, 1)
    np.testing.assert_array_equal(np.ravel(found), np.ravel(expected))


def test_texts_and_videos_may_change_places():
    text, video = make(6, 20, 0), make(6, 20, 1)
    there, back = exact(text, video, 0.3, 2.0), exact(video, text, 0.3, 2.0)
    np.testing.assert_allclose(there.logit, back.logit.T, rtol=1e-12, atol=1e-13)


def test_a_shared_offset_changes_nothing():
    text, video = make(3, 64, 0), make(4, 64, 1)
    moved = [Gaussians(items.mu + 1024.0, items.s) for items in (text, video)]
    np.testing.assert_allclose(
        exact(*moved, 0.3, 2.0).logit, exact(text, video, 0.3, 2.0).logit, rtol=1e-11
    )


@pytest.mark.parametrize(("block", "at_once", "near"), [(1, 1, 1), (13, 3, 200), (10**6, 5, 100)])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_blocks_and_threads_change_no_bit(monkeypatch, block, at_once, near, threads):
    text, video = make(7, 50, 0), make(6, 50, 1)
    whole = exact(text, video, 0.3, 5.0)
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    monkeypatch.setattr(module, "_NEAR", near)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    found = exact(text, video, 0.3, 5.0)
    np.testing.assert_array_equal(found.log_p, whole.log_p)
    np.testing.assert_array_equal(found.log_1mp, whole.log_1mp)


def test_progress_is_told_block_by_block(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 20)
    clock = partial(next, itertools.count(0, 10))
    monkeypatch.setattr(module, "Countdown", partial(Countdown, clock=clock))
    lines = []
    exact(make(7, 4, 0), make(6, 4, 1), 0.3, 0.0, lines.append)
    assert lines == [
        "exact score: 3 of 7 texts; about 13 s left",
        "exact score: 6 of 7 texts; about 3 s left",
        "exact score: 7 of 7 texts",
    ]


def test_memory_beyond_the_scores_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 1000)
    text, video = make(300, 4, 0), make(300, 4, 1)
    exact(text[:2], video[:2], 0.3, 0.0)
    tracemalloc.start()
    found = exact(text, video, 0.3, 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < found.log_p.nbytes + found.log_1mp.nbytes + 300_000


def test_a_few_pairs_of_many_items_cost_no_look_at_all_items():
    def seconds(items):
        """The least processor time of a call with two pairs."""
        rows = np.ones((items, 64))
        of_pairs = pair_probabilities(*(Gaussians(rows, 0.01 * rows),) * 2, 0.1, 5.0)
        two, found = np.arange(2), []
        for _ in range(7):
            began = time.thread_time()
            of_pairs(two, two)
            found.append(time.thread_time() - began)
        return min(found)

    assert seconds(50_000) < 3 * seconds(2)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_no_pairs(n, m):
    found = exact(make(n, 4, 0), make(m, 4, 1), 0.3, 0.0)
    assert found.log_p.shape == found.log_1mp.shape == (n, m)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"a": 0.0}, "a is 0.0; expected a finite number above 0"),
        ({"a": np.inf}, "a is inf"),
        ({"a": np.nan}, "a is nan"),
        ({"b": -np.inf}, "b is -inf; expected a finite number"),
        ({"mu_t": [0.0, np.nan]}, "mu_t holds nan; expected a finite mean"),
        ({"mu_v": [np.inf, 0.0]}, "mu_v holds inf"),
        ({"s_t": [-1.0, 1.0]}, "s_t holds -1.0; expected a variance that is finite and 0 or more"),
        ({"s_v": [np.inf, 1.0]}, "s_v holds inf"),
        ({"s_v": [1.0]}, r"have shapes \[2\], \[2\], \[2\], \[1\]; expected \[..., d\] with one d"),
        ({"mu_t": 1.0}, r"have shapes \[\], \[2\]"),
        ({"mu_t": np.ones((2, 2)), "s_v": np.ones((3, 2))}, r"have shapes \[2, 2\]"),
        ({"a": 1e29}, r"out of reach: its a \* max\(s\) is \d+e\+2\d and its"),
        ({"mu_t": [1e200, 0.0]}, r"out of reach: its a \* max\(s\) is 0.2 and its .* is inf"),
    ],
)
def test_bad_input_is_refused(changed, message):
    good = {"mu_t": [0.0, 1.0], "s_t": [1.0, 1.0], "mu_v": [0.0, 0.0], "s_v": [1.0, 1.0]}
    with pytest.raises(CimError, match=message):
        log_match_probability(**(good | {"a": 0.1, "b": 0.0} | changed))


def test_bad_items_are_refused():
    with pytest.raises(CimError, match="texts have 4 dimensions and videos 5"):
        exact(make(2, 4, 0), make(2, 5, 0), 0.1, 0.0)
    with pytest.raises(CimError, match=r"a is -0\.1"):
        exact(make(2, 4, 0), make(2, 4, 0), -0.1, 0.0)
    nothing = Gaussians(np.array([[np.nan]]), np.ones((1, 1)))
    with pytest.raises(CimError, match="mu_v holds nan"):
        exact(make(2, 1, 0), nothing, 0.1, 0.0)


@pytest.mark.parametrize("d", [1, 8, 128])
@pytest.mark.parametrize("widest", [0.005, 0.02, 0.05, 1.0, 10.0])
def test_scores_that_are_not_to_the_last_bit_are_next_to_exact(d: int, widest: float) -> None:
    rng = np.random.default_rng(d)
    mean = rng.normal(size=(2, 20, d)) / np.sqrt(d)
    text, video = (Gaussians(mu, widest * rng.uniform(size=mu.shape)) for mu in mean)
    found, expected = (
        exact(text, video, 1.0, 2.0 + d * widest, close=one) for one in (False, True)
    )
    for one in ("log_p", "log_1mp"):
        np.testing.assert_allclose(getattr(found, one), getattr(expected, one), rtol=0, atol=1e-12)
