"""Right items of a query; nothing finds itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cimtool.loading.embeddings import embeddings_of
from cimtool.reference import truth as room
from cimtool.reference.measures import class_cosine_gaps, gaps_of, judged_cosine_gaps
from cimtool.reference.metrics import top1_agreement
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import (
    Judgements,
    alike,
    alike_counts,
    alike_pairs,
    alike_sums,
    any_alike,
    memberships,
    truth_among_others,
    truth_judged,
    truth_of,
)

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


SETS = arrays(bool, st.tuples(st.integers(1, 9), st.integers(2, 5)))
NUMBERS = st.lists(st.integers(0, 3), min_size=2, max_size=9).map(np.array)


def one_hot(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] == np.arange(4)


@given(SETS)
def test_items_are_alike_that_have_a_class_in_common(sets: np.ndarray) -> None:
    owned = [set(np.flatnonzero(row)) for row in sets]
    common = np.array([[bool(one & other) for other in owned] for one in owned])
    np.testing.assert_array_equal(alike_pairs(sets, sets), common)
    np.testing.assert_array_equal([alike(own, sets) for own in sets], common)
    others = common & ~np.eye(len(sets), dtype=bool)
    np.testing.assert_array_equal(alike_counts(sets), others.sum(axis=1))
    assert any_alike(sets) == others.any()
    items, numbers = memberships(sets)
    assert {*zip(items, numbers, strict=True)} == {
        (i, c) for i, own in enumerate(owned) for c in own
    }


@given(NUMBERS, st.integers(0, 9))
def test_one_class_each_is_the_same_in_both_forms(numbers: np.ndarray, seed: int) -> None:
    sets, n = one_hot(numbers), len(numbers)
    np.testing.assert_array_equal(alike_pairs(sets, sets), alike_pairs(numbers, numbers))
    np.testing.assert_array_equal(alike_counts(sets), alike_counts(numbers))
    assert any_alike(sets) == any_alike(numbers)
    rng = np.random.default_rng(seed)
    text, video, scores = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.normal(size=(n, n))
    np.testing.assert_allclose(alike_sums(sets, text), alike_sums(numbers, text), atol=1e-12)
    gaps = [class_cosine_gaps(text, video, one) for one in (sets, numbers)]
    np.testing.assert_allclose(*gaps, atol=1e-12)
    right = rng.permutation(n)
    for make in (lambda x: truth_of(right, x, n + 1), lambda x: truth_among_others(n, x)):
        truths = [make(one) for one in (sets, numbers)]
        wide = np.concatenate([scores, scores[:, :1]], axis=1)[:, : truths[0].videos]
        found = [retrieved(wide, one) for one in truths]
        for way in ("text", "video"):
            first, second = (getattr(one, way) for one in found)
            assert first.keys() == second.keys()
            for name, values in first.items():
                np.testing.assert_array_equal(values, second[name])
        for one, other in zip(*(truth.rivals for truth in truths), strict=True):
            np.testing.assert_array_equal(one, other)


def test_all_pairs_of_items_are_never_held_at_once(monkeypatch: object) -> None:
    sets = np.random.default_rng(0).random((50, 4)) < 0.3
    whole = alike_counts(sets), alike_sums(sets, np.ones((50, 2)))
    monkeypatch.setattr(room, "PAIRS", 120)  # type: ignore[attr-defined]
    assert max(len(one) for one in room._alike_blocks(sets)) == 2
    np.testing.assert_array_equal(alike_counts(sets), whole[0])
    np.testing.assert_array_equal(alike_sums(sets, np.ones((50, 2))), whole[1])


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


@pytest.mark.thorough("many draws")
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
            known = ~np.isnan(values)  # judgements also tell the best score without a right item
            np.testing.assert_array_equal(values[known], getattr(second, way)[name][known])
            if name != "sureness":
                assert np.isnan(getattr(second, way)[name][~known]).all()
    best, alone = second.video["sureness"].T
    right_known = np.isin(np.arange(6), right)
    assert np.isnan(best[~right_known]).all()
    np.testing.assert_array_equal(alone[~right_known], scores.max(axis=0)[~right_known])
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
