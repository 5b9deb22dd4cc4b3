"""Every stage on the same float inputs: the reference, the drift table, the results to compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.arrays import Array, FloatArray
from cimtool.emit.bundle import ModelCard
from cimtool.errors import CimError
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.pipeline import Stage
from cimtool.progress import Say
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians
from cimtool.simulator import Features, Simulator
from cimtool.verification.drift import POLYNOMIAL, Table, truth_of
from cimtool.verification.saturation import Domain, domains

Range = tuple[float, float]


@dataclass(frozen=True)
class Reference:
    """What drift is measured against: its name in the table, its samples and own scatter.

    `standard_error` is the root mean square over pairs of the Monte Carlo score's standard error,
    None where a and b are not known and the float polynomial is the reference.
    """

    name: str
    samples: int
    standard_error: float | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What all stages gave: the rows so far, and the compiled program's own results."""

    reference: Reference
    table: Table
    simulator: Simulator
    features: dict[str, Features]
    scores: FloatArray
    domains: tuple[Domain, ...]
    statistics: tuple[Range, Range]  # of ed and of vd, as the trained program sees them


class ReferenceScores:
    """Monte Carlo scores, kept for the next bundle of the same trained model.

    Raises CimError for fewer than two samples, also where a and b turn out not to be known.
    """

    def __init__(self, samples: int, seed: int):
        if samples < 2:
            raise CimError(f"samples is {samples}; expected at least 2, for a standard error")
        self.samples = samples
        self.seed = seed
        self._key: tuple[object, ...] = ()
        self._found: tuple[FloatArray, float] | None = None

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"Monte Carlo (K={self.samples})"

    def of(
        self, text: Gaussians, video: Gaussians, model: ModelCard, say: Say
    ) -> tuple[FloatArray, float] | None:
        """Return (scores [n, m], RMS of their standard error); None where a or b is not known.

        Scores are logits, or probabilities for a polynomial that predicts those.
        """
        if model.a is None or model.b is None:
            return None
        arrays = (text.mu, text.s, video.mu, video.s)
        settings = (model.a, model.b, model.polynomial.fit_logit)
        if self._found is None or not _same(self._key, (*settings, *arrays)):
            say(f"{self.name}: {len(text)} x {len(video)} pairs")
            self._found = self._sample(text, video, *settings)
            self._key = (*settings, *arrays)
        return self._found

    def _sample(
        self, text: Gaussians, video: Gaussians, a: float, b: float, fit_logit: bool
    ) -> tuple[FloatArray, float]:
        found = monte_carlo(text, video, a, b, self.samples, self.seed)
        scores, error = found.logit, found.standard_error_of_logit
        if not fit_logit:
            scores = np.exp(found.log_p)
            error = error * scores * np.exp(found.log_1mp)  # the delta method, back from the logit
        return scores, float(np.sqrt(np.mean(error * error)))


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b  # type: ignore[arg-type]
        for a, b in zip(one, other, strict=True)
    )


def evaluate(
    stages: tuple[Stage, ...],
    model: ModelCard,
    data: Embeddings,
    reference: ReferenceScores,
    say: Say,
) -> Evaluation:
    """Run every stage, the first being the trained program, and fill the drift table.

    Raises CimError where a stage's scores are not finite.
    """
    trained = Simulator(stages[0].program)
    features = encode(trained, data)
    scores, statistics = _score_with_statistics(trained, features)
    items = [Gaussians(features[m]["mu"], features[m]["s"]) for m in MODALITIES]
    sampled = reference.of(items[0], items[1], model, say)
    truth = truth_of(data.right, data.labels, len(data.video))
    table = Table(truth, None if sampled is None else sampled[0])
    table.add_reference(reference.name)
    _add(table, POLYNOMIAL, scores, stages[0].program, features)
    found: tuple[Domain, ...] = ()
    simulator = trained
    for stage in stages[1:]:
        say(f"{stage.name}: encoding and scoring")
        simulator = Simulator(stage.program)
        features = encode(simulator, data)
        scores = simulator.score(features["text"], features["video"])
        _add(table, stage.name, scores, stage.program, features)
        if stage.name in ("lowered", stages[-1].name):
            say(f"{stage.name}: counting saturated pairs")
            found += domains(simulator, stage.name, features, data.right)
    name = POLYNOMIAL if sampled is None else reference.name
    error = None if sampled is None else sampled[1]
    return Evaluation(
        Reference(name, reference.samples, error),
        table,
        simulator,
        features,
        scores,
        found,
        statistics,
    )


def encode(simulator: Simulator, data: Embeddings) -> dict[str, Features]:
    """Features of both modalities' embeddings."""
    return {
        "text": simulator.encode("text", data.text),
        "video": simulator.encode("video", data.video),
    }


def _score_with_statistics(
    trained: Simulator, features: dict[str, Features]
) -> tuple[FloatArray, tuple[Range, Range]]:
    """Scores [n, m] of the trained program, and the ranges of ed and vd over all pairs."""
    logit = trained.program.score.outputs["logit"]
    parts, ends = [], []
    for _, values in trained.iter_score(features["text"], features["video"], (logit, "ed", "vd")):
        parts.append(values[logit])
        ends.append([(values[k].min(), values[k].max()) for k in ("ed", "vd")])
    (ed_lo, vd_lo), (ed_hi, vd_hi) = np.min(ends, axis=0)[:, 0], np.max(ends, axis=0)[:, 1]
    return np.concatenate(parts), ((float(ed_lo), float(ed_hi)), (float(vd_lo), float(vd_hi)))


def _add(
    table: Table, stage: str, scores: FloatArray, program: Program, features: dict[str, Features]
) -> None:
    if not np.isfinite(scores).all():
        raise CimError(f"stage {stage}: a score is not finite; the model is out of float64's range")
    table.add(stage, scores, *real_means(program, features))


def real_means(program: Program, features: dict[str, Features]) -> tuple[Array, Array]:
    """`mu` of both modalities as real numbers, [n, d] and [m, d]."""
    means = []
    for graph in (program.text, program.video):
        unit = graph.types[graph.outputs["mu"]].scale
        mu = features[graph.name]["mu"]
        means.append(mu if unit is None else mu * unit)
    return means[0], means[1]
