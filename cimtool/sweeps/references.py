"""Reference scores of a sweep, against which its points are measured: kept in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.progress import Say
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.reference.limits import limit_changes, limit_metrics
from cimtool.reference.metrics import ReferenceScores, common_mean, on_grid
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import (
    RANKINGS_BY_KEY,
    Queries,
    Selection,
    compared,
    metrics,
    once,
    uncertainties,
)
from cimtool.reference.truth import Truth, retrieved
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import (
    EXACT,
    References,
    reference_scores,
    trained_features,
    within_float64,
)
from cimtool.verification.stages import real_means

SAMPLES = DEFAULT_SAMPLES
MONTE_CARLO = f"Monte Carlo (K={SAMPLES})"
KEPT = ("scores", "surrogate", "sampled", "gaps", "mean")
DRIFTS = ("float_rmse", "centred_rmse", "bias", "spread")
"""Metrics of differences that a point has beside those of limits."""


@dataclass(frozen=True, eq=False)
class SweepReferences:
    """Scores [n, m] of the evaluation pairs that no hardware has touched.

    `scores` are the reference's, `name` says which it is; `surrogate` the float score's;
    `sampled` those of Monte Carlo where the teacher is known. `gaps` [n] are the cosine gaps of the
    trained means where any pair is wrong, and `mean` [d] is what these means share.
    """

    name: str
    truth: Truth
    scores: FloatArray
    surrogate: FloatArray
    mean: FloatArray
    sampled: FloatArray | None = None
    gaps: FloatArray | None = None

    @cached_property
    def against(self) -> ReferenceScores:
        """The reference made ready for comparisons."""
        return ReferenceScores(self.scores, self.truth.leave_one_out)

    @cached_property
    def own(self) -> Queries:
        """The reference's own retrieval, query by query."""
        return self._with_gaps(retrieved(self.scores, self.truth), self.gaps)

    def measured(self, scores: Array, text_mu: Array, video_mu: Array) -> Queries:
        """Retrieval of scores [n, m] and means, and the differences from the reference."""
        offset = self.mean - common_mean(text_mu, video_mu)
        gaps = self.truth.cosine_gaps(text_mu + offset, video_mu + offset)
        return self._measured(scores, gaps)

    def _measured(self, scores: Array, gaps: FloatArray | None) -> Queries:
        scores = on_grid(scores)
        found = retrieved(scores, self.truth).merged(compared(scores, self.against))
        found.text["float_squares"] = ReferenceScores(self.surrogate).squares(scores)
        return self._with_gaps(found, gaps)

    @staticmethod
    def _with_gaps(found: Queries, gaps: FloatArray | None) -> Queries:
        return found if gaps is None else found.merged(Queries({"cosine_gap": gaps}))

    def metrics(self, queries: Queries, chosen: Selection | None = None) -> dict[str, float]:
        """Drift of measured queries, or of the chosen ones, from the reference, by name.

        The metrics of LIMITS, `float_rmse` (the distance from the float score) and others of
        DRIFTS, and the metrics of RANKINGS themselves; those of rankings are missing where nothing
        is ranked.
        """
        both = (queries, self.own)
        own, reference = (once(one if chosen is None else one.of(chosen)) for one in both)
        kept = [name for name in (*DRIFTS, *RANKINGS_BY_KEY) if name in own]
        return limit_metrics(own, reference) | {name: own[name] for name in kept}

    def intervals(self, queries: Queries) -> dict[str, tuple[float, float]]:
        """The interval of each of these metrics over resamples of the queries, by name."""
        row, reference = partial(metrics, queries), partial(metrics, self.own)
        truth = self.truth
        (found,) = uncertainties([row], reference, truth.text_to_video, truth.videos, seed=0)
        limits = limit_changes(found.metrics, found.intervals, found.losses)
        kept = {name: found.intervals.get(name) for name in (*DRIFTS, *RANKINGS_BY_KEY)}
        known = {name: one.interval for name, one in limits.items()} | kept
        return {name: (one.low, one.high) for name, one in known.items() if one is not None}

    def baselines(self, surrogate: str) -> dict[str, dict[str, float]]:
        """The same metrics of the float score, called `surrogate`, and of Monte Carlo beside it."""
        scores = {surrogate: self.surrogate}
        if self.sampled is not None:
            scores[MONTE_CARLO] = self.sampled
        return {name: self.metrics(self._measured(one, self.gaps)) for name, one in scores.items()}

    def to_bytes(self) -> bytes:
        """The content of the file that keeps them, the name left out."""
        arrays = {name: value for name in KEPT if (value := getattr(self, name)) is not None}
        content: bytes = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
        return content

    @classmethod
    def from_bytes(cls, name: str, truth: Truth, content: bytes) -> SweepReferences | None:
        """Read what `to_bytes` returned; None where it is something else."""
        try:
            return cls(name, truth, **load(content))
        except (SafetensorError, TypeError):
            return None


def reference_name(model: Model) -> str:
    """The name of a model's reference: its float score where that is not sampled."""
    known = model.head.is_sampled and model.a is not None and model.b is not None
    return EXACT if known else model.head.surrogate


def references(model: Model, data: Embeddings, say: Say) -> SweepReferences:
    """Score all pairs of the evaluation rows by the trained model and by the references."""
    pairs = f"{len(data.text)} x {len(data.video)} pairs"
    say(f"the trained model: {pairs}")
    trained = Simulator(model.program)
    features = trained_features(trained, data)
    with within_float64(data):
        scores = on_grid(trained.score(features["text"], features["video"]))
    known = reference_scores(References(samples=SAMPLES), model, trained, features, data, say)
    means = real_means(model.program, features)
    mean, gaps = common_mean(*means), data.truth.cosine_gaps(*means)
    if known is None or known.exact is None:
        name = model.head.surrogate
        return SweepReferences(name, data.truth, scores, scores, mean, gaps=gaps)
    return SweepReferences(EXACT, data.truth, known.exact, scores, mean, known.monte_carlo, gaps)
