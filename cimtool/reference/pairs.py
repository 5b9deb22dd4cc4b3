"""Measurements of a query's pairs: how sure it is, and what its matching probabilities are worth.

Right and wrong pairs of a query have a weight of half each, so that the prior probability of a
match is 1/2 in every gallery. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, blocks
from cimtool.base.compiled import jit_sums
from cimtool.base.threads import map_rows
from cimtool.reference.elementary import exponentials, logarithms_of_one_plus
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
        stands_for = np.broadcast_to(_stands_for(drawn, rows), (rows.stop - rows.start, m))
        masks = truth.right_pairs(rows), ~truth.itself(rows)
        _measure(logits[rows], *masks, stands_for, inner, nll[rows], brier[rows], bins[rows])

    map_rows(measure, n, max(1, PAIRS // m))
    return Queries({"nll": nll, "brier": brier, RELIABILITY: bins})


@jit_sums
def _measure(
    logits: FloatArray, right: BoolArray, candidate: BoolArray, stands_for: FloatArray,
    inner: FloatArray, nll: FloatArray, brier: FloatArray, bins: FloatArray,
) -> None:  # fmt: skip
    """Write the measurements of some texts that have right and wrong pairs.

    `candidate` [n, m] is true for a pair of two items, and `inner` are the ends between bins.
    """
    n, m = logits.shape
    far, loss, room, squares = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    weight, predicted, at = np.empty(m), np.empty(m), np.empty(m, np.int64)
    for text in range(n):
        x, is_right, counts = logits[text], right[text], stands_for[text]
        of_right, of_all = 0.0, 0.0
        for k in range(m):
            of_right += counts[k] if is_right[k] else 0.0
            of_all += counts[k] if is_right[k] | candidate[text, k] else 0.0
        of_wrong = of_all - of_right
        if not (of_right > 0) & (of_wrong > 0):
            continue
        for k in range(m):
            each = 0.5 / of_wrong if candidate[text, k] else 0.0
            weight[k] = counts[k] * (0.5 / of_right if is_right[k] else each)
            far[k], at[k] = -abs(x[k]), 0
        exponentials(far, room)
        for k in range(m):
            loss[k] = far[k]
            predicted[k] = (1.0 if x[k] >= 0 else far[k]) / (1.0 + far[k])
            off = predicted[k] - (1.0 if is_right[k] else 0.0)
            squares[k] = weight[k] * off * off
        logarithms_of_one_plus(loss)  # -ln p or -ln(1 - p), whichever is less
        for end in inner:
            for k in range(m):
                at[k] += 1 if x[k] >= end else 0
        total, square = 0.0, 0.0
        for k in range(m):
            wrong_way = -x[k] if is_right[k] else x[k]
            total += weight[k] * (loss[k] + max(wrong_way, 0.0))
            square += squares[k]
        nll[text], brier[text] = total, square
        bins[text] = 0.0
        for k in range(m):
            bins[text, at[k], 0] += weight[k]
            bins[text, at[k], 1] += weight[k] * predicted[k]
            bins[text, at[k], 2] += weight[k] if is_right[k] else 0.0


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
        stands_for, wrong = _stands_for(drawn, rows), candidate & ~right
        each, asked = _weights(right * stands_for, wrong * stands_for)
        every = np.broadcast_to(stands_for, right.shape)
        own = np.nonzero(right & asked[:, None])
        some = np.divmod(np.arange(-(rows.start * m) % apart, right.size, apart), m)
        kept = wrong[some] & asked[some[0]] & (every[some] > 0)
        some = some[0][kept], some[1][kept]
        for places, side, times in ((own, 0, 1), (some, 1, apart)):
            values.append(logits[rows][places])
            weights.append(times * (each[side][places[0]] * every[places]))
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


def _weights(right: Array, wrong: Array) -> tuple[tuple[FloatArray, FloatArray], BoolArray]:
    """The weight of a pair of each text, a right and a wrong one, and the texts that have both.

    `right` and `wrong` [n, m] count such pairs.
    """
    counts = [one.sum(axis=1) for one in (right, wrong)]
    asked = (counts[0] > 0) & (counts[1] > 0)
    of_right, of_wrong = (0.5 / np.where(count > 0, count, 1.0) for count in counts)
    return (of_right, of_wrong), asked
