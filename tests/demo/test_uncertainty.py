from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cimtool.base.intervals import Change
from cimtool.demo.uncertainty import QueryFigures, best_ranks, spearman

RIGHT = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], bool)


def test_the_rank_is_that_of_the_best_right_item_and_ties_count_against_it() -> None:
    scores = np.array([[3.0, 1, 2, 0], [5, 1, 4, 0], [2, 2, 0, 2]])
    assert best_ranks(scores, RIGHT).tolist() == [1, 2, 3]


def test_spearman_is_scipys() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(5, size=40), rng.normal(size=40)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other)[0])
    assert np.isnan(spearman(one, np.ones(40)))


def figures(low: float, high: float, answers: float = 0.2) -> QueryFigures:
    some = Change(0.3, answers, 0.4)
    return QueryFigures(100, 20, 21.0, 20.0, Change(1.0, low, high), some, some, some)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.5, 2.0), "The compiled model finds more than raw rows"),
        ((-0.5, 2.0), "Raw rows by cosine rank as well as the compiled model"),
        ((-3.0, -0.5), "Raw rows by cosine find more than the compiled model"),
    ],
)
def test_the_verdict_is_that_of_the_interval(ends: tuple[float, float], said: str) -> None:
    verdict, means, _ = figures(*ends).section().blocks
    assert said in str(verdict)
    assert "raw rows 20.0%, compiled model 21.0%" in str(verdict)
    assert "Variance means ambiguity: 20 of 100 queries" in str(means)
    assert "nothing sure" in str(figures(*ends, answers=-0.1).section().blocks[1])
