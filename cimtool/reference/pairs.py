"""Measurements of a query's pairs: how sure it is, and what its matching probabilities are worth.

Right and wrong pairs of a query have a weight of half each, so that the prior probability of a
match is 1/2 in every gallery. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, blocks
from cimtool.base.threads import map_rows
from cimtool.reference.measures import RELIABILITY, SURENESS
from cimtool.reference.pair_draw import PairDraw
from cimtool.reference.queries import Queries, both_sides
from cimtool.reference.truth import Truth

PAIRS = 1 << 16
"""Pairs that a thread looks at at a time: they stay in its cache."""

BINS = 15
"""Bins of predicted probability, each with the same weight of pairs."""

SHAPES = {SURENESS: (2,), RELIABILITY: (BINS, 3)}
"""The shapes of measurements of a query that are no single number."""

BINNED = 1 << 17
"""Wrong pairs, evenly chosen, that say where bins end."""


def sureness(scores: Array, truth: Truth) -> Queries:
    """The best score of each query, and the best score of a wrong item.

    Both are NaN for a query without right items, or without wrong ones. If judgements tell that it
    has no right items, it has the second.
    """
    n, m = scores.shape
    best, wrong = np.full((2, m), -np.inf)
    has_right: BoolArray = np.zeros(m, bool)
    has_wrong: BoolArray = np.zeros(m, bool)
    of_text = np.full((n, 2), np.nan)

    def of_queries(best: Array, wrong: Array, has_right: Array, has_wrong: Array) -> FloatArray:
        asked = has_right & has_wrong
        known = has_wrong if truth.knows_unanswered else asked
        return np.where(np.stack([asked, known], axis=1), np.stack([best, wrong], axis=1), np.nan)

    for rows, right, candidate in _blocks(truth, n, m):
        part, others = scores[rows], candidate & ~right
        every = np.where(candidate, part, -np.inf)
        missed = np.where(others, part, -np.inf)
        some = (np.logical_or.reduce(mask, axis=1) for mask in (right, others))
        of_text[rows] = of_queries(every.max(axis=1), missed.max(axis=1), *some)
        np.maximum(best, every.max(axis=0), out=best)
        np.maximum(wrong, missed.max(axis=0), out=wrong)
        np.logical_or(has_right, right.any(axis=0), out=has_right)
        np.logical_or(has_wrong, others.any(axis=0), out=has_wrong)
    of_video = of_queries(best, wrong, has_right, has_wrong)
    return both_sides({SURENESS: (of_text, of_video)})


def probabilities(logits: Array, truth: Truth, drawn: PairDraw | None = None) -> Queries:
    """The losses of matching probabilities, and their reliability, of each text.

    `logits` [n, m] are of the probability that a pair matches. `nll` [n] and `brier` [n] are means
    over right pairs and over wrong ones, half each. The reliability [n, BINS, 3] has the weight of
    the text's pairs in each bin, and that weight times predicted and observed probability. All are
    NaN for a text without right pairs, or without wrong ones. With `drawn` all are estimated from
    these pairs.
    """
    n, m = logits.shape
    inner = bin_ends(logits, truth, drawn)
    nll, brier = np.full((2, n), np.nan)
    bins = np.full((n, BINS, 3), np.nan)

    def measure(rows: slice) -> None:
        part, right = logits[rows], truth.right_pairs(rows)
        weight, asked = _weights(right, ~truth.itself(rows), _stands_for(drawn, rows))
        far = np.exp(-np.abs(part))
        p = np.where(part >= 0, 1.0, far) / (1 + far)
        loss = np.log1p(far) + np.maximum(np.where(right, -part, part), 0)  # -ln p, -ln(1 - p)
        nll[rows] = np.where(asked, (weight * loss).sum(axis=1), np.nan)
        brier[rows] = np.where(asked, (weight * (p - right) ** 2).sum(axis=1), np.nan)
        at = np.searchsorted(inner, part.reshape(-1), "right").reshape(part.shape)
        at += BINS * np.arange(len(part))[:, None]
        sums = [
            np.bincount(at.reshape(-1), values.reshape(-1), BINS * len(part))
            for values in (weight, weight * p, weight * right)
        ]
        found = np.stack(sums, axis=1).reshape(len(part), BINS, 3)
        bins[rows] = np.where(asked[:, None, None], found, np.nan)

    map_rows(measure, n, max(1, PAIRS // m))
    return Queries({"nll": nll, "brier": brier, RELIABILITY: bins})


def bin_ends(logits: Array, truth: Truth, drawn: PairDraw | None = None) -> FloatArray:
    """The logits [BINS - 1] between bins of equal weight, from right pairs and some wrong ones.

    Wrong pairs are evenly chosen, or those `drawn`.
    """
    n, m = logits.shape
    values, weights = [], []
    apart = max(1, n * m // BINNED) if drawn is None else 1
    while math.gcd(apart, m) > 1:  # or they would be of few videos
        apart += 1
    for rows, right, candidate in _blocks(truth, n, m):
        weight, asked = _weights(right, candidate, _stands_for(drawn, rows))
        start = -(rows.start * m) % apart
        some = np.zeros(weight.size, bool)
        some[start::apart] = True
        some = some.reshape(weight.shape) & (weight > 0) & ~right & asked[:, None]
        own = right & asked[:, None]
        values.append(np.concatenate([logits[rows][own], logits[rows][some]]))
        weights.append(np.concatenate([weight[own], apart * weight[some]]))
    value, weight = np.concatenate(values), np.concatenate(weights)
    if not len(value):
        return np.zeros(BINS - 1)
    order = np.argsort(value, kind="stable")
    total = weight[order].cumsum()
    places = np.searchsorted(total, total[-1] * np.arange(1, BINS) / BINS)
    ends: FloatArray = value[order][places]
    return ends


def _blocks(truth: Truth, n: int, m: int) -> Iterator[tuple[slice, BoolArray, BoolArray]]:
    """Blocks of texts with their right pairs, and their candidates: all but an item itself."""
    for rows in blocks(n, max(1, PAIRS // m)):
        yield rows, truth.right_pairs(rows), ~truth.itself(rows)


def _stands_for(drawn: PairDraw | None, rows: slice) -> FloatArray | float:
    """The number of its text's pairs that each pair of some texts stands for: 1 without a draw."""
    return 1.0 if drawn is None else drawn.stands_for[rows]


def _weights(
    right: BoolArray, candidate: BoolArray, stands_for: FloatArray | float
) -> tuple[FloatArray, BoolArray]:
    """The weight of each pair of some texts, and the texts that have right and wrong pairs."""
    masks = right * stands_for, (candidate & ~right) * stands_for
    counts = [mask.sum(axis=1) for mask in masks]
    asked = (counts[0] > 0) & (counts[1] > 0)
    of_right, of_wrong = (
        mask * (0.5 / np.where(count > 0, count, 1.0))[:, None]
        for mask, count in zip(masks, counts, strict=True)
    )
    return of_right + of_wrong, asked
