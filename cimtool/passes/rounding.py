"""Round the weights of a layer so that its output errs less, as GPTQ does.

Rounding each weight to the nearest integer makes the weights err least. What counts is the output
`x . W` over the rows that the layer sees: with their second moments `H = sum x x^T` it errs by
`tr (T - Q)^T H (T - Q)`, and weights are rounded one after another so that each makes up for what
those before it err (Frantar et al., GPTQ, ICLR 2023; the same as Babai's nearest plane).

Rows are integers, so that H is exact, and what is real is added in a fixed order: the same rows
and weights give the same integers on every machine.
"""

from __future__ import annotations

import math

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.passes.rounding_kernels import rounded_back, unit_triangle

RIDGE = 0.01
"""Share of the mean second moment that is added to each, so that none is 0."""

SHRINKAGE_STEPS = 1024
"""The shrinkage is rounded to so many steps: it must not hang on the last bits of a CPU's sums."""


def least_error_weights(target: FloatArray, rows: IntArray, limit: int, centred: bool) -> IntArray:
    """Whole weights [K, N] within `limit` with which `rows` [n, K] err little, in one pass.

    `target` [K, N] are the real weights in units of the whole ones. With `centred` a mean error
    does not count, as a bias takes it off.
    """
    moments = second_moments(rows, centred)
    energy = moments.diagonal().copy()
    moments *= 1 - shrinkage(rows, centred)
    moments[np.diag_indices_from(moments)] = energy + (RIDGE * math.fsum(energy) / len(energy) or 1)
    # Inputs that count most come last in the order: rounded first, they have least to make up for.
    order = np.argsort(energy, kind="stable")
    upper = unit_triangle(moments[np.ix_(order, order)])
    found = np.empty_like(target)
    found[order] = rounded_back(target[order], upper, limit)
    return found.astype(np.int64)


def second_moments(rows: IntArray, centred: bool) -> FloatArray:
    """`sum x x^T` [K, K] over rows [n, K] of integers, or over their differences from the mean."""
    real = rows.astype(np.float64)
    found: FloatArray = real.T @ real  # whole numbers below 2^53: exact in any order
    if centred:
        sums = rows.sum(axis=0).astype(np.float64)
        found -= np.multiply.outer(sums, sums) / len(rows)
    return found


def shrinkage(rows: IntArray, centred: bool) -> float:
    """The share 0 to 1 by which products of different inputs are taken to be chance.

    Few rows show products that unseen rows do not have. Schaefer and Strimmer (2005), for
    correlations: the sum of their variances over that of their squares.
    """
    n = len(rows)
    x = rows - rows.mean(axis=0) if centred else rows.astype(np.float64)
    size = np.sqrt(np.square(x).mean(axis=0))
    x = x[:, size > 0] / size[size > 0]
    squares = np.square(x.T @ x / n)
    variances = (np.square(x).T @ np.square(x) / n - squares) / max(n - 1, 1)
    for matrix in (squares, variances):
        np.fill_diagonal(matrix, 0)
    total = float(squares.sum())
    share = min(max(float(variances.sum()) / total, 0.0), 1.0) if total else 1.0
    return math.ceil(share * SHRINKAGE_STEPS) / SHRINKAGE_STEPS
