"""The loops of weight rounding against what NumPy says, and in blocks of any width."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.passes.rounding import BLOCK, PANEL, rounded_back, unit_triangle


@pytest.mark.parametrize("size", [1, 3, PANEL, PANEL + 5, 3 * PANEL + 2])
def test_the_triangle_makes_the_matrix(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(2 * size, size))
    matrix = rows.T @ rows
    upper = np.triu(unit_triangle(matrix))
    np.testing.assert_array_equal(upper.diagonal(), 1.0)
    below = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(upper, (below / below.diagonal()).T, rtol=1e-9, atol=1e-12)


def plainly(target: np.ndarray, upper: np.ndarray, limit: int) -> np.ndarray:
    found, errors = np.empty_like(target), np.zeros_like(target)
    for k in reversed(range(len(target))):
        wanted = target[k] + upper[k, k + 1 :] @ errors[k + 1 :]
        found[k] = np.clip(np.floor(wanted + 0.5), -limit, limit)
        errors[k] = target[k] - found[k]
    return found


def test_each_row_makes_up_for_those_after_it() -> None:
    rng = np.random.default_rng(0)
    size, columns = 23, 2 * BLOCK + 7
    upper = np.triu(rng.integers(-8, 9, size=(size, size)) / 64.0, 1)
    target = rng.integers(-900, 901, size=(size, columns)) / 256.0
    found = rounded_back(target, upper, 3)
    np.testing.assert_array_equal(found, plainly(target, upper, 3))
    alone = [rounded_back(target[:, [c]], upper, 3)[:, 0] for c in range(columns)]
    np.testing.assert_array_equal(found, np.stack(alone, axis=1))
