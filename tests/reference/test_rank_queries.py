"""Queries ranked as a loop ranks them: by pairs, by classes, among other items."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.bootstrap import Samples
from cimtool.reference.queries import metrics
from cimtool.reference.retrieval import RETRIEVED, rank_queries

RNG = np.random.default_rng(3)
SCORES = RNG.integers(0, 6, size=(12, 9)).astype(np.float64)  # with many ties
TEXT, VIDEO = RNG.normal(size=(12, 5)), RNG.normal(size=(9, 5))
RIGHT = RNG.integers(0, 8, size=12)
LABEL_OF_VIDEO = RNG.integers(0, 3, size=9)


def rank_of(scores: np.ndarray, right: set[int]) -> float:
    """The place of the best right item, all wrong ones that score as high before it."""
    best = max(scores[i] for i in right)
    return 1 + sum(score >= best for i, score in enumerate(scores) if i not in right)


def precision_of(scores: np.ndarray, right: set[int], top: int | None = None) -> float:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i in right))
    hits, total = 0, 0.0
    for place, i in enumerate(order[:top], 1):
        if i in right:
            hits += 1
            total += hits / place
    return total / min(len(right), top or len(scores))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_pairs_are_ranked_as_a_loop_ranks_them() -> None:
    data = embeddings_of({"text": TEXT, "video": VIDEO, "text_to_video": RIGHT})
    found = rank_queries(SCORES, TEXT, VIDEO, data.truth)
    assert set(found.text) == {*RETRIEVED, "cosine_gap"}
    for i, row in enumerate(SCORES):
        assert found.text["rank"][i] == rank_of(row, {int(RIGHT[i])})
        others = [cosine(TEXT[i], v) for j, v in enumerate(VIDEO) if j != RIGHT[i]]
        gap = cosine(TEXT[i], VIDEO[RIGHT[i]]) - np.mean(others)
        assert found.text["cosine_gap"][i] == pytest.approx(gap)
    for j in range(9):
        right = set(np.flatnonzero(j == RIGHT).tolist())
        expected = rank_of(SCORES[:, j], right) if right else np.nan
        np.testing.assert_equal(found.video["rank"][j], expected)
        expected = precision_of(SCORES[:, j], right) if right else np.nan
        assert found.video["precision"][j] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(found.video["rank"]).any()  # a video without texts is no query


def test_labels_of_pairs_give_precisions_over_the_labelled_videos() -> None:
    labels = LABEL_OF_VIDEO[RIGHT]
    data = embeddings_of({"text": TEXT, "video": VIDEO, "text_to_video": RIGHT, "labels": labels})
    found = rank_queries(SCORES, TEXT, VIDEO, data.truth)
    known = np.unique(RIGHT)
    for i, row in enumerate(SCORES):
        right = set(np.flatnonzero(LABEL_OF_VIDEO[known] == labels[i]).tolist())
        assert found.text["precision"][i] == pytest.approx(precision_of(row[known], right))
        assert found.text["precision50"][i] == pytest.approx(precision_of(row[known], right, 50))
    for j in range(9):
        right = set(np.flatnonzero(labels == LABEL_OF_VIDEO[j]).tolist())
        expected = precision_of(SCORES[:, j], right) if j in known else np.nan
        assert found.video["precision"][j] == pytest.approx(expected, nan_ok=True)
    # R@K goes by pairs all the same.
    assert found.text["rank"].tolist() == [
        rank_of(row, {int(right)}) for row, right in zip(SCORES, RIGHT, strict=True)
    ]


def test_labels_that_disagree_leave_the_pairs() -> None:
    values = {"text": TEXT, "video": VIDEO, "text_to_video": RIGHT, "labels": np.arange(12)}
    found = rank_queries(SCORES, TEXT, VIDEO, embeddings_of(values).truth)
    del values["labels"]
    pairs = rank_queries(SCORES, TEXT, VIDEO, embeddings_of(values).truth)
    assert found.text["precision"].tolist() == pairs.text["precision"].tolist()


def test_an_item_does_not_find_itself() -> None:
    scores = RNG.integers(0, 9, size=(70, 70)).astype(np.float64)
    np.fill_diagonal(scores, 99)  # what must not be seen
    labels = np.concatenate([RNG.integers(0, 3, size=69), [7]])  # the last is alone in its class
    mu = RNG.normal(size=(70, 4))
    data = embeddings_of({"rows": mu, "labels": labels})
    found = rank_queries(scores, mu, mu[:, ::-1], data.truth)
    for side, matrix in ((found.text, scores), (found.video, scores.T)):
        for i in range(69):
            others = [j for j in range(70) if j != i]
            right = {k for k, j in enumerate(others) if labels[j] == labels[i]}
            row = matrix[i, others]
            assert side["rank"][i] == rank_of(row, right)
            assert side["precision"][i] == pytest.approx(precision_of(row, right))
            assert side["precision50"][i] == pytest.approx(precision_of(row, right, 50))
        assert all(np.isnan(side[name][69]) for name in ("rank", "precision", "precision50"))
    for i in range(69):
        pairs = [(cosine(mu[i], mu[j, ::-1]), labels[j] == labels[i]) for j in range(70) if j != i]
        near = np.mean([value for value, same in pairs if same])
        far = np.mean([value for value, same in pairs if not same])
        assert found.text["cosine_gap"][i] == pytest.approx(near - far)
    assert np.isnan(found.text["cosine_gap"][69])


def test_mean_ranks_and_the_best_fifty_are_metrics() -> None:
    labels = np.repeat([0, 1], 6)
    square = SCORES[:, :1] + np.arange(12.0)
    data = embeddings_of({"rows": TEXT, "labels": labels})
    found = rank_queries(square, TEXT, TEXT, data.truth)
    values = metrics(found, Samples.once(12, 12))
    assert values["mean_rank_video_to_text"][0] == found.video["rank"].mean()
    assert values["map50_text_to_video"][0] == found.text["precision50"].mean()
