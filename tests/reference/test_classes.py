"""Classes of items: one each, or several."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cimtool.reference import classes as room
from cimtool.reference.classes import (
    alike,
    alike_counts,
    alike_pairs,
    alike_sums,
    any_alike,
    memberships,
)
from cimtool.reference.measures.cosine_gap import class_cosine_gaps
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_among_others, truth_of

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
