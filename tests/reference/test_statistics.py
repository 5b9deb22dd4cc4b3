import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.reference.statistics import (
    Gaussians,
    distance_variance,
    expected_distance,
    iter_pair_statistics,
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
    m=st.integers(1, 7),
    d=st.integers(1, 40),
    seed=st.integers(0, 1000),
    offset=st.sampled_from([0.0, -3.0, 1e4]),
    variance=st.sampled_from([0.0, 1e-4, 1.0, 30.0]),
)
def test_pairs_by_products_equal_the_readable_formula(n, m, d, seed, offset, variance):
    text = make(n, d, seed, offset, variance)
    video = make(m, d, seed + 1, offset, variance)
    for found, expected in zip(pair_statistics(text, video), readable(text, video), strict=True):
        scale = max(expected.max(), 1e-300)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * scale)


def test_a_shared_offset_does_not_cancel():
    text, video = make(20, 256, 0), make(30, 256, 1)
    moved = [Gaussians(items.mu + 1024.0, items.s) for items in (text, video)]
    for found, expected in zip(pair_statistics(*moved), readable(*moved), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-14)


def test_aligned_rows_are_the_diagonal():
    text, video = make(9, 33, 0), make(9, 33, 1)
    ed, vd = pair_statistics(text, video)
    np.testing.assert_allclose(expected_distance(text, video), ed.diagonal(), rtol=1e-13)
    np.testing.assert_allclose(distance_variance(text, video), vd.diagonal(), rtol=1e-13)


@pytest.mark.parametrize("rows", [1, 4, 11, 100])
def test_blocks_cover_all_rows_once(rows):
    text, video = make(11, 16, 0), make(5, 16, 1)
    ed, vd = pair_statistics(text, video)
    blocks = list(iter_pair_statistics(text, video, rows))
    assert [i for block, _, _ in blocks for i in range(block.start, block.stop)] == list(range(11))
    assert all(len(e) <= rows for _, e, _ in blocks)
    np.testing.assert_allclose(np.concatenate([e for _, e, _ in blocks]), ed, rtol=1e-13)
    np.testing.assert_allclose(np.concatenate([v for _, _, v in blocks]), vd, rtol=1e-13)


def test_statistics_are_those_of_sampled_distances():
    text, video = make(1, 8, 0), make(1, 8, 1)
    rng = np.random.default_rng(2)
    z_t = text.mu + np.sqrt(text.s) * rng.normal(size=(400_000, 8))
    z_v = video.mu + np.sqrt(video.s) * rng.normal(size=(400_000, 8))
    distance = ((z_t - z_v) ** 2).sum(axis=1)
    ed, vd = pair_statistics(text, video)
    assert ed[0, 0] == pytest.approx(distance.mean(), rel=0.01)
    assert vd[0, 0] == pytest.approx(distance.var(), rel=0.02)


def test_no_array_of_pairs_by_dimensions():
    text, video = make(256, 256, 0), make(256, 256, 1)
    tracemalloc.start()
    pair_statistics(text, video)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * 256 * 256 * 8 / 4


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
