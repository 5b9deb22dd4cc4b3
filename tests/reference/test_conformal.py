"""Conformal bounds: exact ranks, coverage over exchangeable orders, pairs without a common row."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from cimtool.reference.conformal import (
    RANKS,
    certain_ranks,
    conformal_bound,
    fewest_units,
    independent_pairs,
    order_of,
    rank_margins,
)
from cimtool.reference.truth import Judgements, Truth, truth_judged, truth_of

CONFIDENCES = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.123])


@pytest.mark.parametrize(
    ("confidence", "fewest"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)]
)
def test_the_fewest_units_that_have_a_bound(confidence: float, fewest: int) -> None:
    assert fewest_units(confidence) == fewest
    assert order_of(fewest, confidence) == fewest  # the largest of them
    assert order_of(fewest - 1, confidence) > fewest - 1
    with pytest.raises(ValueError, match=f"of {fewest} at least"):
        conformal_bound(np.zeros(fewest - 1), confidence)


@given(confidence=CONFIDENCES, more=st.integers(0, 60), data=st.data())
def test_a_new_error_keeps_the_bound_as_often_as_it_says(
    confidence: float, more: int, data: st.DataObject
) -> None:
    """Each of n + 1 exchangeable errors is the new one equally often; ties help."""
    n = fewest_units(confidence) + more
    errors = np.array(data.draw(st.lists(st.integers(0, 20), min_size=n + 1, max_size=n + 1)))
    kept = sum(
        errors[new] <= conformal_bound(np.delete(errors, new), confidence).bound
        for new in range(n + 1)
    )
    assert Fraction(int(kept), n + 1) >= Fraction(str(confidence))


@given(confidence=CONFIDENCES, more=st.integers(0, 60))
def test_the_bound_is_no_larger_than_needed(confidence: float, more: int) -> None:
    n = fewest_units(confidence) + more
    errors = np.arange(n + 1.0)
    kept = sum(
        errors[new] <= conformal_bound(np.delete(errors, new), confidence).bound
        for new in range(n + 1)
    )
    assert Fraction(kept - 1, n + 1) < Fraction(str(confidence))


def test_the_coverage_given_the_rows_is_a_beta() -> None:
    found = conformal_bound(np.arange(658.0), 0.95)
    assert (found.units, found.order, found.bound) == (658, 627, 626.0)
    assert found.least_coverage == pytest.approx(beta(627, 32).ppf(0.05), rel=1e-12)


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    """Several texts to a video, videos of no text, judgements."""
    videos = draw(st.integers(1, 12))
    right = draw(st.lists(st.integers(0, videos - 1), min_size=1, max_size=20))
    if draw(st.booleans()):
        return truth_of(np.array(right), None, videos)
    pairs = np.unique([(t, v) for t, v in enumerate(right) if t % 2 or t == 0], axis=0)
    judged = Judgements(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.int64))
    return truth_judged(judged, len(right), videos)


@given(truth=truths(), seed=st.integers(0, 5))
def test_pairs_have_no_row_in_common(truth: Truth, seed: int) -> None:
    drawn = independent_pairs(truth, seed)
    for rows in (drawn.right, drawn.random):
        assert all(len(set(column)) == len(column) for column in rows.T)
    own = truth.text_to_video
    assert (own[drawn.right[:, 0]] == drawn.right[:, 1]).all()
    assert len(drawn.right) == len(np.unique(own[own < truth.videos]))
    assert len(drawn.random) == len(drawn.right) // 2
    units = [*own[drawn.random[:, 0]], *drawn.random[:, 1]]
    assert len(set(units)) == len(units)


def test_another_seed_draws_other_pairs() -> None:
    truth = truth_of(np.arange(50), None, 50)
    first, again, other = (independent_pairs(truth, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.random, again.random)
    assert not np.array_equal(first.random, other.random)


def wrong_ranks(compiled: np.ndarray, reference: np.ndarray, margin: float) -> int:
    """Ranks that are called certain and are wrong, by the definition."""
    wrong = 0
    for scores, true in zip(compiled, reference, strict=True):
        order = np.argsort(-scores, kind="stable")
        for r in range(1, min(RANKS, len(order) - 1) + 1):
            claimed = scores[order[r - 1]] - scores[order[r]] > margin
            wrong += claimed and true[order[:r]].min() <= true[order[r:]].max()
    return wrong


@given(
    seed=st.integers(0, 1000), items=st.integers(2, 14), size=st.sampled_from([0.0, 0.1, 1.0, 5.0])
)
def test_the_margin_is_the_least_without_a_wrong_rank(seed: int, items: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=(3, items))
    compiled = np.round(reference + size * rng.normal(size=(3, items)), 1)
    margins = rank_margins(compiled, reference)
    for row in range(3):
        one = slice(row, row + 1)
        margin = float(margins[row])
        assert wrong_ranks(compiled[one], reference[one], margin) == 0
        if margin > 0:
            assert wrong_ranks(compiled[one], reference[one], margin - 1e-9) > 0


def test_equal_scores_are_never_certain_and_nor_are_ranks_behind_the_tenth() -> None:
    scores = np.array([[3.0, 3.0, 1.0, 0.5]], np.float32)
    assert certain_ranks(scores, 0.0).tolist() == [[False, True, True]]
    assert certain_ranks(scores, 0.5).tolist() == [[False, True, False]]
    many = certain_ranks(-np.arange(13.0)[None], 0.5)
    assert many.tolist() == [[True] * RANKS + [False] * 2]
