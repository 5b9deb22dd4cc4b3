"""Average precision and discounted gain of all right items of a query."""

from __future__ import annotations

from cimtool.reference.measures.metric import RankingMetric
from cimtool.reference.metrics import average_precision, discounted_gain

PRECISIONS = (
    RankingMetric(
        "map", "mAP", "precision", "over the whole ranking", share=True, by_class=True,
        of_hits=lambda hits: average_precision(hits[0]),
    ),
    RankingMetric(
        "map_r", "mAP@R", "precision_r", "over the best R of R right items", share=True,
        by_class=True, essential=False,
        of_hits=lambda hits: average_precision(hits[0], len(hits[0])),
    ),
    RankingMetric(
        "map50", "mAP@50", "precision50", "over the 50 best", share=True, by_class=True,
        essential=False, of_hits=lambda hits: average_precision(hits[0], 50),
    ),
    RankingMetric(
        "ndcg10", "nDCG@10", "ndcg10", "over the 10 best", share=True, by_class=True,
        essential=False, of_hits=lambda hits: discounted_gain(hits[0], 10, hits[1]),
    ),
)  # fmt: skip
