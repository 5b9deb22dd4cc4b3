from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.reference import bootstrap
from cimtool.reference.bootstrap import Change, Interval, QueryCounts, interval, resamples


@st.composite
def counted_values(draw):
    """Values with ties and NaN, and how often each occurs in two resamples."""
    n = draw(st.integers(1, 8))
    values = draw(st.lists(st.sampled_from([1.0, 2.0, 3.5, np.nan]), min_size=n, max_size=n))
    row = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    return np.array(values), np.array(draw(st.tuples(row, row)), np.float64)


@given(counted_values())
def test_a_resample_is_its_queries_written_out(case):
    values, counts = case
    draws = QueryCounts(counts)
    found = np.stack([draws.mean(values), draws.median(values)])
    for i, row in enumerate(counts.astype(int)):
        written = np.repeat(values, row)
        written = written[~np.isnan(written)]
        expected = [written.mean(), np.median(written)] if len(written) else [np.nan, np.nan]
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-12)


def test_the_largest_is_of_the_queries_drawn():
    draws = QueryCounts(np.array([[1.0, 0, 2], [0, 1, 1]]))
    assert draws.largest(np.array([7.0, 9.0, 3.0])).tolist() == [7, 9]


def test_once_is_the_data_as_they_are():
    draws = QueryCounts.once(4)
    assert draws.mean(np.array([1.0, 2, 3, np.nan])).tolist() == [2]
    assert draws.median(np.array([4.0, 1, 3, 2])).tolist() == [2.5]


def test_every_resample_has_as_many_queries():
    found = list(resamples(np.arange(5), 3, seed=0, count=40))
    texts = np.concatenate([one.text.counts for one in found])
    videos = np.concatenate([one.video.counts for one in found])
    assert (texts.shape, videos.shape) == ((40, 5), (40, 3))
    assert (texts.sum(axis=1) == 5).all()
    assert (videos.sum(axis=1) == 3).all()
    # Each query is drawn once in the mean, within 5 standard errors.
    assert np.abs(texts.mean(axis=0) - 1).max() < 5 * np.sqrt(0.8 / 40)


def test_texts_are_drawn_with_the_video_that_they_share():
    right = np.array([4, 0, 4, 2, 0])
    (found,) = resamples(right, 6, seed=0, count=50)
    counts = found.text.counts
    np.testing.assert_array_equal(counts[:, [0, 1]], counts[:, [2, 4]])
    assert (counts[:, [0, 1, 3]].sum(axis=1) == 3).all(), "as many videos as have texts"
    assert len(np.unique(counts, axis=0)) > 5


def test_the_interval_is_as_wide_as_clusters_make_it():
    """Five equal texts a video say no more than one."""
    values = np.random.default_rng(0).normal(size=100)
    alone, shared = (
        interval(
            np.concatenate(
                [
                    one.text.mean(np.repeat(values, copies))
                    for one in resamples(np.repeat(np.arange(100), copies), 100, 0, 200)
                ]
            )
        )
        for copies in (1, 5)
    )
    assert (shared.low, shared.high) == pytest.approx((alone.low, alone.high))


def test_the_block_changes_nothing(monkeypatch):
    whole = [one.text.counts for one in resamples(np.arange(7), 7, seed=1, count=30)]
    monkeypatch.setattr(bootstrap, "BLOCK_COUNTS", 21)
    parts = [one.text.counts for one in resamples(np.arange(7), 7, seed=1, count=30)]
    assert (len(whole), len(parts)) == (1, 10)
    np.testing.assert_array_equal(np.concatenate(whole), np.concatenate(parts))


def test_the_interval_holds_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        values = rng.normal(size=80)
        means = np.concatenate(
            [one.text.mean(values) for one in resamples(np.arange(80), 80, trial, 200)]
        )
        found = interval(means)
        held += found.low <= 0.0 <= found.high
    assert 180 <= held <= 198  # 95% of 200, less a little for so few queries


def test_a_figure_of_nothing_has_no_interval():
    found = interval(np.full(5, np.nan))
    assert np.isnan([found.low, found.high]).all()
    assert interval(np.array([1.0, np.nan, 1.0])) == Interval(1.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "real"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)]
)
def test_a_change_is_real_where_its_interval_leaves_out_nothing(low, high, real):
    assert Change(0.0, low, high).is_real is real
