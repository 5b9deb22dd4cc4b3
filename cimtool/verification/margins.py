"""Margins of a retrieval metric against the error, and the effect of a larger gallery.

A sample of pairs, compiled against reference, is drawn for the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.reference.measures import RECALLS, WAYS
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth

SIGMAS = 3.0
"""Standard deviations of the error that a lead must exceed to survive it."""

MOST_POINTS = 600
"""Right pairs, and as many wrong ones, that the sample of pairs keeps."""


@dataclass(frozen=True)
class Margin:
    """Shares of queries by how far the right item is from the best wrong one in the reference.

    `sigma` is the standard deviation of the difference of two compiled scores' errors, sqrt(2)
    times their RMSE after removing each query's mean error. Further than SIGMAS of it, an item
    `leads` or `trails` for good; the others are `open`: the error may decide them.
    """

    way: str
    sigma: float
    leads: float
    trails: float
    open: float


def margins(reference: FloatArray, compiled: FloatArray, truth: Truth) -> tuple[Margin, ...]:
    """The margins of texts and of videos in reference scores [n, m].

    A way is left out where no query has both a right item and a wrong one.
    """
    found = []
    error = compiled - reference
    sigmas = (float(np.sqrt(2.0 * error.var(axis=axis).mean())) for axis in (1, 0))
    for way, sigma, lead in zip(WAYS, sigmas, _leads(reference, truth), strict=True):
        if not len(lead):
            continue
        leads, trails = (float(np.mean(one > SIGMAS * sigma)) for one in (lead, -lead))
        found.append(Margin(way, sigma, leads, trails, max(0.0, 1.0 - leads - trails)))
    return tuple(found)


def _leads(scores: FloatArray, truth: Truth) -> tuple[FloatArray, FloatArray]:
    """By how much the best right item is above the best wrong one, of each query that has both."""
    is_right = truth.right_pairs()
    is_wrong = ~(is_right | truth.itself())
    sides = []
    for axis in (1, 0):
        best, wrong = (
            np.where(mask, scores, -np.inf).max(axis=axis) for mask in (is_right, is_wrong)
        )
        known = np.isfinite(best) & np.isfinite(wrong)
        sides.append((best - np.where(known, wrong, 0.0))[known])
    return sides[0], sides[1]


@dataclass(frozen=True)
class RecallCurve:
    """R@K of one stage against the size of the gallery: `recall[i]` in a gallery of `sizes[i]`.

    Expected over all galleries of that size drawn from the one measured on, the right item in it.
    """

    stage: str
    way: str
    k: int
    sizes: tuple[int, ...]
    recall: tuple[float, ...]


def recall_curves(
    stages: Sequence[tuple[str, Queries]], rivals: tuple[IntArray, IntArray]
) -> tuple[RecallCurve, ...]:
    """The curves of stages both ways; `rivals` count the wrong items of each text and video."""
    found = []
    for stage, queries in stages:
        ranked = (queries.text["rank"], queries.video["rank"])
        sides = zip(ranked, rivals, strict=True)
        for way, (rank, others) in zip(WAYS, sides, strict=True):
            known = ~np.isnan(rank)
            sizes = gallery_sizes(int(others[known].min()) + 1)
            cases = np.stack([rank[known], others[known]])
            (first, wrong), counts = np.unique(cases, axis=1, return_counts=True)
            for k in RECALLS:
                values = tuple(recall_in(first, wrong, counts, size, k) for size in sizes)
                found.append(RecallCurve(stage, way, k, sizes, values))
    return tuple(found)


def gallery_sizes(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, ... up to the largest, which is the last."""
    series = [c * 10**e for e in range(len(str(largest))) for c in (1, 2, 5)]
    return (*(size for size in series if size < largest), largest)


def recall_in(rank: Array, others: Array, counts: Array, size: int, k: int) -> float:
    """The expected R@k in a gallery of `size` items: the right one and others drawn at random.

    Of `others` wrong items `rank - 1` stand before the right one; how many of them are drawn is
    hypergeometric. Each such case counts `counts` times.
    """
    before = np.arange(k)[:, None]
    behind = size - 1 - before
    log_shares = _log_choose(rank - 1, before) + _log_choose(others - rank + 1, behind)
    recalls = np.exp(log_shares - _log_choose(others, np.asarray(size - 1))).sum(axis=0)
    return float(np.average(np.minimum(recalls, 1.0), weights=counts))


def _log_choose(n: Array, k: Array) -> FloatArray:
    """The logarithm of the binomial coefficient, minus infinity if it is 0."""
    from scipy.special import gammaln  # scipy.stats, which has the law, takes a second to load

    possible = (k >= 0) & (k <= n)
    taken, left = np.where(possible, k, 0), np.where(possible, n - k, 0)
    logs = gammaln(n + 1.0) - gammaln(taken + 1.0) - gammaln(left + 1.0)
    found: FloatArray = np.where(possible, logs, -np.inf)
    return found


@dataclass(frozen=True)
class PairSample:
    """Scores of a sample of pairs: the reference's, the compiled model's, and which are right."""

    reference: tuple[float, ...]
    compiled: tuple[float, ...]
    right: tuple[bool, ...]


def pair_sample(reference: FloatArray, compiled: FloatArray, truth: Truth, seed: int) -> PairSample:
    """Right pairs and as many wrong ones, drawn evenly from [n, m] scores.

    If an item does not find itself, pairs of two items, right or wrong as they come.
    """
    rng = np.random.default_rng(seed)
    n, m = reference.shape
    rows = np.arange(n) if n <= MOST_POINTS else np.sort(rng.permutation(n)[:MOST_POINTS])
    rows = rows[truth.text_to_video[rows] < m]  # judgements may leave a text without any
    columns = np.concatenate([truth.text_to_video[rows], rng.integers(m, size=len(rows))])
    rows = np.concatenate([rows, rows])
    if truth.leave_one_out:
        columns = (rows + rng.integers(1, m, size=len(rows))) % m
    is_right = truth.right_pairs()[rows, columns]
    return PairSample(
        tuple(map(float, reference[rows, columns])),
        tuple(map(float, compiled[rows, columns])),
        tuple(map(bool, is_right)),
    )
