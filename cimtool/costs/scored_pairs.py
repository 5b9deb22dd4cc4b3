"""Data on which the accuracy of ways is measured: features, scores of all pairs, what is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from cimtool.base.arrays import Array
from cimtool.base.intervals import Change
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import Samples
from cimtool.reference.measures import RANK, WAYS
from cimtool.reference.queries import (
    RANKINGS_BY_KEY,
    Metrics,
    Queries,
    differing,
    independent,
    metrics,
    uncertainties,
    widened,
)
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features
from cimtool.verification.ranked_data import raw_products

R1 = "r1_text_to_video"
"""The name of R@1 of texts in metrics."""

SEED = 0
"""The seed of resamples of queries."""


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Integer features of texts and videos, the digital scores [n, m] of all pairs, the truth."""

    data: Embeddings
    text: Features
    video: Features
    scores: Array

    @property
    def truth(self) -> Truth:
        """The right items."""
        return self.data.truth

    @cached_property
    def _raw_ranks(self) -> Queries | None:
        """Ranks by raw rows in 8 bits; None for rows of two widths."""
        raw = raw_products(self.data)
        return None if raw is None else self._ranks(raw)

    def found(self, scores: Array) -> tuple[Change | None, Change | None]:
        """R@1 of texts by scores [n, m], and what it is above that of raw rows, with intervals.

        Texts are resampled, both rows' alike. The second is None for rows of two widths.
        """
        own, raw = self._ranks(scores), self._raw_ranks
        right, videos = self.truth.text_to_video, self.truth.videos
        of_raw = _nothing if raw is None else partial(metrics, raw)
        (one,) = uncertainties([partial(metrics, own)], of_raw, right, videos, SEED, queries=[own])
        if R1 not in one.metrics:
            return None, None
        ends = one.intervals[R1]
        r1 = Change(one.metrics[R1], ends.low, ends.high)
        if raw is None:
            return r1, None
        metric, way = RANKINGS_BY_KEY[R1], WAYS[0]
        changed = differing(raw, own, metric, right)[way]
        count = independent(own, metric.of, right)[way]
        return r1, widened(one.losses[R1], changed, count).reversed

    def _ranks(self, scores: Array) -> Queries:
        return retrieved(scores, self.truth).only((RANK,))


def _nothing(_: Samples) -> Metrics:
    return {}
