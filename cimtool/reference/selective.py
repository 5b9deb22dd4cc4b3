"""Metrics of selective retrieval in every resample, from how sure queries are; compiled.

`sureness` [n, 2] has each query's best score, and that of its best wrong item. In each resample the
queries are passed through once, from the highest score down.
"""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.compiled import jit_sums
from cimtool.reference.bootstrap import QueryCounts

COVERAGE = 0.8
"""The share of queries that are answered, the surest first, in a metric of selective retrieval."""


def risk_area(draws: QueryCounts, sureness: FloatArray) -> FloatArray:
    """The area under risk against coverage [B] of `sureness` [n, 2]; NaN without a query.

    Queries are answered from the highest best score down. The risk at a coverage is the share of
    the answers so far that are wrong; the area is its mean over all coverages (AURC, Geifman and
    El-Yaniv, NeurIPS 2017). Among equal scores wrong answers come first.
    """
    areas = np.empty(len(draws.counts))
    _risk_areas(draws.counts, *_surest_first(sureness), areas)
    return areas


def selective_recall(draws: QueryCounts, sureness: FloatArray) -> FloatArray:
    """R@1 [B] among the COVERAGE of the queries with the highest best scores."""
    recalls = np.empty(len(draws.counts))
    _selective_recalls(draws.counts, *_surest_first(sureness), recalls)
    return recalls


def _surest_first(sureness: FloatArray) -> tuple[IntArray, BoolArray]:
    """Queries with an answer, surest first, and which of the answers are wrong."""
    best, wrong = sureness.T
    missed = wrong >= best
    order = np.lexsort((~missed, -best))[: np.count_nonzero(~np.isnan(best))]
    return order, missed[order]


@jit_sums
def _risk_areas(counts: FloatArray, order: IntArray, missed: BoolArray, areas: FloatArray) -> None:
    for draw in range(len(counts)):
        seen, lost, area = 0.0, 0.0, 0.0
        for k in range(len(order)):
            count = counts[draw, order[k]]
            seen += count
            lost += count if missed[k] else 0.0
            area += count * lost / max(seen, 1.0)
        areas[draw] = area / seen if seen > 0 else np.nan


@jit_sums
def _selective_recalls(
    counts: FloatArray, order: IntArray, missed: BoolArray, recalls: FloatArray
) -> None:
    for draw in range(len(counts)):
        total = 0.0
        for k in range(len(order)):
            total += counts[draw, order[k]]
        most = np.rint(COVERAGE * total)
        seen, lost = 0.0, 0.0
        for k in range(len(order)):
            count = counts[draw, order[k]]
            lost += min(max(most - seen, 0.0), count) if missed[k] else 0.0
            seen += count
        recalls[draw] = 1.0 - lost / most if most > 0 else np.nan


def answer_area(draws: QueryCounts, sureness: FloatArray) -> FloatArray:
    """The area under the ROC curve [B] of best scores with the right items and without them.

    It is the chance that a query whose answer is in the gallery has a higher best score than
    another query, which has none, or whose right items were taken out if all have one; equal scores
    count half.
    """
    best, wrong = sureness.T
    answered = ~np.isnan(best)
    unanswered = ~answered & ~np.isnan(wrong)
    taken_out = not unanswered.any()
    with_, without = np.flatnonzero(answered), np.flatnonzero(answered if taken_out else unanswered)
    without = without[np.argsort(wrong[without], kind="stable")]
    less, more = (np.searchsorted(wrong[without], best[with_], side) for side in ("left", "right"))
    # A query is not compared with itself, however often it is drawn.
    itself = (best > wrong) + (best == wrong) / 2 if taken_out else np.zeros(len(best))
    areas = np.empty(len(draws.counts))
    _answer_areas(draws.counts, with_, without, less, more, itself[with_], taken_out, areas)
    return areas


@jit_sums
def _answer_areas(
    counts: FloatArray, with_: IntArray, without: IntArray, less: IntArray, more: IntArray,
    itself: FloatArray, taken_out: bool, areas: FloatArray,
) -> None:  # fmt: skip
    """Write the areas; `less` and `more` are the numbers of `without` below each of `with_`."""
    below = np.zeros(len(without) + 1)
    for draw in range(len(counts)):
        for k in range(len(without)):
            below[k + 1] = below[k] + counts[draw, without[k]]
        area, answers, alone = 0.0, 0.0, 0.0
        for k in range(len(with_)):
            count = counts[draw, with_[k]]
            answers += count
            area += count * (0.5 * (below[less[k]] + below[more[k]]) - count * itself[k])
            alone += count * count if taken_out else 0.0
        total = answers * below[-1] - alone
        areas[draw] = area / total if total > 0 else np.nan
