"""Data on which the accuracy of ways is measured: features, scores of all pairs, what is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.base.intervals import Change
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.measures import RANK
from cimtool.reference.queries import metrics, uncertainties
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features, Simulator

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

    @classmethod
    def of(cls, bundle: Bundle, data: Embeddings) -> ScoredPairs:
        """Encode and score data by a bundle.

        Raises ArgumentError if nothing is right in them, and for a bundle that holds its gallery.
        """
        if bundle.gallery is not None:
            raise ArgumentError(
                "{data} is {}; {} holds its gallery, whose R@1 `cimtool verify` measures",
                data.file,
                bundle.name,
            )
        if not data.truth.ranks:
            raise ArgumentError(
                "{data} is {}, which does not say what is right for a {}; expected pairs or "
                "judgements",
                data.file,
                data.called[0],
            )
        digital = Simulator(bundle.program)
        text, video = (digital.encode(m, getattr(data, m)) for m in ("text", "video"))
        return cls(data, text, video, digital.score(text, video))

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
