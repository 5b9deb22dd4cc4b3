"""Second moments are exact, are believed as far as rows go, and their factors make them again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.passes.moments import PANEL, SHRINKAGE_STEPS, SecondMoments, unit_triangle

K = 40


def few_directions(rng: np.random.Generator, count: int) -> np.ndarray:
    """Integer rows in which a few directions hold most of the energy, far from zero."""
    mixing = np.random.default_rng(9).normal(size=(5, K))
    rows = rng.normal(size=(count, 5)) @ mixing * 20 + rng.normal(size=(count, K)) * 4
    return np.rint(rows + 15).astype(np.int64)


def shrinkage(rows: np.ndarray) -> float:
    return SecondMoments.of(rows, True).shrinkage


def test_few_rows_are_believed_less_than_many() -> None:
    rng = np.random.default_rng(1)
    chance, many = (rng.integers(-9, 10, size=(n, K)) for n in (20, 2000))
    assert shrinkage(chance) > 0.7
    shares = [shrinkage(few_directions(rng, n)) for n in (10, 100, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.02
    assert shrinkage(many) > 0.7


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_shrinkage_is_that_of_schaefer_and_strimmer(seed: int, centred: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-30, 31, size=(rng.integers(2, 40), rng.integers(1, 9)))
    rows *= rng.integers(0, 2, size=rows.shape[1])  # some are dead
    x = (rows - rows.mean(axis=0) * centred)[:, rows.any(axis=0)]
    x = x[:, np.square(x).mean(axis=0) > 1e-9]
    x = x / np.sqrt(np.square(x).mean(axis=0))
    above = below = 0.0
    for i in range(x.shape[1]):
        for j in range(x.shape[1]):
            if i != j:
                product = x[:, i] * x[:, j]
                above += product.var() / (len(x) - 1)
                below += product.mean() ** 2
    wanted = min(above / below, 1.0) if below > 1e-12 else 1.0
    found = SecondMoments.of(rows, centred).shrinkage
    assert wanted - 1e-9 <= found <= wanted + 1 / SHRINKAGE_STEPS + 1e-9


def test_second_moments_are_exact() -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(-(2**15), 2**15, size=(64, 5))
    plain, centred = (SecondMoments.of(rows, centred).matrix for centred in (False, True))
    np.testing.assert_array_equal(plain, (rows.T @ rows).astype(np.float64))
    apart = rows - rows.mean(axis=0)
    np.testing.assert_allclose(centred, apart.T @ apart, rtol=1e-12)


def test_factors_make_the_shrunk_moments() -> None:
    moments = SecondMoments.of(few_directions(np.random.default_rng(3), 60), True)
    factors = moments.factors()
    upper = np.triu(factors.upper)
    made = (upper.T * factors.pivots) @ upper
    wanted = moments.matrix[np.ix_(factors.order, factors.order)]
    apart = ~np.eye(K, dtype=bool)
    np.testing.assert_allclose(made[apart], (1 - moments.shrinkage) * wanted[apart], rtol=1e-6)
    assert np.all(made.diagonal() > wanted.diagonal())
    assert np.all(np.diff(wanted.diagonal()) >= 0)


@pytest.mark.parametrize("size", [1, 3, PANEL, PANEL + 5, 3 * PANEL + 2])
def test_the_triangle_makes_the_matrix(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(2 * size, size))
    matrix = rows.T @ rows
    upper, pivots = unit_triangle(matrix)
    upper = np.triu(upper)
    np.testing.assert_array_equal(upper.diagonal(), 1.0)
    below = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(upper, (below / below.diagonal()).T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pivots, np.square(below.diagonal()), rtol=1e-9)
