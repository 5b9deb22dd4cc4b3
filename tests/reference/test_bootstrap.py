"""Intervals: over draws of queries, of counted shares by published values, and Student's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from cimtool.base.intervals import Change, Interval
from cimtool.reference import bootstrap
from cimtool.reference.bootstrap import (
    QueryCounts,
    chance_of_split,
    counted_share,
    interval,
    resampled_pairs,
    resamples,
    students,
)


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


def test_a_share_that_all_queries_or_none_have_has_the_interval_of_a_count():
    for hit in (0.0, 1.0):
        found = counted_share(20 * int(hit), 20)
        assert interval(np.full(9, hit), 20) == Interval(found.low, found.high)
        assert interval(np.full(9, hit)) == Interval(hit, hit)
    assert interval(np.full(9, 0.5), 20) == Interval(0.5, 0.5)
    values = np.linspace(0, 1, 9)
    assert interval(values, 20) == interval(values)


@pytest.mark.parametrize(
    ("low", "high", "real"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)]
)
def test_a_change_is_real_where_its_interval_leaves_out_nothing(low, high, real):
    assert Change(0.0, low, high).is_real is real


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (19, 20, 0.7513, 0.9987), (1, 1, 0.025, 1.0)],
)
def test_the_interval_is_clopper_and_pearsons(count: int, of: int, low: float, high: float) -> None:
    found = counted_share(count, of)
    assert found.value == count / of
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_covers_every_share_as_often_as_it_says() -> None:
    of = 20
    ends = np.array([(one.low, one.high) for one in (counted_share(k, of) for k in range(of + 1))])
    for share in np.linspace(0.01, 0.99, 25):
        covers = (ends[:, 0] <= share) & (share <= ends[:, 1])
        assert binom.pmf(np.arange(of + 1), of, share)[covers].sum() >= 0.95


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (2, 9), (9, 2), (6, 6), (40, 15)])
def test_the_chance_of_a_split_is_the_exact_two_sided_one(first: int, second: int) -> None:
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert chance_of_split(first, second) == pytest.approx(expected)


def test_the_interval_of_three_figures() -> None:
    found = students([1.0, 2.0, 3.0])
    # 4.3027 is the 97.5% quantile of Student's t with 2 degrees of freedom.
    half = 4.302652729749464 / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2 - half, 2 + half))


def test_one_figure_has_no_interval() -> None:
    found = students([0.5])
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert not found.is_real


def test_pairs_are_resampled_by_texts_and_by_videos() -> None:
    texts, videos = 40, 90
    means = resampled_pairs(texts, videos)
    np.testing.assert_allclose(means(np.full((texts, videos), 3.0)), 3.0)
    of_text = np.random.default_rng(0).normal(size=(texts, 1)) * np.ones((1, videos))
    of_video = np.random.default_rng(1).normal(size=(1, videos)) * np.ones((texts, 1))
    for values, count in ((of_text, texts), (of_video, videos)):
        found = means(values)
        assert found.mean() == pytest.approx(values.mean(), abs=0.2 * values.std() / count**0.5)
        assert found.std() == pytest.approx(values.std() / count**0.5, rel=0.1)
    np.testing.assert_allclose(means(of_text + of_video), means(of_text) + means(of_video))
    np.testing.assert_array_equal(resampled_pairs(texts, videos)(of_text), means(of_text))
