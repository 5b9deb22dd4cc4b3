"""Graded judgements, and truth by them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cimtool.reference.judgements import Judgements
from cimtool.reference.measures.cosine_gap import gaps_of, judged_cosine_gaps
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_judged, truth_of

GRADES = arrays(int, st.tuples(st.integers(1, 6), st.integers(2, 6)), elements=st.integers(0, 3))


def judgements(grades: np.ndarray) -> Judgements:
    text, video = np.nonzero(grades)
    order = np.random.default_rng(0).permutation(len(text))
    return Judgements(text[order], video[order], grades[text, video][order])


@given(GRADES)
def test_grades_come_back_both_ways(grades: np.ndarray) -> None:
    (n, m), judged = grades.shape, judgements(grades)
    np.testing.assert_array_equal([*judged.of_each(n, m)], grades)
    np.testing.assert_array_equal([*judged.turned.of_each(m, n)], grades.T)
    truth = truth_judged(judged, n, m)
    np.testing.assert_array_equal(truth.right_pairs(), grades > 0)
    np.testing.assert_array_equal(truth.right_pairs(slice(1, None)), grades[1:] > 0)
    for axis, wrong in zip((1, 0), truth.rivals, strict=True):
        np.testing.assert_array_equal(wrong, (grades == 0).sum(axis=axis))
    for row, best in zip(grades, truth.text_to_video, strict=True):
        assert best >= m if not row.any() else best == row.argmax()
    assert len(set(truth.text_to_video[truth.text_to_video >= m])) == (~grades.any(axis=1)).sum()


@given(st.lists(st.integers(0, 4), min_size=2, max_size=8).map(np.array), st.integers(0, 9))
def test_pairs_that_are_judged_1_are_pairs(right: np.ndarray, seed: int) -> None:
    rng, n = np.random.default_rng(seed), len(right)
    scores = rng.integers(0, 4, size=(n, 6)).astype(float)
    text, video = rng.normal(size=(n, 3)), rng.normal(size=(6, 3))
    pairs = truth_of(right, None, 6)
    judged = truth_judged(Judgements(np.arange(n), right, np.ones(n, int)), n, 6)
    first, second = (retrieved(scores, truth) for truth in (pairs, judged))
    for way in ("text", "video"):
        for name, values in getattr(first, way).items():
            np.testing.assert_array_equal(values, getattr(second, way)[name])
    gaps = [gaps_of(truth, text, video) for truth in (pairs, judged)]
    np.testing.assert_allclose(*gaps, atol=1e-12)


def test_the_cosine_gap_of_items_leaves_themselves_out() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    grades = np.zeros((5, 5), int)
    grades[[0, 0, 1, 2, 2, 2, 2], [1, 2, 0, 0, 1, 3, 4]] = 1
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = unit @ unit.T
    found = judged_cosine_gaps(rows, rows, np.nonzero(grades), True)
    others = [[j for j in range(5) if j != i] for i in range(2)]
    for i in range(2):
        right = [j for j in others[i] if grades[i, j]]
        wrong = [j for j in others[i] if not grades[i, j]]
        assert np.isclose(found[i], cosine[i, right].mean() - cosine[i, wrong].mean())
    assert np.isnan(found[2:]).all()  # all others are right, or none
