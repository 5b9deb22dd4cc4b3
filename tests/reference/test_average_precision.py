from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from cimtool.reference.metrics import average_precision, hit_positions


@pytest.mark.parametrize("seed", range(5))
def test_without_ties_it_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, relevant = rng.normal(size=60), rng.random(60) < 0.2
    found = average_precision(hit_positions(scores, relevant))
    assert found == pytest.approx(average_precision_score(relevant, scores), abs=1e-12)


def test_the_best_few_are_divided_by_what_fits_into_them() -> None:
    positions = np.array([1, 3, 60, 70])
    assert average_precision(positions, 50) == pytest.approx((1 + 2 / 3) / 4)
    assert average_precision(positions, 2) == pytest.approx(1 / 2)
    assert average_precision(np.array([3]), 2) == 0


def test_ties_and_nan_count_against_the_right_items() -> None:
    scores = np.array([1.0, 2, 2, 2, np.nan, 0])
    relevant = np.array([True, False, True, True, False, False])
    # NaN first, then the wrong one of three ties, both right ones, and the one below.
    assert hit_positions(scores, relevant).tolist() == [3, 4, 5]


def test_nothing_right_has_no_precision() -> None:
    assert math.isnan(average_precision(hit_positions(np.ones(3), np.zeros(3, bool))))
