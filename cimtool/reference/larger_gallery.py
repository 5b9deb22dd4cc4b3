"""R@1 of texts in a larger gallery, from the scores of right and wrong pairs in this one.

The wrong items of a larger gallery are taken as further draws of a text's wrong scores. How far a
draw may exceed a text's tail is taken from the tails of many texts together, each in units of the
standard deviation of its wrong scores: one text's tail alone is too short to tell. Only texts whose
wrong scores are alike below the tail, in median and spread, are taken together: cosines of texts
near the common axis, or distances from texts far out, have tails of another shape, and these texts
may be those that are answered rightly.

The largest of all go on as a generalised Pareto distribution (peaks over a threshold: Pickands,
Annals of Statistics 3, 1975), whose shape is that of all texts, by probability-weighted moments
(Hosking and Wallis, Technometrics 29, 1987).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray, blocks
from cimtool.reference.truth import Truth

MOST_ITEMS = 10**12
"""Items of a gallery that is asked about at most."""

PAIRS = 1 << 20
"""Pairs that are looked at at a time, to bound the memory."""

TAIL = 0.02
"""The share of a text's wrong scores that make its tail."""

LEAST = 10
"""Wrong scores in a tail, if a text has more."""

LARGEST, LARGEST_SHARE = 50, 0.1
"""The largest scores of the tails taken together that make their end, at least, and as a share."""

LOW = 0.1
"""The quantile of wrong scores whose distance from their median is their spread below the tail."""

MOST_SHAPE = 0.5
"""The largest shape that is believed, of either sign: moments tell no larger ones."""

ALIKE, MOST_PARTS = 50, 4
"""Texts that are taken together at least, and parts by spread, and by median, at most."""


def chance_of_a_rival(scores: Array, truth: Truth, every: int = 1) -> FloatArray:
    """The chance [n] that a wrong item scores at least as high as a text's best right item.

    Of `scores` [n, m], the wrong ones of one video in `every` make the estimate. NaN for a text
    without right items, or without wrong ones.
    """
    n, m = scores.shape
    shown = np.arange(m) % every == 0
    counts, ahead, beyond, below, middle = np.zeros((5, n))
    in_tail = np.zeros(n, bool)
    tails: list[FloatArray] = []
    tail = max(LEAST, round(TAIL * np.count_nonzero(shown)))
    for rows in blocks(n, max(1, PAIRS // m)):
        right = truth.right_pairs(rows)
        wrong = ~right & ~truth.itself(rows) & shown
        best = np.where(right, scores[rows], -np.inf).max(axis=1)
        counts[rows] = wrong.sum(axis=1)
        ahead[rows] = (wrong & (scores[rows] >= best[:, None])).sum(axis=1)
        rivals = np.sort(np.where(wrong, scores[rows], -np.inf), axis=1)
        spread = _deviation(scores[rows], wrong)
        known = (counts[rows] > tail) & np.isfinite(best) & (spread > 0)
        in_tail[rows] = known
        rivals, unit, wrongs = rivals[known], spread[known, None], counts[rows][known]
        start = rivals[:, [max(m - tail, 1) - 1]]
        tails.append((rivals[:, -tail:] - start) / unit)
        places = rows.start + np.flatnonzero(known)
        beyond[places] = (best[known] - start[:, 0]) / unit[:, 0]
        low, half = (m - wrongs + np.floor(q * (wrongs - 1)) for q in (LOW, 0.5))
        at = np.arange(len(rivals))
        middle[places] = rivals[at, half.astype(int)]
        below[places] = middle[places] - rivals[at, low.astype(int)]
    with np.errstate(invalid="ignore"):
        found: FloatArray = np.where(counts > 0, ahead / np.maximum(counts, 1), np.nan)
    if in_tail.any():
        of_tail = np.full(n, np.nan)
        of_tail[in_tail] = _exceedances(
            np.concatenate(tails), beyond[in_tail], below[in_tail], middle[in_tail]
        )
        few = in_tail & (ahead <= tail)
        found[few] = tail / counts[few] * of_tail[few]
    none = [~truth.right_pairs(rows).any(axis=1) for rows in blocks(n, max(1, PAIRS // m))]
    found[np.concatenate(none)] = np.nan
    return found


def _exceedances(
    tails: FloatArray, values: FloatArray, spreads: FloatArray, middles: FloatArray
) -> FloatArray:
    """The chance [k] that a number of a text's tail is at least its value.

    From `tails` [k, t] of texts with alike `spreads` and `middles`.
    """
    parts = min(max(int(np.sqrt(len(values) / ALIKE)), 1), MOST_PARTS)
    groups = [
        group
        for some in _split(np.arange(len(values)), spreads, parts)
        for group in _split(some, middles, parts)
    ]
    together = [np.sort(tails[group], axis=None) for group in groups]
    shape = shape_of([_end(one) for one in together])
    found = np.empty(len(values))
    for group, one in zip(groups, together, strict=True):
        found[group] = exceedance(one, values[group], shape)
    return found


def _split(rows: IntArray, values: FloatArray, parts: int) -> list[IntArray]:
    """The rows in parts of equal size, those with the smallest values first."""
    return np.array_split(rows[np.argsort(values[rows], kind="stable")], parts)


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


def _end(tail: FloatArray) -> FloatArray:
    """The largest numbers of a sorted tail, less the least of them."""
    top = min(max(LARGEST, round(LARGEST_SHARE * len(tail))), len(tail))
    found: FloatArray = tail[-top:] - tail[-top]
    return found


def shape_of(ends: Sequence[FloatArray]) -> float:
    """The common shape of generalised Pareto distributions, 0 for exponential ones.

    `ends` are sorted excesses over thresholds, each in any unit. The shape is drawn towards 0 by a
    standard error, by which it may be off.
    """
    known = [one / one.mean() for one in ends if one.any()]
    if not known:
        return 0.0
    excesses = np.sort(np.concatenate(known))
    above = 1 - (np.arange(len(excesses)) + 0.65) / len(excesses)
    mean, weighted = float(excesses.mean()), float((excesses * above).mean())
    shape = 2 - mean / (mean - 2 * weighted)
    error = np.sqrt(4 / 3 / len(excesses))
    return float(np.sign(shape) * min(max(abs(shape) - error, 0.0), MOST_SHAPE))


def exceedance(tail: FloatArray, values: FloatArray, shape: float = 0.0) -> FloatArray:
    """The share of a sorted `tail` that is at least each of `values`; its end has this `shape`."""
    end = _end(tail)
    start, excess = tail[-len(end)], float(end.mean())
    counted = (len(tail) - np.searchsorted(tail, values, "left")) / len(tail)
    if excess <= 0:
        return counted
    over = np.maximum(values - start, 0.0) / excess
    share = np.exp(-over)
    if shape:
        share = np.maximum(1 + shape / (1 - shape) * over, 0.0) ** (-1 / shape)
    found: FloatArray = np.where(values < start, counted, len(end) / len(tail) * share)
    return found


def first_of(chance: FloatArray, items: int) -> FloatArray:
    """The chance [n] that the best right item is first among `items`, all others wrong."""
    found: FloatArray = np.exp((items - 1) * np.log1p(-np.minimum(chance, 1 - 1e-12)))
    return found
