import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.reference.statistics import (
    Gaussians,
    distance_variance,
    expected_distance,
    pair_statistics,
)


def make(n, d, seed, offset=0.0, variance=1.0):
    rng = np.random.default_rng(seed)
    return Gaussians(rng.normal(size=(n, d)) + offset, variance * rng.uniform(size=(n, d)))


def readable(text, video):
    """The formulas as DESIGN writes them, over an [n, m, d] array."""
    delta = text.mu[:, None] - video.mu[None]
    s = text.s[:, None] + video.s[None]
    return (delta**2 + s).sum(axis=-1), (2 * s**2 + 4 * delta**2 * s).sum(axis=-1)


@given(
    n=st.integers(1, 7),
    d=st.integers(1, 40),
    seed=st.integers(0, 1000),
    offset=st.sampled_from([0.0, -3.0, 1e4]),
    variance=st.sampled_from([0.0, 1e-4, 1.0, 30.0]),
)
def test_aligned_rows_are_the_diagonal(n, d, seed, offset, variance):
    text, video = make(n, d, seed, offset, variance), make(n, d, seed + 1, offset, variance)
    ed, vd = readable(text, video)
    np.testing.assert_allclose(expected_distance(text, video), ed.diagonal(), rtol=1e-13)
    np.testing.assert_allclose(distance_variance(text, video), vd.diagonal(), rtol=1e-13)


def test_statistics_are_those_of_sampled_distances():
    text, video = make(1, 8, 0), make(1, 8, 1)
    rng = np.random.default_rng(2)
    z_t = text.mu + np.sqrt(text.s) * rng.normal(size=(400_000, 8))
    z_v = video.mu + np.sqrt(video.s) * rng.normal(size=(400_000, 8))
    distance = ((z_t - z_v) ** 2).sum(axis=1)
    assert expected_distance(text, video)[0] == pytest.approx(distance.mean(), rel=0.01)
    assert distance_variance(text, video)[0] == pytest.approx(distance.var(), rel=0.02)


@given(n=st.integers(1, 7), d=st.integers(1, 40), seed=st.integers(0, 1000))
def test_pairs_by_rows_are_aligned_rows(n, d, seed):
    text, video = make(n, d, seed, 3.0), make(5, d, seed + 1)
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, 9), rng.integers(0, 5, 9)
    ed, vd = pair_statistics(text, video, (i, j))
    np.testing.assert_allclose(ed, expected_distance(text[i], video[j]), rtol=1e-13)
    np.testing.assert_allclose(vd, distance_variance(text[i], video[j]), rtol=1e-13)


def test_half_precision_input_is_computed_in_float64():
    items = Gaussians(np.ones((2, 3), np.float16), np.ones((2, 3), np.float32))
    assert items.mu.dtype == items.s.dtype == np.float64
    assert (len(items), items.d) == (2, 3)


@pytest.mark.parametrize(
    ("mu", "s", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), r"mu has shape \[2, 3\] and s \[2, 4\]"),
        (np.ones(3), np.ones(3), r"expected one \[n, d\]"),
        (np.ones((1, 2)), np.array([[1.0, -0.5]]), "s holds -0.5"),
        (np.ones((1, 2)), np.array([[1.0, np.nan]]), "s holds nan"),
    ],
)
def test_bad_gaussians_are_refused(mu, s, message):
    with pytest.raises(CimError, match=message):
        Gaussians(mu, s)
