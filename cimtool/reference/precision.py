"""Average precision of one query, from where its right items rank."""

from __future__ import annotations

import math

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray


def hit_positions(scores: Array, relevant: BoolArray) -> IntArray:
    """Return where the `relevant` items of one query's `scores` [m] rank, from 1, best first.

    Of equal scores the wrong items come first, and so do those that are NaN.
    """
    right, wrong = -np.sort(-scores[relevant]), np.sort(scores[~relevant])
    ahead = len(wrong) - np.searchsorted(wrong, right)
    positions: IntArray = ahead + np.arange(1, len(right) + 1)
    return positions


def average_precision(positions: IntArray, top: int | None = None) -> float:
    """Return the average precision of a query whose right items rank at `positions`, best first.

    Of the whole ranking, or of the `top` best and then divided by min(relevant, top). NaN where
    nothing is right.
    """
    if not len(positions):
        return math.nan
    precision = np.arange(1, len(positions) + 1) / positions
    if top is None:
        return float(precision.mean())
    return float(precision[positions <= top].sum() / min(len(positions), top))
