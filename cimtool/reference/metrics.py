"""Retrieval metrics of a score matrix, and its distance from another matrix.

Matrices are [n, m], texts down and videos across; the higher the score the better the match.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.compiled import jit_sums
from cimtool.base.errors import CimError
from cimtool.base.threads import map_rows
from cimtool.reference.truth import Classes, alike

TIE_GRID = 2.0**-30
"""Scores this share of the largest apart count as equal: float64 rounds equal items differently."""

RANKED = 1 << 18
"""Scores that a thread ranks at a time, to bound the memory."""


def on_grid(scores: Array) -> FloatArray:
    """Round scores to multiples of TIE_GRID of the largest, a power of two; integers stay exact.

    Without it, the rounding of a machine's matrix product would decide the ranks of equal items.
    """
    rounded: FloatArray = scores.astype(np.float64)
    settle(rounded)
    return rounded


def settle(scores: FloatArray) -> None:
    """Round scores in place to the grid of `on_grid`."""
    _, exponent = np.frexp(max(scores.max(), -scores.min()))
    step = np.ldexp(TIE_GRID, int(exponent))
    scores /= step
    np.rint(scores, out=scores)
    scores *= step


def ranks(scores: Array, right: IntArray) -> IntArray:
    """Return the rank [n], from 1, of column `right[i]` in row i of `scores` [n, m].

    Ties count against the right item, and so does a score that is NaN.
    """
    right_score = scores[np.arange(len(scores)), right]
    below = np.count_nonzero(scores < right_score[:, None], axis=1)
    rank: IntArray = scores.shape[1] - below.astype(np.int64)
    return rank


def best_ranks(scores: Array, right: IntArray) -> FloatArray:
    """Return the rank [m] of the best right text of each video, NaN for a video that has none.

    `scores` is [n, m] and `right` [n] names each text's video. A wrong text ranks before the best
    right text if its score is at least as high, or NaN.
    """
    right_score = scores[np.arange(len(scores)), right]
    best = np.full(scores.shape[1], -np.inf, scores.dtype)
    np.maximum.at(best, right, right_score)
    not_below = len(scores) - np.count_nonzero(scores < best, axis=0)
    itself = np.bincount(right[~(right_score < best[right])], minlength=len(best))
    has_text = np.bincount(right, minlength=len(best)) > 0
    return np.where(has_text, 1.0 + not_below - itself, np.nan)


def hit_positions(scores: Array, relevant: BoolArray) -> IntArray:
    """Return the ranks of the `relevant` items of one query's `scores` [m], from 1, best first.

    Among equal scores wrong items come first. NaN counts against the right items: as the best score
    of a wrong item, and as the worst of a right one.
    """
    found = scores[relevant]
    right, wrong = -np.sort(-np.where(np.isnan(found), -np.inf, found)), np.sort(scores[~relevant])
    ahead = len(wrong) - np.searchsorted(wrong, right)
    positions: IntArray = ahead + np.arange(1, len(right) + 1)
    return positions


def graded_hits(scores: Array, grades: Array) -> tuple[IntArray, IntArray | None]:
    """Return the ranks of the items with a grade above 0 in one query's `scores`, and their grades.

    As `hit_positions`; among equal scores the lower grades come first. If the grades are booleans,
    None is returned for them.
    """
    right = grades > 0
    positions = hit_positions(scores, right)
    if grades.dtype == bool:
        return positions, None
    order = np.lexsort((grades[right], -scores[right]))
    return positions, grades[right][order]


def average_precision(positions: IntArray, top: int | None = None) -> float:
    """Return the average precision of a query whose right items rank at `positions`, best first.

    Over the whole ranking, or over the `top` best and then divided by min(relevant, top). NaN if
    nothing is right.
    """
    if not len(positions):
        return math.nan
    precision = np.arange(1, len(positions) + 1) / positions
    if top is None:
        return float(precision.mean())
    return float(precision[positions <= top].sum() / min(len(positions), top))


def discounted_gain(positions: IntArray, top: int, grades: IntArray | None = None) -> float:
    """Return the normalised discounted cumulative gain of the `top` best of a query (nDCG).

    Its right items rank at `positions`, best first. Each gains its grade, or 1, over log2 of
    1 + the position (Jarvelin and Kekalainen 2002, as trec_eval does). The best order has 1. NaN if
    nothing is right.
    """
    if not len(positions):
        return math.nan
    discounts = 1 / np.log2(np.arange(2, top + 2))
    gains = np.ones(len(positions)) if grades is None else grades.astype(np.float64)
    shown = positions <= top
    gain = (gains[shown] * discounts[positions[shown].astype(np.int64) - 1]).sum()
    best = -np.sort(-gains)[:top]
    return float(gain / (best * discounts[: len(best)]).sum())


def mean_average_precision(
    scores: Array, query_labels: Classes, gallery_labels: Classes, top: int | None = None
) -> float:
    """Return the mean over queries of the average precision of `scores` [queries, gallery].

    An item is right if it has a class in common with the query. The precision is over the whole
    ranking, or over the `top` best and then divided by min(relevant, top). Ties count against the
    right items. Queries whose label the gallery lacks are left out; CimError if it lacks all.
    """
    found = [
        average_precision(hit_positions(row, alike(label, gallery_labels)), top)
        for row, label in zip(scores, query_labels, strict=True)
    ]
    if np.isnan(found).all():
        raise CimError("no label of the queries occurs in the gallery; mAP has nothing to find")
    return float(np.nanmean(found))


def common_mean(text: Array, video: Array) -> FloatArray:
    """Return the vector [d] that both modalities' means [n, d] and [m, d] share."""
    mean: FloatArray = (text.mean(axis=0) + video.mean(axis=0)) / 2
    return mean


RAW = "raw embeddings"
"""The name of unchanged rows, ranked by their cosine for comparison with the model's scores."""


def cosines(text: Array, video: Array) -> FloatArray:
    """Return the cosine of each row of `text` [n, d] with each of `video` [m, d], [n, m].

    A row of zeros has cosine 0 with all.
    """
    found: FloatArray = unit_rows(text) @ unit_rows(video).T
    return found


RAW_INT8 = "raw rows, int8"
"""The name of rows ranked by the product of their unit rows in 8 bits: what costs no model."""


def int8_products(text: Array, video: Array) -> FloatArray:
    """Products [n, m] of unit rows in 8 bits, each modality with one scale, as exact integers.

    The largest number of a modality becomes 127; others are rounded to the nearest integer, halves
    to the even one.
    """
    t, v = (_int8(rows) for rows in (text, video))
    found: FloatArray = t @ v.T
    return found


def _int8(rows: Array) -> FloatArray:
    unit = unit_rows(rows)
    largest = np.abs(unit).max(initial=0.0)
    scaled: FloatArray = np.rint(unit * (127 / largest if largest > 0 else 0.0))
    return scaled


def unit_rows(rows: Array) -> FloatArray:
    """Rows [n, d] of norm 1; zeros stay zeros."""
    rows = rows.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(norms > 0, norms, 1.0)
    return unit


def spreads(scores: Array) -> tuple[FloatArray, FloatArray]:
    """Standard deviation within each row [n] and each column [m] of scores.

    Exactly 0 if all are equal, without rounding errors.
    """
    text, video = (
        np.where(np.ptp(scores, axis=axis) > 0, scores.std(axis=axis), 0.0) for axis in (1, 0)
    )
    return text, video


def centred_squares(scores: Array, reference: Array) -> tuple[FloatArray, FloatArray]:
    """Variance of the difference of both [n, m] within each row [n] and each column [m].

    The mean difference within a query shifts all its items equally, so it changes no rank.
    """
    difference = np.empty(scores.shape)
    found: list[FloatArray] = []
    for axis in (1, 0):
        np.subtract(scores, reference, out=difference)
        difference -= difference.mean(axis=axis, keepdims=True)
        within = "nm,nm->n" if axis else "nm,nm->m"
        found.append(np.einsum(within, difference, difference) / scores.shape[axis])
    return found[0], found[1]


def centred_rmse(scores: Array, reference: Array) -> float:
    """The part of the RMSE of scores [n, m] that can change a rank, in the worse direction.

    The mean difference within a query is taken out; a query is a row, or a column.
    """
    return max(float(np.sqrt(one.mean())) for one in centred_squares(scores, reference))


class ReferenceScores:
    """A reference [n, m], prepared for comparisons with other scores query by query.

    With `leave_one_out`, row i of both is one item, which is no candidate for its own best item.
    """

    def __init__(self, scores: Array, leave_one_out: bool = False):
        self.scores = scores.astype(np.float64, copy=False)
        self.leave_one_out = leave_one_out

    @cached_property
    def spread(self) -> tuple[FloatArray, FloatArray]:
        """Standard deviation within each text's scores [n] and each video's [m]."""
        return spreads(self.scores)

    @cached_property
    def _best(self) -> tuple[BoolArray, BoolArray]:
        return self._best_of(self.scores, 1), self._best_of(self.scores, 0)

    def _best_of(self, scores: Array, axis: int) -> BoolArray:
        """True for the best items of each query, [n, m]."""
        if not self.leave_one_out:
            best: BoolArray = scores == scores.max(axis=axis, keepdims=True)
            return best
        others = ~np.eye(len(scores), dtype=bool)
        highest = scores.max(axis=axis, keepdims=True, where=others, initial=-np.inf)
        among: BoolArray = (scores == highest) & others
        return among

    @cached_property
    def _ranks(self) -> Array:
        """Centred ranks: halves of integers below 2^24, which float32 holds exactly."""
        found = np.empty(self.scores.shape, np.float32)

        def rank(rows: slice) -> None:
            found[rows] = _centred_ranks(self.scores[rows])

        map_rows(rank, len(found), RANKED // self.scores.shape[1])
        return found

    def squares(self, scores: Array) -> FloatArray:
        """Mean squared difference of each text's scores, [n]."""
        difference = scores - self.scores
        found: FloatArray = np.einsum("nm,nm->n", difference, difference) / scores.shape[1]
        return found

    def centred_squares(self, scores: Array) -> tuple[FloatArray, FloatArray]:
        """`squares` of each text [n] and each video [m] without its mean difference."""
        return centred_squares(scores, self.scores)

    def same_best(self, scores: Array) -> tuple[FloatArray, FloatArray]:
        """1 for each text [n] and each video [m] with the same best item, 0 for the others.

        The best item is the set of all items with the highest score. If the reference does not have
        the same tie at the top, they disagree.
        """
        of_text, of_video = self._best
        texts = (self._best_of(scores, 1) == of_text).all(axis=1)
        videos = (self._best_of(scores, 0) == of_video).all(axis=0)
        return texts.astype(np.float64), videos.astype(np.float64)

    def spearman(self, scores: Array) -> FloatArray:
        """Rank correlation of each text's scores, [n], ties at mean rank.

        If all scores of a row are equal, in either, there is no order to compare: it counts as 0.
        """
        reference = self._ranks

        def correlate(rows: slice) -> FloatArray:
            x, y = _centred_ranks(scores[rows]), reference[rows].astype(np.float64)
            norms = np.sqrt(np.einsum("nm,nm->n", x, x) * np.einsum("nm,nm->n", y, y))
            found: FloatArray = np.einsum("nm,nm->n", x, y) / np.where(norms > 0, norms, 1.0)
            return found

        return np.concatenate(map_rows(correlate, len(scores), RANKED // scores.shape[1]))


def _centred_ranks(rows: Array) -> FloatArray:
    """Ranks of each row [n, m] less their mean, ties at mean rank."""
    centred = np.empty(rows.shape)
    _place_ranks(rows, np.argsort(rows, axis=1), centred)
    return centred


@jit_sums
def _place_ranks(rows: Array, order: IntArray, centred: FloatArray) -> None:
    """Write the centred rank of every value, by the `order` [n, m] that sorts each row."""
    count = rows.shape[1]
    for row in range(len(rows)):
        first = 0
        while first < count:
            after = first + 1
            while after < count and rows[row, order[row, after]] == rows[row, order[row, first]]:
                after += 1
            for place in range(first, after):
                centred[row, order[row, place]] = 0.5 * (first + after - count)
            first = after


def top1_agreement(scores: Array, reference: Array, leave_one_out: bool = False) -> float:
    """Return the share of queries with the same best item in both [n, m], in the worse way.

    As `ReferenceScores.same_best` counts it.
    """
    same = ReferenceScores(reference, leave_one_out).same_best(scores)
    return min(float(one.mean()) for one in same)
