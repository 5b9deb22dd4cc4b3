"""Monte Carlo against other implementations, and the means of its sigmoids."""

from __future__ import annotations

import itertools
from functools import partial

import mpmath
import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.progress import Countdown
from cimtool.reference import montecarlo
from cimtool.reference.montecarlo import (
    draw,
    mean_of_sigmoids,
    monte_carlo,
    monte_carlo_of_pairs,
)
from cimtool.reference.statistics import Gaussians


def make(n, d, seed, variance=0.3):
    rng = np.random.default_rng(seed)
    return Gaussians(rng.normal(size=(n, d)) * 0.4, variance * rng.uniform(size=(n, d)))


def brute_force(text, video, a, b, samples, seed):
    """log p and log(1-p) pair by pair in 400 digits, from the same draws."""
    z_t = draw(text, "text", np.arange(len(text)), samples, seed)
    z_v = draw(video, "video", np.arange(len(video)), samples, seed)
    log_p, log_1mp = np.empty((2, len(text), len(video)))
    with mpmath.workdps(400):
        for i, j in np.ndindex(log_p.shape):
            x = [b - a * ((p - q) ** 2).sum() for p in z_t[i] for q in z_v[j]]
            log_p[i, j] = mpmath.log(sum(1 / (1 + mpmath.exp(-y)) for y in x) / len(x))
            log_1mp[i, j] = mpmath.log(sum(1 / (1 + mpmath.exp(y)) for y in x) / len(x))
    return log_p, log_1mp


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.1, 0.0), (1.0, 12.0), (5.0, -3.0), (28.0, 0.0), (0.1, 30.0), (0.5, 1500.0), (400.0, 0.0)],
)
@pytest.mark.parametrize("samples", [2, 7])
def test_agrees_with_brute_force(a, b, samples):
    text, video = make(3, 40, 0), make(4, 40, 1)
    found = monte_carlo(text, video, a, b, samples, seed=5)
    log_p, log_1mp = brute_force(text, video, a, b, samples, seed=5)
    # A tail of e^-300 carries the rounding of its exponent.
    np.testing.assert_allclose(found.log_p, log_p, rtol=1e-11)
    np.testing.assert_allclose(found.log_1mp, log_1mp, rtol=1e-11)
    np.testing.assert_allclose(found.logit, log_p - log_1mp, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("distance", [690.8, 5000.0])
def test_a_probability_of_1e_300_and_far_less(distance):
    text = Gaussians(np.zeros((1, 2)), np.zeros((1, 2)))
    video = Gaussians(np.array([[np.sqrt(distance), 0.0]]), np.zeros((1, 2)))
    found = monte_carlo(text, video, a=1.0, b=0.0)
    assert found.log_p[0, 0] == pytest.approx(-distance, rel=1e-14)
    assert found.logit[0, 0] == pytest.approx(-distance, rel=1e-14)
    assert found.log_1mp[0, 0] == -np.exp(-distance)
    mirror = monte_carlo(text, video, a=1.0, b=2 * distance)
    assert mirror.log_1mp[0, 0] == pytest.approx(-distance, rel=1e-14)
    assert mirror.logit[0, 0] == pytest.approx(distance, rel=1e-14)


def test_without_variance_it_is_the_sigmoid_itself():
    text, video = make(5, 16, 0, variance=0.0), make(6, 16, 1, variance=0.0)
    found = monte_carlo(text, video, a=0.7, b=2.0)
    ed = ((text.mu[:, None] - video.mu) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found.logit, 2.0 - 0.7 * ed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.standard_error_of_logit, 0.0, atol=1e-13)


@pytest.mark.parametrize("b", [2.0, -700.0])
def test_one_sample_is_the_logit_of_one_draw(b):
    text, video = make(5, 16, 0), make(6, 16, 1)
    found = monte_carlo(text, video, a=0.7, b=b, samples=1, seed=3)
    z_t = draw(text, "text", np.arange(5), 1, 3)
    z_v = draw(video, "video", np.arange(6), 1, 3)[:, 0]
    distance = ((z_t - z_v) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found.logit, b - 0.7 * distance, rtol=1e-12, atol=1e-12)
    assert np.isnan(found.standard_error_of_logit).all()


def test_draws_of_an_item_are_the_same_bits_in_any_batch_and_for_more_samples():
    items = make(6, 10, 0)
    whole = draw(items, "text", np.arange(6), 4, seed=3)
    some = np.array([4, 1])
    np.testing.assert_array_equal(draw(items[some], "text", some, 4, seed=3), whole[some])
    np.testing.assert_array_equal(draw(items, "text", np.arange(6), 9, seed=3)[:, :4], whole)


def test_draws_differ_by_row_modality_and_seed():
    items = Gaussians(np.zeros((2, 10)), np.ones((2, 10)))
    rows = np.arange(2)
    first = draw(items, "text", rows, 3, seed=0)
    others = [
        first[1],
        draw(items, "video", rows, 3, seed=0)[0],
        draw(items, "text", rows, 3, seed=1)[0],
        draw(items, "text", rows + 2, 3, seed=0)[0],
    ]
    for other in others:
        assert not np.isin(first[0], other).any()


def test_draws_have_the_mean_and_variance_of_their_item():
    items = Gaussians(np.array([[2.0, -1.0]]), np.array([[0.25, 4.0]]))
    z = draw(items, "video", np.array([17]), 100_000, seed=0)[0]
    np.testing.assert_allclose(z.mean(axis=0), items.mu[0], atol=0.03)
    np.testing.assert_allclose(z.var(axis=0), items.s[0], rtol=0.02)


@pytest.mark.parametrize(
    ("text_points", "video_points", "near_points"), [(1, 1, 1), (5, 40, 15), (33, 7, 40)]
)
def test_block_sizes_change_nothing_beyond_1e_12(
    monkeypatch, text_points, video_points, near_points
):
    text, video = make(9, 64, 0), make(11, 64, 1)
    whole = monte_carlo(text, video, 0.1, 0.0, samples=5)
    monkeypatch.setattr(montecarlo, "_TEXT_POINTS", text_points)
    monkeypatch.setattr(montecarlo, "_VIDEO_POINTS", video_points)
    monkeypatch.setattr(montecarlo, "_NEAR_POINTS", near_points)
    blocks = monte_carlo(text, video, 0.1, 0.0, samples=5)
    for name in ("log_p", "log_1mp", "standard_error_of_logit"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-12)


@pytest.mark.parametrize(("video_points", "near_points"), [(20480, 5120), (15, 10)])
def test_some_pairs_have_the_estimates_of_all_pairs(monkeypatch, video_points, near_points):
    monkeypatch.setattr(montecarlo, "_VIDEO_POINTS", video_points)
    monkeypatch.setattr(montecarlo, "_NEAR_POINTS", near_points)
    text, video = make(9, 64, 0), make(11, 64, 1)
    chosen = np.random.default_rng(2).random((9, 11)) < 0.4
    chosen[3] = False
    rows = np.nonzero(chosen)
    some = monte_carlo_of_pairs(text, video, (0.1, 0.0), rows, samples=5, seed=3)
    whole = monte_carlo(text, video, 0.1, 0.0, samples=5, seed=3)
    for name in ("log_p", "log_1mp", "standard_error_of_logit"):
        np.testing.assert_allclose(getattr(some, name), getattr(whole, name)[rows], rtol=1e-12)


def test_progress_is_told_block_by_block(monkeypatch):
    monkeypatch.setattr(montecarlo, "_TEXT_POINTS", 10)  # two texts
    monkeypatch.setattr(montecarlo, "_TOLD", 2)
    monkeypatch.setattr(montecarlo, "_VIDEO_POINTS", 20)  # four videos
    clock = partial(next, itertools.count(0, 10))
    monkeypatch.setattr(montecarlo, "Countdown", partial(Countdown, clock=clock))
    lines = []
    monte_carlo(make(7, 8, 0), make(6, 8, 1), 0.1, 0.0, samples=5, say=lines.append)
    assert lines == [
        "Monte Carlo: 16 of 42 pairs; about 16 s left",
        "Monte Carlo: 28 of 42 pairs; about 10 s left",
        "Monte Carlo: 36 of 42 pairs; about 5 s left",
        "Monte Carlo: 42 of 42 pairs",
    ]
    monkeypatch.undo()
    monte_carlo(make(7, 8, 0), make(6, 8, 1), 0.1, 0.0, samples=5, say=lines.append)
    assert len(lines) == 4


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    text, video = make(40, 64, 0), make(50, 64, 1)
    monkeypatch.setattr(montecarlo, "_TEXT_POINTS", 60)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        one = monte_carlo(text, video, 0.1, 3.0)
        found.append((one.log_p, one.log_1mp, one.standard_error_of_logit))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("b", [0.0, 6.0, 40.0])  # p small, p about one half, 1-p small
def test_standard_error_is_the_scatter_over_seeds(b):
    text, video = make(2, 256, 0), make(2, 256, 1)
    runs = [monte_carlo(text, video, 0.04, b, seed=seed) for seed in range(300)]
    scatter = np.std([run.logit for run in runs], axis=0)
    claimed = np.sqrt(np.mean([run.standard_error_of_logit**2 for run in runs], axis=0))
    assert scatter.min() > 0.05
    np.testing.assert_allclose(claimed, scatter, rtol=0.1)
    # Taking the K*K pairs for independent would claim a third of it.
    assert (claimed > 2 * scatter / np.sqrt(10)).all()


@pytest.mark.parametrize("a", [4.0, 4e3, 4e9])
@pytest.mark.parametrize("sign", [1, -1])  # p small, 1-p small
def test_standard_error_grows_with_the_scatter_where_one_sample_is_the_whole_mean(a, sign):
    text, video = make(2, 64, 0), make(2, 64, 1)
    b = 0.0 if sign == 1 else 200 * a
    runs = [monte_carlo(text, video, a, b, seed=seed) for seed in range(60)]
    scatter = np.std([run.logit for run in runs], axis=0)
    claimed = np.sqrt(np.mean([run.standard_error_of_logit**2 for run in runs], axis=0))
    assert scatter.min() > 2 * np.sqrt(2)  # the most that the relative error of the mean can be
    np.testing.assert_allclose(claimed, scatter, rtol=0.6)


def test_standard_error_by_its_formula():
    text, video = make(1, 8, 0), make(1, 8, 1)
    z_t, z_v = (
        draw(items, which, np.arange(1), 6, 0)[0]
        for items, which in ((text, "text"), (video, "video"))
    )
    p = 1 / (1 + np.exp(1.5 * ((z_t[:, None] - z_v) ** 2).sum(axis=-1)))
    error = np.sqrt(p.mean(axis=1).var(ddof=1) / 6 + p.mean(axis=0).var(ddof=1) / 6)
    found = monte_carlo(text, video, 1.5, 0.0, samples=6).standard_error_of_logit[0, 0]
    assert found == pytest.approx(error / (p.mean() * (1 - p.mean())), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples is 0; expected at least 1"),
        ({"samples": 10**7}, "at most 100,000"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "2\\^64"),
    ],
)
def test_bad_options_are_refused(options, message):
    items = make(1, 2, 0)
    with pytest.raises(CimError, match=message):
        monte_carlo(items, items, 0.1, 0.0, **options)


def by_definition(x):
    """log p, log(1-p) and the error of the logit of one pair's x [K, K], in 400 digits."""
    K = len(x)
    with mpmath.workdps(400):
        sigmoids, others = (
            np.array([[1 / (1 + mpmath.exp(sign * mpmath.mpf(y))) for y in row] for row in x])
            for sign in (-1, 1)
        )
        p, rest = sigmoids.mean(), others.mean()
        small, mean = (sigmoids, p) if p < rest else (others, rest)
        spread = sum((one - mean) ** 2 for axis in (0, 1) for one in small.mean(axis=axis))
        error = mpmath.sqrt(spread / (K * (K - 1))) / (p * rest)
        return [float(one) for one in (mpmath.log(p), mpmath.log(rest), error)]


# All x of one sign or of both, in a pair, a text or a block; sums that underflow or nearly do.
CENTRES = (-900.0, -690.0, -30.0, -2.0, 0.0, 2.0, 30.0, 690.0, 900.0)


def numbers(n, K, m, scatter, seed=0):
    """x [n, K, K, m] whose standard error is less than half of the mean."""
    rng = np.random.default_rng(seed)
    return scatter * rng.normal(size=(n, K, K, m)) + rng.choice(CENTRES, size=(n, 1, 1, m))


@pytest.mark.parametrize(("K", "m"), [(2, 5), (3, 17), (6, 4)])
@pytest.mark.parametrize("scatter", [1e-9, 0.1, 0.4])
def test_the_definition(K, m, scatter):
    x = numbers(3, K, m, scatter)
    found = np.stack(mean_of_sigmoids(x))
    for i, j in np.ndindex(3, m):
        log_p, log_1mp, error = by_definition(x[i, :, :, j])
        # What is left of 1 is a number of the size e^-690, and carries its exponent's rounding.
        np.testing.assert_allclose(found[:2, i, j], (log_p, log_1mp), rtol=1e-12)
        smaller = found[:2, i, j].min()
        assert smaller == pytest.approx(min(log_p, log_1mp), rel=1e-14)
        # The spread of sigmoids that are all but equal carries their rounding.
        assert found[2, i, j] == pytest.approx(error, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("centre", [-3.0, -1e-6, -5e-7, 0.0, 5e-7, 1e-6, 3.0])
def test_the_smaller_one_has_its_own_sum_where_signs_are_mixed(centre):
    x = centre + np.linspace(-2e-6, 2e-6, 4 * 4 * 9).reshape(1, 4, 4, 9)
    found = np.stack(mean_of_sigmoids(x))
    for j in range(9):
        expected = by_definition(x[0, :, :, j])
        np.testing.assert_allclose(found[:2, 0, j], expected[:2], rtol=1e-15)
        assert found[2, 0, j] == pytest.approx(expected[2], rel=1e-6)


@pytest.mark.parametrize("order", [[0, 3, 1, 2], [3, 0, 1, 2]])
def test_any_layout_and_any_neighbours_give_the_same_bits(order):
    x = numbers(4, 3, 50, 2.0)
    whole = np.stack(mean_of_sigmoids(x))
    strided = np.moveaxis(np.ascontiguousarray(np.transpose(x, order)), range(4), order)
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(np.stack(mean_of_sigmoids(strided)), whole)
    for row, some in ((2, slice(0, 1)), (3, slice(11, 44)), (0, slice(43, 50))):
        alone = mean_of_sigmoids(x[row : row + 1, :, :, some])
        np.testing.assert_array_equal(np.stack(alone)[:, 0], whole[:, row, some])


def test_a_mirrored_pair_is_the_same_the_other_way_round():
    x = numbers(2, 4, 60, 1.5)
    log_p, log_1mp, error = mean_of_sigmoids(x)
    mirrored = mean_of_sigmoids(-x)
    np.testing.assert_allclose(np.stack(mirrored), (log_1mp, log_p, error), rtol=1e-13)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_number_is_one_far_away_and_nan_stays_in_its_pair(value):
    x = numbers(1, 3, 20, 1.0)
    fine = np.stack(mean_of_sigmoids(x))
    x[0, 1, 2, 7] = value
    found = np.stack(mean_of_sigmoids(x))
    x[0, 1, 2, 7] = np.sign(value) * 1e5
    np.testing.assert_array_equal(found, np.stack(mean_of_sigmoids(x)))
    x[0, 1, 2, 7] = np.nan
    lost = np.stack(mean_of_sigmoids(x))
    assert np.isnan(lost[:, 0, 7]).all()
    for one in (found, lost):
        np.testing.assert_array_equal(np.delete(one, 7, axis=2), np.delete(fine, 7, axis=2))


@pytest.mark.parametrize("side", [1, -1])
def test_a_sum_of_one_sigmoid_takes_the_jackknife(side):
    x = np.full((1, 5, 5, 12), -40.0)
    x[0, 1, 3] = -10.0
    found = np.stack(mean_of_sigmoids(side * x))
    for j in range(12):
        logs = [
            -np.logaddexp(0, -np.delete(x[0, :, :, j], k, axis))
            for axis in (0, 1)
            for k in range(5)
        ]
        left = np.array([np.logaddexp.reduce(one, axis=None) for one in logs]).reshape(2, 5)
        expected = np.sqrt(4 * left.var(axis=1).sum()) / (1 - 1 / (1 + np.exp(10)) / 25)
        assert expected > 2
        assert found[2, 0, j] == pytest.approx(expected, rel=1e-12)
