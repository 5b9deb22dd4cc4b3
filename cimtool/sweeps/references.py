"""Reference scores of a sweep, against which its points are measured: kept in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.progress import Say
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.reference.metrics import ReferenceScores, on_grid
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import (
    Queries,
    Selection,
    compared,
    limit_metrics,
    once,
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

SAMPLES = DEFAULT_SAMPLES
MONTE_CARLO = f"Monte Carlo (K={SAMPLES})"
KEPT = ("scores", "surrogate", "sampled")


@dataclass(frozen=True, eq=False)
class SweepReferences:
    """Scores [n, m] of the evaluation pairs that no hardware has touched.

    `scores` are the reference's, `name` says which it is; `surrogate` the float score's;
    `sampled` those of Monte Carlo where the teacher is known.
    """

    name: str
    truth: Truth
    scores: FloatArray
    surrogate: FloatArray
    sampled: FloatArray | None

    @cached_property
    def against(self) -> ReferenceScores:
        """The reference made ready for comparisons."""
        return ReferenceScores(self.scores, self.truth.leave_one_out)

    @cached_property
    def own(self) -> Queries:
        """The reference's own retrieval, query by query."""
        return retrieved(self.scores, self.truth)

    def measured(self, scores: Array) -> Queries:
        """Retrieval of scores [n, m] and their differences from the reference, query by query."""
        scores = on_grid(scores)
        found = retrieved(scores, self.truth).merged(compared(scores, self.against))
        found.text["float_squares"] = ReferenceScores(self.surrogate).squares(scores)
        return found

    def metrics(self, queries: Queries, chosen: Selection | None = None) -> dict[str, float]:
        """Drift of measured queries, or of the chosen ones, from the reference, by name.

        Losses are fractions, the worse of both directions; `float_rmse` is the distance from
        the float score, and `r1_*` are recalls themselves, missing where nothing is ranked.
        """
        both = (queries, self.own)
        own, reference = (once(one if chosen is None else one.of(chosen)) for one in both)
        kept = ("float_rmse", "centred_rmse", "bias", "spread")
        recalls = ("r1_text_to_video", "r1_video_to_text")
        return {
            **limit_metrics(own, reference),
            **{name: own[name] for name in (*kept, *recalls) if name in own},
        }

    def baselines(self, surrogate: str) -> dict[str, dict[str, float]]:
        """The same metrics of the float score, called `surrogate`, and of Monte Carlo beside it."""
        scores = {surrogate: self.surrogate}
        if self.sampled is not None:
            scores[MONTE_CARLO] = self.sampled
        return {name: self.metrics(self.measured(one)) for name, one in scores.items()}

    def to_bytes(self) -> bytes:
        """The content of the file that keeps them, the name left out."""
        arrays = {name: value for name in KEPT if (value := getattr(self, name)) is not None}
        content: bytes = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
        return content

    @classmethod
    def from_bytes(cls, name: str, truth: Truth, content: bytes) -> SweepReferences | None:
        """Read what `to_bytes` returned; None where it is something else."""
        try:
            return cls(name, truth, **{"sampled": None, **load(content)})
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
    if known is None or known.exact is None:
        return SweepReferences(model.head.surrogate, data.truth, scores, scores, None)
    return SweepReferences(EXACT, data.truth, known.exact, scores, known.monte_carlo)
