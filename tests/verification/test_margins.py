from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from cimtool.reference.metrics import ranks
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Truth, truth_among_others, truth_of
from cimtool.verification.margins import (
    SIGMAS,
    gallery_sizes,
    margins,
    pair_sample,
    recall_curves,
    recall_in,
)


def pairs(right: np.ndarray) -> Truth:
    return truth_of(right, None, int(right.max()) + 1)


def moved(scores: np.ndarray, sigma: float) -> np.ndarray:
    """Scores with an error of this RMSE that has no mean in any row or column."""
    rows, columns = np.indices(scores.shape)
    error = np.where(np.minimum(rows, columns) < 2, np.where((rows + columns) % 2, -1.0, 1.0), 0.0)
    error[2:, :] = error[:, 2:] = 0.0
    return scores + error * sigma * np.sqrt(scores.size / 4)


def test_a_lead_beyond_three_sigma_is_safe_and_a_lag_is_lost() -> None:
    # Rows lead by 10, trail by 10 and lead by 1; columns have one right text each.
    scores = np.array([[10.0, 0.0, 0.0], [10.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    text, video = margins(scores, moved(scores, 1.0), pairs(np.arange(3)))
    assert text.sigma == pytest.approx(np.sqrt(2))
    assert text.sigma * SIGMAS < 10
    assert (text.leads, text.trails, text.open) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    # Back: video 0 ties with text 1, video 1 trails by nothing, video 2 leads by 1.
    assert (video.leads, video.trails, video.open) == (0, 0, 1)


def test_the_best_of_several_right_texts_counts() -> None:
    scores = np.array([[9.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    _, video = margins(scores, moved(scores, 0.1), pairs(np.array([0, 0, 1])))
    assert (video.leads, video.trails) == (0.5, 0)  # 9 beats 2; of 0 and 0 neither leads


def test_a_video_that_all_texts_share_has_no_wrong_text() -> None:
    scores = np.array([[1.0, 0.0], [2.0, 3.0]])
    found = margins(scores, scores, truth_of(np.array([0, 0]), None, 2))
    assert [one.way for one in found] == ["text_to_video"]


def test_an_error_of_whole_texts_reorders_texts_not_videos() -> None:
    rng = np.random.default_rng(0)
    scores = np.eye(40) * 3 + rng.normal(size=(40, 40)) * 0.1
    compiled = scores + rng.normal(size=(40, 1)) * 5
    text, video = margins(scores, compiled, pairs(np.arange(40)))
    assert text.sigma == pytest.approx(0, abs=1e-12)
    assert text.leads == 1
    assert video.sigma == pytest.approx(np.sqrt(2) * np.std(compiled - scores))
    assert video.open == 1
    back, forth = margins(scores.T, compiled.T, pairs(np.arange(40)))
    assert (back.sigma, forth.sigma) == pytest.approx((video.sigma, text.sigma))


def test_without_an_error_every_order_stands() -> None:
    scores = np.array([[1.0, 0.0], [1.0, 0.0]])
    text, _ = margins(scores, scores, pairs(np.arange(2)))
    assert (text.leads, text.trails, text.open) == (0.5, 0.5, 0)


def test_recall_in_a_smaller_gallery_is_the_mean_over_all_of_that_size() -> None:
    rng = np.random.default_rng(0)
    scores, right = rng.normal(size=(1, 7)), np.array([3])
    rank = ranks(scores, right).astype(float)
    others = [j for j in range(7) if j != 3]
    for size in range(1, 8):
        for k in (1, 3):
            expected = np.mean([
                1 + sum(scores[0, j] > scores[0, 3] for j in drawn) <= k
                for drawn in combinations(others, size - 1)
            ])  # fmt: skip
            assert recall_in(rank, np.array([6]), np.ones(1), size, k) == pytest.approx(expected)


def test_a_curve_ends_at_the_recall_of_the_whole_gallery() -> None:
    rng = np.random.default_rng(1)
    right = np.repeat(np.arange(6), 2)
    truth = truth_of(right, None, 6)
    queries = retrieved(rng.normal(size=(12, 6)), truth)
    curves = recall_curves([("x", queries)], truth.rivals)
    assert [(c.way, c.k) for c in curves[:3]] == [("text_to_video", k) for k in (1, 5, 10)]
    text, video = curves[0], curves[3]
    assert text.sizes == (1, 2, 5, 6)
    assert text.recall[0] == 1
    assert text.recall[-1] == pytest.approx(np.mean(queries.text["rank"] <= 1))
    assert video.sizes[-1] == 11  # one right text and ten wrong ones
    assert video.recall[-1] == pytest.approx(np.mean(queries.video["rank"] <= 1))


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, (1,)), (2, (1, 2)), (30, (1, 2, 5, 10, 20, 30))]
)
def test_sizes_are_round_and_end_with_the_largest(largest: int, sizes: tuple[int, ...]) -> None:
    assert gallery_sizes(largest) == sizes


def test_a_sample_of_pairs_has_every_right_one_of_few() -> None:
    rng = np.random.default_rng(0)
    reference, right = rng.normal(size=(5, 4)), np.array([0, 1, 2, 3, 0])
    found = pair_sample(reference, reference + 1, truth_of(right, None, 4), seed=0)
    assert found.reference[:5] == tuple(reference[np.arange(5), right])
    assert np.array(found.compiled) == pytest.approx(np.array(found.reference) + 1)
    assert all(found.right[:5])
    assert len(found.right) == 10


def test_an_item_alone_is_neither_right_nor_wrong_for_itself() -> None:
    scores = np.array([[9.0, 5, 1, 0], [5, 9, 0, 1], [1, 0, 9, 3], [0, 1, 3, 9]])
    truth = truth_among_others(4, np.array([0, 0, 1, 1]))
    text, video = margins(scores, scores, truth)
    assert (text.leads, video.leads) == (1, 1)
    shift = np.where(np.eye(4, dtype=bool), 0, 1)
    found = pair_sample(scores, scores + shift, truth, seed=0)
    assert set(np.array(found.compiled) - found.reference) == {1.0}, "no item with itself"
    curves = recall_curves([("x", retrieved(scores, truth))], truth.rivals)
    assert {curve.sizes[-1] for curve in curves} == {3}  # a right item and two wrong ones
