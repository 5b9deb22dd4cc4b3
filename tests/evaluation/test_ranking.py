"""What queries find, against loops over every item."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.evaluation.run import check_truth, rank_queries
from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.bootstrap import Samples
from cimtool.reference.queries import ranking_figures

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
    found = rank_queries(SCORES, TEXT, VIDEO, data, leave_one_out=False)
    assert set(found.text) == {"rank", "cosine_gap"}
    for i, row in enumerate(SCORES):
        assert found.text["rank"][i] == rank_of(row, {int(RIGHT[i])})
        others = [cosine(TEXT[i], v) for j, v in enumerate(VIDEO) if j != RIGHT[i]]
        gap = cosine(TEXT[i], VIDEO[RIGHT[i]]) - np.mean(others)
        assert found.text["cosine_gap"][i] == pytest.approx(gap)
    for j in range(9):
        right = set(np.flatnonzero(j == RIGHT).tolist())
        expected = rank_of(SCORES[:, j], right) if right else np.nan
        np.testing.assert_equal(found.video["rank"][j], expected)
    assert np.isnan(found.video["rank"]).any()  # a video without texts is no query


def test_labels_of_pairs_give_precisions_over_the_labelled_videos() -> None:
    labels = LABEL_OF_VIDEO[RIGHT]
    data = embeddings_of({"text": TEXT, "video": VIDEO, "text_to_video": RIGHT, "labels": labels})
    found = rank_queries(SCORES, TEXT, VIDEO, data, leave_one_out=False)
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


def test_labels_that_disagree_give_no_precision() -> None:
    values = {"text": TEXT, "video": VIDEO, "text_to_video": RIGHT, "labels": np.arange(12)}
    found = rank_queries(SCORES, TEXT, VIDEO, embeddings_of(values), leave_one_out=False)
    assert "precision" not in found.text


def test_an_item_does_not_find_itself() -> None:
    scores = RNG.integers(0, 9, size=(70, 70)).astype(np.float64)
    np.fill_diagonal(scores, 99)  # what must not be seen
    labels = np.concatenate([RNG.integers(0, 3, size=69), [7]])  # the last is alone in its class
    mu = RNG.normal(size=(70, 4))
    data = embeddings_of({"rows": mu, "labels": labels})
    found = rank_queries(scores, mu, mu[:, ::-1], data, leave_one_out=True)
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


def test_mean_ranks_and_the_best_fifty_are_figures() -> None:
    labels = np.repeat([0, 1], 6)
    square = SCORES[:, :1] + np.arange(12.0)
    data = embeddings_of({"rows": TEXT, "labels": labels})
    found = rank_queries(square, TEXT, TEXT, data, leave_one_out=True)
    values = ranking_figures(found, Samples.once(12, 12))
    assert values["mean_rank_video_to_text"][0] == found.video["rank"].mean()
    assert values["map50_text_to_video"][0] == found.text["precision50"].mean()


@pytest.mark.parametrize(
    ("values", "alone", "sentence"),
    [
        ({"text": 3, "video": 2}, False, "text_to_video is missing"),
        ({"text": 3, "video": 2}, True, "3 texts and 2 videos; expected as many of both"),
        ({"text": 3, "video": 3}, True, "labels is missing, the class of each item"),
        ({"rows": 3, "labels": None}, True, "no two items share a label"),
    ],
)
def test_data_that_do_not_say_what_is_right(
    values: dict[str, int | None], alone: bool, sentence: str
) -> None:
    arrays = {k: np.arange(3) if n is None else np.ones((n, 2)) for k, n in values.items()}
    with pytest.raises(CimError, match=sentence):
        check_truth(embeddings_of(arrays), alone)
