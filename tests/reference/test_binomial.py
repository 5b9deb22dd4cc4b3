"""The interval of a counted share, by published values and coverage; the test of two shares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from cimtool.reference.binomial import chance_of_split, counted_share


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (19, 20, 0.7513, 0.9987), (1, 1, 0.025, 1.0)],
)
def test_the_interval_is_clopper_and_pearsons(count: int, of: int, low: float, high: float) -> None:
    found = counted_share(count, of)
    assert found.value == count / of
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_covers_every_share_as_often_as_it_says() -> None:
    of = 20
    ends = np.array([(one.low, one.high) for one in (counted_share(k, of) for k in range(of + 1))])
    for share in np.linspace(0.01, 0.99, 25):
        covers = (ends[:, 0] <= share) & (share <= ends[:, 1])
        assert binom.pmf(np.arange(of + 1), of, share)[covers].sum() >= 0.95


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (2, 9), (9, 2), (6, 6), (40, 15)])
def test_the_chance_of_a_split_is_the_exact_two_sided_one(first: int, second: int) -> None:
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert chance_of_split(first, second) == pytest.approx(expected)
