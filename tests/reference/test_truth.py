"""Right items of a query; nothing finds itself."""

from __future__ import annotations

import numpy as np

from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.metrics import top1_agreement
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_among_others, truth_of

LABELS = np.array([0, 1, 0, 2, 1, 0])


def test_right_pairs_of_texts_and_of_classes() -> None:
    pairs = truth_of(np.array([1, 0, 1]), None, 3)
    assert np.argwhere(pairs.right_pairs()).tolist() == [[0, 1], [1, 0], [2, 1]]
    assert pairs.right_pairs(slice(2, 3)).tolist() == [[False, True, False]]
    assert not pairs.itself().any()
    assert [one.tolist() for one in pairs.rivals] == [[2, 2, 2], [2, 1, 3]]
    others = truth_among_others(6, LABELS)
    same = LABELS[:, None] == LABELS
    np.testing.assert_array_equal(others.right_pairs(), same & ~np.eye(6, dtype=bool))
    np.testing.assert_array_equal(others.itself(), np.eye(6, dtype=bool))
    np.testing.assert_array_equal(others.rivals[0], (~same).sum(axis=1))


def test_the_data_say_which_it_is() -> None:
    rows = np.eye(6)
    assert embeddings_of({"rows": rows, "labels": LABELS}).truth.leave_one_out
    assert not embeddings_of({"rows": rows}).truth.ranks
    assert not embeddings_of({"rows": rows, "labels": np.arange(6)}).truth.ranks
    pairs = embeddings_of({"text": rows, "video": rows, "labels": LABELS}).truth
    assert (pairs.leave_one_out, pairs.ranks, pairs.labels is None) == (False, True, False)


def test_what_an_item_scores_with_itself_counts_for_nothing() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 6))
    truth = truth_among_others(6, LABELS)
    high, low = scores.copy(), scores.copy()
    np.fill_diagonal(high, 99)
    np.fill_diagonal(low, -99)
    for way in ("text", "video"):
        one, other = (getattr(retrieved(matrix, truth), way) for matrix in (high, low))
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    assert top1_agreement(high, low, leave_one_out=True) == 1
    assert top1_agreement(high, low) == 0
    assert retrieved(scores, truth_among_others(6, None)).text == {}
