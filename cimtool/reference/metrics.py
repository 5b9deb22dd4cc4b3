"""How well a score matrix retrieves, and how far it drifts from another.

Matrices are [n, m], texts down and videos across; the higher the score the better the match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from cimtool.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.errors import CimError

LIMITS = ("logit_rmse", "top1_agreement_loss", "r1_loss", "r5_loss", "r10_loss")


def ranks(scores: Array, right: IntArray) -> IntArray:
    """Return the rank [n], from 1, of column `right[i]` in row i of `scores` [n, m].

    Ties count against the right item, and so does a score that is NaN.
    """
    right_score = scores[np.arange(len(scores)), right]
    below = np.count_nonzero(scores < right_score[:, None], axis=1)
    rank: IntArray = scores.shape[1] - below.astype(np.int64)
    return rank


def best_ranks(scores: Array, right: IntArray) -> IntArray:
    """Return the rank of the best right text of each video that has one, by video.

    `scores` is [n, m] and `right` [n] names each text's video. Only wrong texts stand before the
    best right one: those with a score as high, or NaN.
    """
    right_score = scores[np.arange(len(scores)), right]
    best = np.full(scores.shape[1], -np.inf, scores.dtype)
    np.maximum.at(best, right, right_score)
    not_below = len(scores) - np.count_nonzero(scores < best, axis=0)
    itself = np.bincount(right[~(right_score < best[right])], minlength=len(best))
    has_text = np.bincount(right, minlength=len(best)) > 0
    found: IntArray = (1 + not_below - itself)[has_text].astype(np.int64)
    return found


def recall_at(ranks: IntArray, k: int) -> float:
    """Return the share of queries whose right item is among the `k` best."""
    return float(np.mean(ranks <= k))


@dataclass(frozen=True)
class Recall:
    """Retrieval in one direction: shares of queries, and the median rank of the right item."""

    r1: float
    r5: float
    r10: float
    median_rank: float
    queries: int

    @classmethod
    def of(cls, ranks: IntArray) -> Recall:
        """Summarise the right items' ranks."""
        r1, r5, r10 = (recall_at(ranks, k) for k in (1, 5, 10))
        return cls(r1, r5, r10, float(np.median(ranks)), len(ranks))


@dataclass(frozen=True)
class Retrieval:
    """Retrieval both ways."""

    text_to_video: Recall
    video_to_text: Recall


def retrieval(scores: Array, text_to_video: IntArray) -> Retrieval:
    """Return R@1/5/10 and median ranks of `scores` [n, m]; `text_to_video` [n] is what is right.

    Videos that are right for no text are no queries of the way back.
    """
    return Retrieval(
        Recall.of(ranks(scores, text_to_video)), Recall.of(best_ranks(scores, text_to_video))
    )


def mean_average_precision(
    scores: Array, query_labels: Array, gallery_labels: Array, top: int | None = None
) -> float:
    """Return mAP of `scores` [queries, gallery]: right is what has the query's label.

    Over the whole ranking, or over the `top` best and then divided by min(relevant, top). Ties
    count against the right items. Queries whose label the gallery lacks are left out; raises
    CimError where that leaves none.
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
    queries = counts > 0
    return float(np.mean((precision * hits).sum(axis=1)[queries] / possible[queries]))


def cosine_gap(text: Array, video: Array, text_to_video: IntArray) -> float:
    """Return the mean cosine of right pairs less that of wrong ones.

    `text` is [n, d], `video` [m, d], and `text_to_video` [n] names each text's video. A row of
    zeros has cosine 0 with all. Raises CimError where no pair is wrong.
    """
    if len(video) < 2:
        raise CimError(f"the cosine gap needs wrong pairs; there is {len(video)} video, not 2")
    t, v = _unit_rows(text), _unit_rows(video)
    right = float((t * v[text_to_video]).sum())
    everything = float(t.sum(axis=0) @ v.sum(axis=0))
    return right / len(t) - (everything - right) / (len(t) * (len(v) - 1))


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


def drift(scores: Array, reference: Array) -> Drift:
    """Compare `scores` with `reference`, both [n, m], in float64."""
    scores, reference = scores.astype(np.float64), reference.astype(np.float64)
    difference = scores - reference
    centred = difference - difference.mean(axis=1, keepdims=True)
    return Drift(
        logit_rmse=_rms(difference),
        centred_rmse=_rms(centred),
        bias=float(difference.mean()),
        max_abs=float(np.abs(difference).max()),
        spread=float(reference.std(axis=1).mean()),
        top1_agreement=top1_agreement(scores, reference),
        spearman=spearman(scores, reference),
    )


def _rms(x: FloatArray) -> float:
    return float(np.sqrt(np.mean(x * x)))


def top1_agreement(scores: Array, reference: Array) -> float:
    """Return the share of queries with the same best item in both [n, m], the worse of both ways.

    The best item is the set of all that share the highest score: a tie at the top that the
    reference does not have, or another one, is disagreement.
    """
    return min(same_best(scores, reference, axis) for axis in (0, 1))


def same_best(scores: Array, reference: Array, axis: int) -> float:
    """Return the share of queries, which are rows for axis 1, with the same best item in both."""
    best = scores == scores.max(axis=axis, keepdims=True)
    best_of_reference = reference == reference.max(axis=axis, keepdims=True)
    return float(np.mean((best == best_of_reference).all(axis=axis)))


def spearman(scores: Array, reference: Array) -> float:
    """Return the rank correlation of the rows of two [n, m], mean over rows, ties at mean rank.

    A row that is all ties in either has no order to compare and counts as 0.
    """
    x, y = (_centred_ranks(rows) for rows in (scores, reference))
    covariance = (x * y).sum(axis=1)
    norms = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    return float(np.mean(covariance / np.where(norms > 0, norms, 1.0)))


def _centred_ranks(rows: Array) -> FloatArray:
    centred: FloatArray = rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2
    return centred


def limit_metrics(of: Drift, found: Retrieval, reference: Retrieval) -> dict[str, float]:
    """Return the metrics that a limit can be put on, by their names in LIMITS.

    `found` and `reference` are the retrieval of the scores and of what they are compared with.
    Losses are fractions, the worse of both directions; negative where the scores do better.
    """
    ways = (
        (found.text_to_video, reference.text_to_video),
        (found.video_to_text, reference.video_to_text),
    )
    values = (
        of.logit_rmse,
        1 - of.top1_agreement,
        max(was.r1 - now.r1 for now, was in ways),
        max(was.r5 - now.r5 for now, was in ways),
        max(was.r10 - now.r10 for now, was in ways),
    )
    return dict(zip(LIMITS, values, strict=True))
