from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from cimtool.reference.bootstrap import QueryCounts, Samples, counted_share
from cimtool.reference.limits import limit_metrics
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import ReferenceScores, ranks
from cimtool.reference.queries import (
    Queries,
    Selection,
    compared,
    independent,
    led,
    metrics,
    once,
    relative_errors,
    uncertainties,
)
from cimtool.reference.retrieval import retrieval, retrieved
from cimtool.reference.truth import truth_of

from .test_metrics import tied_scores


def pairs(scores, right):
    return truth_of(right, None, scores.shape[1])


def drift(scores, reference):
    found = once(compared(scores, ReferenceScores(reference)))
    return SimpleNamespace(**found, **relative_errors(found))


def test_retrieval_of_many_texts_to_one_video():
    scores = np.array(
        [
            [0.9, 0.1, 0.5],
            [0.2, 0.3, 0.4],
            [0.1, 0.8, 0.2],
            [0.0, 0.2, 0.1],
        ]
    )
    right = np.array([0, 0, 1, 1])
    found = retrieval(scores, pairs(scores, right))
    assert (found["r1_text_to_video"], found["r5_text_to_video"]) == (0.75, 1.0)
    assert (found["median_rank_text_to_video"], found["r1_video_to_text"]) == (1.0, 1.0)
    assert retrieved(scores, pairs(scores, right)).counts == {
        "text_to_video": 4,
        "video_to_text": 2,
    }


def test_texts_of_one_video_are_one_independent_query():
    rank = np.array([1.0, np.nan, 2.0, np.nan, 1.0])
    queries = Queries({"rank": rank}, {"rank": np.array([1.0, np.nan, np.nan])})
    found = independent(queries, "rank", np.array([0, 0, 0, 1, 2]))
    assert found == {"text_to_video": 2, "video_to_text": 1}


def test_recall_and_median_rank():
    scores = np.tile(np.arange(20.0), (4, 1))
    right = np.array([19, 15, 14, 9])
    found = retrieval(scores, pairs(scores, right))
    assert ranks(scores, right).tolist() == [1, 5, 6, 11]
    assert [found[f"r{k}_text_to_video"] for k in (1, 5, 10)] == [0.25, 0.5, 0.75]
    assert found["median_rank_text_to_video"] == 5.5


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
    # What a text's score has more for all videos moves it in the ranking of each video.
    assert found.centred_rmse == pytest.approx(10 * np.arange(30).std())
    turned = drift(reference.T + 10.0 * np.arange(30), reference.T)
    assert turned.centred_rmse == found.centred_rmse
    alike = drift(reference + 10.0, reference)
    assert alike.centred_rmse == pytest.approx(0, abs=1e-12)
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


def noisy_rows(n=60, m=40, noise=0.3):
    rng = np.random.default_rng(1)
    right = np.arange(n) % m
    reference = rng.normal(size=(n, m)) + 2.0 * (right[:, None] == np.arange(m))
    scores = reference + noise * rng.normal(size=(n, m))
    best = retrieved(reference, pairs(reference, right))
    own = retrieved(scores, pairs(scores, right)).merged(
        compared(scores, ReferenceScores(reference))
    )
    return best, own, right, reference, scores


def resampled(texts, videos):
    """A sample in which each text and each video stands as often as the lists say."""
    counts = [np.array([one], np.float64) for one in (texts, videos)]
    return Samples(*map(QueryCounts, counts))


def test_the_metrics_of_a_resample_are_those_of_the_queries_written_out():
    _, own, right, reference, scores = noisy_rows(6, 6)
    texts, videos = [2, 0, 1, 0, 3, 0], [1, 1, 1, 1, 1, 1]
    rows = np.repeat(np.arange(6), texts)
    found = metrics(own, resampled(texts, videos))
    difference = (scores - reference)[rows]
    centred = difference - difference.mean(axis=1, keepdims=True)
    of_videos = (scores - reference).var(axis=0)  # each once
    rank = ranks(scores, right)[rows]
    expected = {
        "logit_rmse": np.sqrt(np.mean(difference**2)),
        "centred_rmse": np.sqrt(max(np.mean(centred**2), of_videos.mean())),
        "bias": difference.mean(),
        "max_abs": np.abs(difference).max(),
        "spread": reference[rows].std(axis=1).mean(),
        "video_spread": reference.std(axis=0).mean(),
        "r1_text_to_video": np.mean(rank <= 1),
        "r5_text_to_video": np.mean(rank <= 5),
        "median_rank_text_to_video": np.median(rank),
        "mean_rank_text_to_video": np.mean(rank),
        "map_text_to_video": np.mean(1 / rank),
        "map_r_text_to_video": np.mean(rank <= 1),
        "ndcg10_text_to_video": np.mean(np.where(rank <= 10, 1 / np.log2(1 + rank), 0)),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx([value]), name


def test_losses_are_paired():
    best, own, right, reference, _ = noisy_rows()
    # The same scores twice lose nothing in any resample, however wide their own intervals are.
    same = retrieved(reference, pairs(reference, right))
    mine, equal = uncertainties(
        [partial(metrics, own), partial(metrics, same)],
        partial(metrics, best),
        np.arange(60) % 40,
        40,
        seed=0,
    )
    assert equal.losses["r1_text_to_video"].value == 0
    assert (equal.losses["r1_loss"].low, equal.losses["r1_loss"].high) == (0, 0)
    assert equal.intervals["r1_text_to_video"].low < equal.intervals["r1_text_to_video"].high
    loss = mine.losses["r1_text_to_video"]
    assert loss.value == once(best)["r1_text_to_video"] - once(own)["r1_text_to_video"]
    assert loss.low <= loss.value <= loss.high
    # Paired, the loss is known better than either of the two shares.
    own_width = mine.intervals["r1_text_to_video"]
    assert loss.high - loss.low < own_width.high - own_width.low


def test_a_recall_of_all_queries_or_of_none_has_an_interval():
    """Of 60 texts of 40 videos, two are no queries; no video's is first, and one is no query."""
    text, video = np.ones(60), np.full(40, 2.0)
    text[[0, 40]] = np.nan  # both texts of video 0
    video[0] = np.nan
    queries = Queries({"rank": text}, {"rank": video})
    row, right = partial(metrics, queries), np.arange(60) % 40
    exact, plain = (
        uncertainties([row], row, right, 40, seed=0, queries=of)[0] for of in ([queries], [])
    )
    for name, expected in (
        ("r1_text_to_video", counted_share(39, 39)),
        ("r1_video_to_text", counted_share(0, 39)),
        ("r5_video_to_text", counted_share(39, 39)),
    ):
        assert exact.intervals[name] == expected.interval
        assert plain.intervals[name].low == plain.intervals[name].high == expected.value
    assert exact.losses == plain.losses
    ranks = "mean_rank_text_to_video", "median_rank_video_to_text"
    assert [exact.intervals[name] for name in ranks] == [plain.intervals[name] for name in ranks]


def test_the_loss_of_both_ways_has_the_interval_of_the_worse():
    best, own, *_ = noisy_rows()
    (found,) = uncertainties(
        [partial(metrics, own)], partial(metrics, best), np.arange(60) % 40, 40, seed=0
    )
    ways = [found.losses[f"r1_{way}"] for way in WAYS]
    assert found.losses["r1_loss"] == max(ways, key=lambda one: one.value)


@pytest.mark.thorough("many draws")
def test_a_loss_by_chance_is_seldom_called_real():
    """Two rankings of the same quality, whose hits differ at random in either direction."""
    rng = np.random.default_rng(0)
    real = 0
    for seed in range(100):
        ranked = [[np.where(rng.random(80) < 0.5, 1.0, 9.0) for _ in range(2)] for _ in range(2)]
        best, own = (Queries({"rank": text}, {"rank": video}) for text, video in ranked)
        (found,) = uncertainties(
            [partial(metrics, own)], partial(metrics, best), np.arange(80), 80, seed
        )
        real += found.losses["r1_loss"].low > 0
    assert real <= 12  # 5% expected: two directions, each below its interval in 2.5%


def test_a_worse_rank_is_a_loss():
    best = Queries({"rank": np.array([1.0, 1.0, 1.0])}, {"rank": np.array([1.0, 1.0, 1.0])})
    worse = Queries({"rank": np.array([4.0, 4.0, 4.0])}, {"rank": np.array([1.0, 1.0, 1.0])})
    (found,) = uncertainties(
        [partial(metrics, worse)], partial(metrics, best), np.arange(3), 3, seed=0
    )
    assert found.losses["median_rank_text_to_video"].value == 3
    assert found.losses["r1_loss"].is_real
    assert not found.losses["r1_video_to_text"].is_real


def test_the_same_seed_gives_the_same_intervals():
    best, own, *_ = noisy_rows()
    row, reference = partial(metrics, own), partial(metrics, best)
    one, other, third = (
        uncertainties([row], reference, np.arange(60) % 40, 40, seed=seed)[0].intervals
        for seed in (3, 3, 4)
    )
    assert one == other
    assert one != third


def test_chosen_queries_keep_their_ranks_in_the_whole_gallery():
    best, own, *_ = noisy_rows()
    odd = Selection(np.arange(1, 60, 2), np.arange(1, 40, 2))
    even = Selection(np.arange(0, 60, 2), np.arange(0, 40, 2))
    parts = [limit_metrics(once(own.of(one)), once(best.of(one))) for one in (odd, even)]
    whole = limit_metrics(once(own), once(best))
    for name, value in whole.items():
        assert value <= max(part[name] for part in parts) + 1e-12, name
    np.testing.assert_array_equal(own.of(odd).text["rank"], own.text["rank"][1::2])


def test_nothing_measured_has_no_metrics():
    assert once(Queries()) == {}


def test_metrics_of_classes_lead_where_classes_are_known():
    first, *_, last = led(by_class=True)
    assert (first.name, last.name) == ("map", "calibration_error")
    assert led(by_class=False)[0].name == "r1"
    assert sorted(one.name for one in led(True)) == sorted(one.name for one in led(False))
