"""Components of calibration rows: nearly a rotation, within the span of what varies most."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from cimtool.base.errors import ArgumentError
from cimtool.passes.components import PrincipalComponents


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(2)
    spread = 2.0 ** -np.arange(12)
    return rng.normal(size=(300, 12)) * spread @ np.linalg.qr(rng.normal(size=(12, 12)))[0]


@pytest.mark.parametrize("dimensions", [1, 5, 11])
def test_a_map_is_orthonormal_but_for_the_rounding_of_its_weights(
    rows: np.ndarray, dimensions: int
) -> None:
    found = PrincipalComponents(rows).of(dimensions, 8)
    assert np.abs(found.weight).max() == 127
    weight = found.weight * found.step
    np.testing.assert_allclose(weight.T @ weight, np.eye(dimensions), atol=0.03)


def test_the_largest_components_hold_most_and_are_spread_evenly(rows: np.ndarray) -> None:
    found = PrincipalComponents(rows).of(4, 12)
    mapped = rows @ (found.weight * found.step)
    held = (mapped**2).sum() / (rows**2).sum()
    best = np.sort(np.linalg.eigvalsh(rows.T @ rows))[::-1]
    assert held == pytest.approx(best[:4].sum() / best.sum(), rel=1e-3)
    variances, own = (mapped**2).mean(axis=0), (rows**2).mean(axis=0)
    assert variances.max() / variances.min() < own.max() / own.min()


def test_integer_rows_are_mapped_exactly(rows: np.ndarray) -> None:
    found = PrincipalComponents(rows).of(6, 8)
    codes = np.random.default_rng(3).integers(-127, 128, (9, 12))
    np.testing.assert_array_equal(found.of(codes), codes @ found.weight)


def test_a_map_is_the_same_whatever_the_threads(rows: np.ndarray) -> None:
    def weight(threads: int) -> np.ndarray:
        with threadpool_limits(threads):
            return PrincipalComponents(np.tile(rows, (1, 20))).of(8, 8).weight

    np.testing.assert_array_equal(weight(1), weight(2))


@pytest.mark.parametrize("dimensions", [0, 4, 12])
def test_no_more_components_than_rows_differ_in(rows: np.ndarray, dimensions: int) -> None:
    with pytest.raises(ArgumentError, match=r"is .*; expected 1 to 3, in which"):
        PrincipalComponents(rows[:3]).of(dimensions, 8)
