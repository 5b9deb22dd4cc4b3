"""Normal numbers by counter: the distribution, its tails, and that keys do not correlate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, norm

from cimtool.hardware.noise.gaussian import conversion_keys, normals, row_keys

ROWS, COLUMNS = 400, 5000


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    keys = conversion_keys(row_keys(np.arange(ROWS)[:, None], 5), 0)
    return normals(keys, COLUMNS).astype(np.float64)


def test_moments_are_those_of_a_normal(drawn: np.ndarray) -> None:
    n = drawn.size
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(drawn**power) - moment) < 4 * np.sqrt(spread / n), power


def test_the_distribution_is_normal(drawn: np.ndarray) -> None:
    assert kstest(drawn.ravel()[:500_000], "norm").pvalue > 1e-3


@pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0])
def test_tails_are_as_heavy_on_both_sides(drawn: np.ndarray, beyond: float) -> None:
    expected = norm.sf(beyond) * drawn.size
    for count in (np.sum(drawn > beyond), np.sum(drawn < -beyond)):
        assert abs(count - expected) < 4 * np.sqrt(expected)


def test_neighbours_do_not_correlate(drawn: np.ndarray) -> None:
    bound = 4 / np.sqrt(drawn.size)
    assert abs(np.mean(drawn[:, 1:] * drawn[:, :-1])) < bound
    assert abs(np.mean(drawn[1:] * drawn[:-1])) < bound


def test_conversions_of_one_row_do_not_correlate() -> None:
    keys = row_keys(np.arange(ROWS)[:, None], 5)
    one, other = (normals(conversion_keys(keys, c), COLUMNS) for c in (0, 1))
    assert abs(np.mean(one.astype(np.float64) * other)) < 4 / np.sqrt(one.size)


def test_a_row_has_the_key_of_its_content() -> None:
    x = np.random.default_rng(0).integers(-127, 128, (50, 33))
    keys = row_keys(x, 1)
    np.testing.assert_array_equal(row_keys(x[::-1], 1), keys[::-1])
    np.testing.assert_array_equal(row_keys(x[7:8], 1), keys[7:8])
    assert len(set(keys.tolist())) == 50
    assert not np.isin(row_keys(x, 2), keys).any()
    swapped = x[:, ::-1]
    assert not np.isin(row_keys(swapped, 1), keys).any()


def test_a_known_key_gives_known_numbers() -> None:
    found = normals(np.array([1, 2], np.uint64), 3)
    again = normals(np.array([2], np.uint64), 2)
    np.testing.assert_array_equal(found[1:, :2], again)
    assert found.dtype == np.float32
