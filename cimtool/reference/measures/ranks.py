"""R@K, and the median and the mean rank of the best right item."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.reference.bootstrap import QueryCounts
from cimtool.reference.measures.metric import RankingMetric

RECALLS = (1, 5, 10)
RANK = "rank"
"""The measurement of a query: the rank of its best right item, from 1."""


def recall_at(k: int) -> RankingMetric:
    """The share of queries whose rank is at most k."""

    def within(draws: QueryCounts, rank: FloatArray) -> FloatArray:
        return draws.mean(np.where(np.isnan(rank), np.nan, rank <= k))

    said = f"a right item is among the {k} best, ties against it"
    known = RankingMetric(f"r{k}", f"R@{k}", RANK, said, share=True, value=within)
    return replace(known, essential=k != 5)


OF_BEST = "of the best right item"
MEDIAN_RANK = RankingMetric(
    "median_rank", "median rank", RANK, OF_BEST, lower_is_better=True, essential=False,
    value=QueryCounts.median,
)  # fmt: skip
MEAN_RANK = RankingMetric(
    "mean_rank", "mean rank", RANK, OF_BEST, lower_is_better=True, essential=False
)
RANKS = (*map(recall_at, RECALLS), MEDIAN_RANK, MEAN_RANK)
