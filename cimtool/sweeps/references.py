"""What the points of a sweep are measured against: computed once, kept with the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cimtool.arrays import Array, FloatArray, IntArray
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.progress import Say
from cimtool.reference.metrics import Against
from cimtool.reference.queries import compared, limit_metrics, once, retrieved
from cimtool.reference.statistics import Gaussians
from cimtool.simulator import Simulator
from cimtool.verification.drift import POLYNOMIAL
from cimtool.verification.references import DEFAULT_SAMPLES, EXACT, References

SAMPLES = DEFAULT_SAMPLES
MONTE_CARLO = f"Monte Carlo (K={SAMPLES})"
KEPT = ("scores", "polynomial", "sampled", "right")


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Scores [n, m] of the evaluation pairs that no hardware has touched.

    `scores` are the reference's, `name` says which it is; `polynomial` the float surrogate's;
    `sampled` those of Monte Carlo where the teacher is known; `right` [n] the right videos.
    """

    name: str
    scores: FloatArray
    polynomial: FloatArray
    sampled: FloatArray | None
    right: IntArray

    @cached_property
    def against(self) -> Against:
        """The reference made ready for comparisons."""
        return Against(self.scores)

    @cached_property
    def figures(self) -> dict[str, float]:
        """The reference's own retrieval."""
        return once(retrieved(self.scores, self.right))

    def metrics(self, scores: Array) -> dict[str, float]:
        """Drift of scores [n, m] from the reference, retrieval and its losses, by name.

        Losses are fractions, the worse of both directions; `polynomial_rmse` is the distance from
        the float polynomial, and `r1_*` are recalls themselves.
        """
        scores = scores.astype(np.float64)
        own = once(retrieved(scores, self.right).merged(compared(scores, self.against)))
        kept = ("centred_rmse", "bias", "spread", "r1_text_to_video", "r1_video_to_text")
        difference = scores - self.polynomial
        return {
            **limit_metrics(own, self.figures),
            "polynomial_rmse": float(np.sqrt(np.mean(difference * difference))),
            **{name: own[name] for name in kept},
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """The same metrics of the float polynomial, and of Monte Carlo beside it."""
        found = {POLYNOMIAL: self.metrics(self.polynomial)}
        if self.sampled is not None:
            found[MONTE_CARLO] = self.metrics(self.sampled)
        return found

    def to_bytes(self) -> bytes:
        """The content of the file that keeps them, the name left out."""
        arrays = {name: value for name in KEPT if (value := getattr(self, name)) is not None}
        content: bytes = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
        return content

    @classmethod
    def from_bytes(cls, name: str, content: bytes) -> Yardstick | None:
        """Read what `to_bytes` returned; None where it is something else."""
        try:
            arrays = load(content)
            return cls(name, **{"sampled": None, **{key: arrays[key] for key in arrays}})
        except (SafetensorError, TypeError):
            return None


def reference_name(model: Model) -> str:
    """What the reference of a model is: the polynomial itself where a or b is not known."""
    known = model.a is not None and model.b is not None
    return EXACT if known else POLYNOMIAL


def references(model: Model, data: Embeddings, say: Say) -> Yardstick:
    """Score all pairs of the evaluation rows by the trained model and by the references."""
    pairs = f"{len(data.text)} x {len(data.video)} pairs"
    say(f"the trained model: {pairs}")
    trained = Simulator(model.program)
    features = {m: trained.encode(m, getattr(data, m)) for m in MODALITIES}
    polynomial = trained.score(features["text"], features["video"])
    text, video = (Gaussians(features[m]["mu"], features[m]["s"]) for m in MODALITIES)
    known = References(samples=SAMPLES).of(text, video, model, say)
    if known is None or known.exact is None:
        return Yardstick(POLYNOMIAL, polynomial, polynomial, None, data.right)
    return Yardstick(EXACT, known.exact, polynomial, known.monte_carlo, data.right)
