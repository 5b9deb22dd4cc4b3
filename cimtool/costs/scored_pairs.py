"""Data on which the accuracy of ways is measured: features, scores of all pairs, what is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cimtool.base.arrays import Array
from cimtool.base.intervals import Change
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.measures import RANK
from cimtool.reference.queries import metrics, uncertainties
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features

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

    def r1(self, scores: Array) -> Change | None:
        """R@1 of texts by scores [n, m], with its interval over resampled texts."""
        ranks = retrieved(scores, self.truth).only((RANK,))
        (found,) = uncertainties(
            [partial(metrics, ranks)],
            lambda _: {},
            self.truth.text_to_video,
            self.truth.videos,
            SEED,
            queries=[ranks],
        )
        if R1 not in found.metrics:
            return None
        ends = found.intervals[R1]
        return Change(found.metrics[R1], ends.low, ends.high)
