import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.reference import judged_hits as module
from cimtool.reference.judged_hits import judged_hits
from cimtool.reference.metrics import graded_hits
from cimtool.reference.truth import Judgements


def one_by_one(scores, grades, alone):
    """The hits of each text from all of its candidates, sorted."""
    for i, (row, own) in enumerate(zip(scores, grades, strict=True)):
        yield graded_hits(np.delete(row, i), np.delete(own, i)) if alone else graded_hits(row, own)


@given(
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    alone=st.booleans(),
    nan=st.sampled_from([0.0, 0.1]),
    share=st.floats(0.0, 1.0),
    few=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_counted_ranks_are_those_of_a_sort(n, m, alone, nan, share, few, seed):
    rng = np.random.default_rng(seed)
    m = n if alone else m
    scores = rng.integers(-3, 4, size=(n, m)).astype(float)  # with many ties
    scores[rng.uniform(size=scores.shape) < nan] = np.nan
    grades = rng.integers(1, 4, size=(n, m)) * (rng.uniform(size=(n, m)) < share)
    if alone:
        np.fill_diagonal(grades, 0)
    text, video = rng.permutation(np.argwhere(grades)).T
    judged = Judgements(text, video, grades[text, video])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        for side, its, all_grades in (
            (scores, judged, grades),
            (scores.T, judged.turned, grades.T),
        ):
            patch.setattr(module, "RANKED", 3 * side.shape[1])  # so that there are several blocks
            found = list(judged_hits(side, its, alone))
            expected = list(one_by_one(side, all_grades, alone))
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one[0], other[0])
                np.testing.assert_array_equal(one[1], other[1])
