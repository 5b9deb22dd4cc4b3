"""How well a score matrix retrieves, and how far it drifts from another.

Matrices are [n, m], texts down and videos across; the higher the score the better the match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import rankdata

from cimtool.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.errors import CimError


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

    `scores` is [n, m] and `right` [n] names each text's video. Only wrong texts stand before the
    best right one: those with a score as high, or NaN.
    """
    right_score = scores[np.arange(len(scores)), right]
    best = np.full(scores.shape[1], -np.inf, scores.dtype)
    np.maximum.at(best, right, right_score)
    not_below = len(scores) - np.count_nonzero(scores < best, axis=0)
    itself = np.bincount(right[~(right_score < best[right])], minlength=len(best))
    has_text = np.bincount(right, minlength=len(best)) > 0
    return np.where(has_text, 1.0 + not_below - itself, np.nan)


@dataclass(frozen=True)
class Recall:
    """Retrieval in one direction: shares of queries, and the median rank of the right item."""

    r1: float
    r5: float
    r10: float
    median_rank: float
    queries: int


@dataclass(frozen=True)
class Retrieval:
    """Retrieval both ways."""

    text_to_video: Recall
    video_to_text: Recall


def average_precisions(
    scores: Array, query_labels: Array, gallery_labels: Array, top: int | None = None
) -> FloatArray:
    """Return the average precision [queries] of each row of `scores` [queries, gallery].

    Right is what has the query's label; over the whole ranking, or over the `top` best and then
    divided by min(relevant, top). Ties count against the right items. NaN where the gallery lacks a
    query's label; raises CimError where it lacks all of them.
    """
    relevant: BoolArray = query_labels[:, None] == gallery_labels
    counts = relevant.sum(axis=1)
    if not counts.any():
        raise CimError("no label of the queries occurs in the gallery; mAP has nothing to find")
    # Stable sorts, the later one first in weight: by score, and among equals the wrong ones first.
    order = np.lexsort((relevant, -scores), axis=1)
    hits = np.take_along_axis(relevant, order, axis=1)[:, :top]
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    possible = counts if top is None else np.minimum(counts, top)
    found: FloatArray = (precision * hits).sum(axis=1) / np.where(counts > 0, possible, np.nan)
    return found


def mean_average_precision(
    scores: Array, query_labels: Array, gallery_labels: Array, top: int | None = None
) -> float:
    """Return the mean of `average_precisions` over the queries that have one."""
    return float(np.nanmean(average_precisions(scores, query_labels, gallery_labels, top)))


def cosine_gaps(text: Array, video: Array, text_to_video: IntArray) -> FloatArray:
    """Return of each text [n] the cosine with its right video less the mean of those with others.

    `text` is [n, d], `video` [m, d], and `text_to_video` [n] names each text's video. A row of
    zeros has cosine 0 with all. Raises CimError where no pair is wrong.
    """
    if len(video) < 2:
        raise CimError(f"the cosine gap needs wrong pairs; there is {len(video)} video, not 2")
    t, v = _unit_rows(text), _unit_rows(video)
    right = (t * v[text_to_video]).sum(axis=1)
    gaps: FloatArray = right - (t @ v.sum(axis=0) - right) / (len(v) - 1)
    return gaps


def _unit_rows(rows: Array) -> FloatArray:
    rows = rows.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(norms > 0, norms, 1.0)
    return unit


@dataclass(frozen=True)
class Drift:
    """How far scores are from a reference. Queries are texts unless said otherwise."""

    logit_rmse: float
    centred_rmse: float  # after removing each query's mean difference, which ranks nothing
    bias: float  # mean of score less reference
    max_abs: float
    spread: float  # mean over queries of the reference's standard deviation within a query
    top1_agreement: float  # the worse of both directions
    spearman: float  # mean over queries

    @property
    def relative_rmse(self) -> float:
        """`logit_rmse` in units of the reference's spread; infinite where it has none."""
        return _ratio(self.logit_rmse, self.spread)

    @property
    def relative_centred_rmse(self) -> float:
        """`centred_rmse` in units of the reference's spread; infinite where it has none."""
        return _ratio(self.centred_rmse, self.spread)


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return math.inf if part > 0 else 0.0


class Against:
    """A reference [n, m] made ready: what others are compared with, query by query."""

    def __init__(self, scores: Array):
        self.scores = scores.astype(np.float64)

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviation within each text's scores, [n]."""
        found: FloatArray = self.scores.std(axis=1)
        return found

    @cached_property
    def _best(self) -> tuple[BoolArray, BoolArray]:
        return _best(self.scores, 1), _best(self.scores, 0)

    @cached_property
    def _ranks(self) -> FloatArray:
        return _centred_ranks(self.scores)

    def squares(self, scores: Array) -> FloatArray:
        """Mean squared difference of each text's scores, [n]."""
        difference = scores - self.scores
        found: FloatArray = np.einsum("nm,nm->n", difference, difference) / scores.shape[1]
        return found

    def same_best(self, scores: Array) -> tuple[FloatArray, FloatArray]:
        """1 for each text [n] and each video [m] with the same best item, 0 for the others.

        The best item is the set of all that share the highest score: a tie at the top that the
        reference does not have, or another one, is disagreement.
        """
        of_text, of_video = self._best
        texts = (_best(scores, 1) == of_text).all(axis=1)
        videos = (_best(scores, 0) == of_video).all(axis=0)
        return texts.astype(np.float64), videos.astype(np.float64)

    def spearman(self, scores: Array) -> FloatArray:
        """Rank correlation of each text's scores, [n], ties at mean rank.

        A row that is all ties in either has no order to compare and counts as 0.
        """
        x, y = _centred_ranks(scores), self._ranks
        covariance = np.einsum("nm,nm->n", x, y)
        norms = np.sqrt(np.einsum("nm,nm->n", x, x) * np.einsum("nm,nm->n", y, y))
        found: FloatArray = covariance / np.where(norms > 0, norms, 1.0)
        return found


def _best(scores: Array, axis: int) -> BoolArray:
    best: BoolArray = scores == scores.max(axis=axis, keepdims=True)
    return best


def _centred_ranks(rows: Array) -> FloatArray:
    centred: FloatArray = rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2
    return centred


def top1_agreement(scores: Array, reference: Array) -> float:
    """Return the share of queries with the same best item in both [n, m], the worse of both ways.

    As `Against.same_best` counts it.
    """
    return min(float(one.mean()) for one in Against(reference).same_best(scores))
