"""R@1 of texts in a larger gallery, from the scores of right and wrong pairs in this one.

The wrong items of a larger gallery are taken as further draws of a text's wrong scores. How far a
draw may exceed a text's tail is taken from the tails of all texts together, each in units of the
standard deviation of its wrong scores: one text's tail alone is too short to tell. Beyond the
largest of all, an exponential tail goes on (peaks over a threshold: Pickands, Annals of Statistics
3, 1975).
"""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, blocks
from cimtool.reference.truth import Truth

MOST_ITEMS = 10**12
"""Items of a gallery that is asked about at most."""

PAIRS = 1 << 20
"""Pairs that are looked at at a time, to bound the memory."""

TAIL = 0.02
"""The share of a text's wrong scores that make its tail."""

LEAST = 10
"""Wrong scores in a tail, if a text has more."""

LARGEST = 50
"""The largest scores of all tails, from which the exponential tail goes on."""


def chance_of_a_rival(scores: Array, truth: Truth, every: int = 1) -> FloatArray:
    """The chance [n] that a wrong item scores at least as high as a text's best right item.

    Of `scores` [n, m], the wrong ones of one video in `every` make the estimate. NaN for a text
    without right items, or without wrong ones.
    """
    n, m = scores.shape
    shown = np.arange(m) % every == 0
    counts, ahead, spread = np.zeros((3, n))
    beyond = np.full(n, np.nan)
    tails: list[FloatArray] = []
    tail = max(LEAST, round(TAIL * np.count_nonzero(shown)))
    for rows in blocks(n, max(1, PAIRS // m)):
        right = truth.right_pairs(rows)
        wrong = ~right & ~truth.itself(rows) & shown
        best = np.where(right, scores[rows], -np.inf).max(axis=1)
        counts[rows] = wrong.sum(axis=1)
        ahead[rows] = (wrong & (scores[rows] >= best[:, None])).sum(axis=1)
        rivals = np.sort(np.where(wrong, scores[rows], -np.inf), axis=1)[:, -tail - 1 :]
        spread[rows] = _deviation(scores[rows], wrong)
        known = (counts[rows] > tail) & np.isfinite(best) & (spread[rows] > 0)
        start, unit = rivals[known, :1], spread[rows][known, None]
        tails.append(((rivals[known, 1:] - start) / unit).ravel())
        beyond[rows.start + np.flatnonzero(known)] = (best[known] - start[:, 0]) / unit[:, 0]
    with np.errstate(invalid="ignore"):
        found: FloatArray = np.where(counts > 0, ahead / np.maximum(counts, 1), np.nan)
    in_tail = ~np.isnan(beyond) & (ahead <= tail)
    if in_tail.any():
        exceeds = exceedance(np.sort(np.concatenate(tails)), beyond[in_tail])
        found[in_tail] = tail / counts[in_tail] * exceeds
    none = [~truth.right_pairs(rows).any(axis=1) for rows in blocks(n, max(1, PAIRS // m))]
    found[np.concatenate(none)] = np.nan
    return found


def best_listed(scores: Array, listed: BoolArray, truth: Truth) -> BoolArray:
    """True for each text [n] whose best right item, by `scores` [n, m], is `listed` [n, m]."""
    n, m = scores.shape
    found = np.zeros(n, bool)
    for rows in blocks(n, max(1, PAIRS // m)):
        best = np.where(truth.right_pairs(rows), scores[rows], -np.inf).argmax(axis=1)
        found[rows] = np.take_along_axis(listed[rows], best[:, None], axis=1)[:, 0]
    return found


def _deviation(scores: Array, wrong: BoolArray) -> FloatArray:
    """The standard deviation [n] of the `wrong` scores of each row, 0 without any."""
    count = np.maximum(np.count_nonzero(wrong, axis=1), 1)
    mean = np.where(wrong, scores, 0.0).sum(axis=1) / count
    squares = np.where(wrong, (scores - mean[:, None]) ** 2, 0.0)
    found: FloatArray = np.sqrt(squares.sum(axis=1) / count)
    return found


def exceedance(tail: FloatArray, values: FloatArray) -> FloatArray:
    """The share of a sorted `tail` that is at least each of `values`, an exponential at its end."""
    top = min(LARGEST, len(tail))
    start = tail[-top]
    excess = float((tail[-top:] - start).mean())
    counted = (len(tail) - np.searchsorted(tail, values, "left")) / len(tail)
    if excess <= 0:
        return counted
    over = np.maximum(values - start, 0.0)
    found: FloatArray = np.where(values < start, counted, top / len(tail) * np.exp(-over / excess))
    return found


def first_of(chance: FloatArray, items: int) -> FloatArray:
    """The chance [n] that the best right item is first among `items`, all others wrong."""
    found: FloatArray = np.exp((items - 1) * np.log1p(-np.minimum(chance, 1 - 1e-12)))
    return found
