import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from cimtool.errors import CimError
from cimtool.reference import metrics
from cimtool.reference.metrics import (
    best_ranks,
    cosine_gap,
    drift,
    limit_metrics,
    mean_average_precision,
    ranks,
    recall_at,
    retrieval,
    spearman,
    top1_agreement,
)


@st.composite
def tied_scores(draw):
    """Scores with many ties, float32 or float64, and the right video of each text."""
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    scores = draw(arrays(dtype, (n, m), elements=st.integers(-2, 2)))
    return scores, draw(arrays(np.int64, n, elements=st.integers(0, m - 1)))


def worst_ranking(scores, is_right):
    """The items from best to worst, wrong ones first among equals."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], is_right[i]))


@given(tied_scores())
def test_ranks_by_brute_force(case):
    scores, right = case
    expected = [
        1 + worst_ranking(row, [j == r for j in range(len(row))]).index(r)
        for row, r in zip(scores, right, strict=True)
    ]
    assert ranks(scores, right).tolist() == expected


@given(tied_scores())
def test_best_ranks_by_brute_force(case):
    scores, right = case
    expected = []
    for video in range(scores.shape[1]):
        is_right = right == video
        if is_right.any():
            order = worst_ranking(scores[:, video], is_right)
            expected.append(1 + next(i for i, text in enumerate(order) if is_right[text]))
    assert best_ranks(scores, right).tolist() == expected


@given(tied_scores())
def test_one_text_a_video_is_the_transpose(case):
    scores, _ = case
    k = min(scores.shape)
    square, right = scores[:k, :k], np.arange(k)[::-1]
    assert best_ranks(square, right).tolist() == ranks(square.T, np.argsort(right)).tolist()


def test_constant_scores_rank_the_right_item_last():
    scores = np.zeros((6, 6))
    assert ranks(scores, np.arange(6)).tolist() == [6] * 6
    assert best_ranks(scores, np.arange(6)).tolist() == [6] * 6
    assert best_ranks(scores, np.array([0, 0, 0, 1, 1, 1])).tolist() == [4, 4]


def test_a_score_that_is_nan_counts_against():
    scores = np.array([[1.0, np.nan, 0.0], [np.nan, 5.0, 6.0]])
    assert ranks(scores, np.array([0, 0])).tolist() == [2, 3]
    assert best_ranks(scores, np.array([0, 1])).tolist() == [2, 2]


def test_retrieval_of_many_texts_to_one_video():
    scores = np.array(
        [
            [0.9, 0.1, 0.5],
            [0.2, 0.3, 0.4],
            [0.1, 0.8, 0.2],
            [0.0, 0.2, 0.1],
        ]
    )
    found = retrieval(scores, np.array([0, 0, 1, 1]))
    assert (found.text_to_video.r1, found.text_to_video.r5) == (0.75, 1.0)
    assert (found.text_to_video.queries, found.text_to_video.median_rank) == (4, 1.0)
    assert (found.video_to_text.r1, found.video_to_text.queries) == (1.0, 2)


def test_recall_and_median_rank():
    scores = np.tile(np.arange(20.0), (4, 1))
    right = np.array([19, 15, 14, 9])
    found = retrieval(scores, right).text_to_video
    assert ranks(scores, right).tolist() == [1, 5, 6, 11]
    assert (found.r1, found.r5, found.r10) == (0.25, 0.5, 0.75)
    assert found.median_rank == 5.5
    assert recall_at(np.array([1, 2, 3, 4]), 3) == 0.75


@given(case=tied_scores(), seed=st.integers(0, 99), top=st.sampled_from([None, 1, 2, 50]))
def test_mean_average_precision_by_brute_force(case, seed, top):
    scores, _ = case
    rng = np.random.default_rng(seed)
    queries, gallery = (rng.integers(0, 3, n) for n in scores.shape)
    expected = []
    for row, label in zip(scores, queries, strict=True):
        relevant = (gallery == label).tolist()
        if not any(relevant):
            continue
        order = worst_ranking(row, relevant)[:top]
        hits = [i for i, item in enumerate(order, start=1) if relevant[item]]
        precisions = [(k + 1) / i for k, i in enumerate(hits)]
        expected.append(sum(precisions) / min(sum(relevant), top or len(row)))
    if not expected:
        with pytest.raises(CimError, match="no label of the queries"):
            mean_average_precision(scores, queries, gallery, top)
        return
    found = mean_average_precision(scores, queries, gallery, top)
    assert found == pytest.approx(np.mean(expected), abs=1e-12)


def test_cosine_gap_by_brute_force():
    rng = np.random.default_rng(0)
    text, video, right = rng.normal(size=(5, 7)), rng.normal(size=(3, 7)), np.array([2, 0, 0, 1, 2])
    cosine = text @ video.T / np.outer(np.linalg.norm(text, axis=1), np.linalg.norm(video, axis=1))
    is_right = right[:, None] == np.arange(3)
    expected = cosine[is_right].mean() - cosine[~is_right].mean()
    assert cosine_gap(text.astype(np.float32), video, right) == pytest.approx(expected, abs=1e-6)
    assert cosine_gap(np.zeros((5, 7)), video, right) == 0
    with pytest.raises(CimError, match="wrong pairs"):
        cosine_gap(text, video[:1], np.zeros(5, np.int64))


def test_drift_by_hand():
    reference = np.array([[0.0, 2.0], [4.0, 0.0]])
    found = drift(reference + np.array([[1.0, 1.0], [2.0, -2.0]]), reference)
    assert found.logit_rmse == pytest.approx(math.sqrt(10 / 4))
    assert found.centred_rmse == pytest.approx(math.sqrt(8 / 4))
    assert (found.bias, found.max_abs, found.spread) == (0.5, 2.0, 1.5)
    assert found.relative_rmse == pytest.approx(math.sqrt(10 / 4) / 1.5)
    assert found.relative_centred_rmse == pytest.approx(math.sqrt(2) / 1.5)
    assert (found.top1_agreement, found.spearman) == (1.0, 1.0)


def test_a_shift_of_a_query_leaves_its_ranking_but_not_that_of_the_videos():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(30, 20))
    found = drift(reference + 10.0 * np.arange(30)[:, None], reference)
    assert found.centred_rmse == pytest.approx(0, abs=1e-12)
    assert found.spearman == pytest.approx(1)
    assert found.top1_agreement < 0.3


@given(tied_scores())
def test_scores_agree_with_themselves(case):
    scores, _ = case
    found = drift(scores, scores)
    assert (found.logit_rmse, found.max_abs, found.top1_agreement) == (0, 0, 1)
    assert found.relative_rmse == 0


def test_drift_from_a_constant_reference_has_no_scale():
    found = drift(np.ones((2, 3)), np.zeros((2, 3)))
    assert found.relative_rmse == math.inf
    assert found.spearman == 0


def test_float32_is_compared_in_float64():
    reference = np.full((2, 3), 0.1)
    assert drift(reference.astype(np.float32), reference).max_abs == abs(
        float(np.float32(0.1)) - 0.1
    )


@given(tied_scores(), st.integers(0, 99))
def test_top1_agreement_by_brute_force(case, seed):
    scores, _ = case
    reference = np.random.default_rng(seed).integers(-2, 3, scores.shape).astype(float)

    def agree(a, b):
        best = [{i for i, x in enumerate(row) if x == max(row)} for row in a.tolist()]
        other = [{i for i, x in enumerate(row) if x == max(row)} for row in b.tolist()]
        return np.mean([x == y for x, y in zip(best, other, strict=True)])

    expected = min(agree(scores, reference), agree(scores.T, reference.T))
    assert top1_agreement(scores, reference) == expected


def test_a_tie_at_the_top_is_disagreement_unless_the_reference_has_it():
    sharp, tied = np.array([[3.0, 1.0, 0.0]]), np.array([[3.0, 3.0, 0.0]])
    assert metrics.same_best(tied, sharp, axis=1) == 0
    assert metrics.same_best(sharp, tied, axis=1) == 0
    assert metrics.same_best(tied * 2, tied, axis=1) == 1


@given(tied_scores(), st.integers(0, 99))
@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
def test_spearman_as_scipy_has_it(case, seed):
    scores, _ = case
    reference = np.random.default_rng(seed).integers(-2, 3, scores.shape).astype(float)
    expected = [
        spearmanr(x, y).statistic if len(x) > 1 else 0.0
        for x, y in zip(scores, reference, strict=True)
    ]
    assert spearman(scores, reference) == pytest.approx(np.nan_to_num(expected).mean(), abs=1e-12)


def test_limit_metrics_are_the_worse_of_both_directions():
    reference = np.eye(4)
    scores = reference.copy()
    scores[:, 0] = 2.0  # all texts now choose video 0, whose texts are all as good
    right = np.arange(4)
    found = limit_metrics(
        drift(scores, reference), retrieval(scores, right), retrieval(reference, right)
    )
    assert tuple(found) == metrics.LIMITS
    assert found["logit_rmse"] == pytest.approx(math.sqrt((1 + 3 * 4) / 16))
    assert found["r1_loss"] == 0.75
    assert found["top1_agreement_loss"] == 0.75
    assert (found["r5_loss"], found["r10_loss"]) == (0, 0)
