"""Every metric, by families; one more is a module here, and its place in a list below."""

from __future__ import annotations

from cimtool.reference.measures.cosine_gap import COSINE_GAP
from cimtool.reference.measures.differences import DIFFERENCES as DIFFERENCES
from cimtool.reference.measures.metric import WAYS as WAYS
from cimtool.reference.measures.metric import DifferenceMetric as DifferenceMetric
from cimtool.reference.measures.metric import RankingMetric as RankingMetric
from cimtool.reference.measures.precisions import PRECISIONS
from cimtool.reference.measures.ranks import RANKS

RANKINGS: tuple[RankingMetric, ...] = (*RANKS, *PRECISIONS, COSINE_GAP)
"""The metrics of rankings that every table, limit and budget has, those of pairs first."""
