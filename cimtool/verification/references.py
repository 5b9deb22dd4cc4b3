"""Reference scores: the exact score, and Monte Carlo with its scatter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import name_of
from cimtool.base.named import unknown
from cimtool.base.progress import Say, silent
from cimtool.ir.arithmetic import Store
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import ModelCard
from cimtool.reference.exact import exact
from cimtool.reference.metrics import ReferenceScores, centred_rmse, on_grid
from cimtool.reference.montecarlo import DEFAULT_SAMPLES, check_samples, monte_carlo
from cimtool.reference.statistics import Gaussians
from cimtool.simulation.simulator import Features, Simulator

ReferenceKind = Literal["exact", "mc"]
KINDS: tuple[str, ...] = get_args(ReferenceKind)

EXACT = "exact"

FLOOR_SEEDS = 5
FLOOR_ITEMS = 256
"""Seeds whose scatter is measured, and the texts and videos that it is measured on."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The distance of Monte Carlo from the exact score, over several seeds, on fewer pairs.

    `rmse`, `centred_rmse` and `top1_agreement` are means over `seeds` seeds, `*_spread` standard
    deviations. `centred_rmse` is without the mean difference within each query.
    """

    seeds: int
    texts: int
    videos: int
    rmse: float
    rmse_spread: float
    centred_rmse: float
    centred_rmse_spread: float
    top1_agreement: float


@dataclass(frozen=True)
class Scatter:
    """Monte Carlo's own: `standard_error` is the root mean square over pairs, by formula.

    One sample has none: NaN.
    `centred_error` is without the mean error within each query, in the worse direction. It, `rmse`
    and `top1_agreement` are against the exact score on all pairs, with a `floor` over seeds. Where
    the exact score was not asked for these are None, and `centred_error` is the standard deviation
    over the floor's seeds, on its pairs.
    """

    samples: int
    standard_error: float
    centred_error: float
    rmse: float | None = None
    top1_agreement: float | None = None
    floor: Floor | None = None

    @property
    def is_exact(self) -> bool:
        """True if the errors are from the exact score."""
        return self.rmse is not None

    @property
    def whole_error(self) -> float:
        """Its RMSE from the exact score; where that is not known, its standard error."""
        return self.standard_error if self.rmse is None else self.rmse


@dataclass(frozen=True, eq=False)
class TeacherScores:
    """The references' scores [n, m]; `exact` is None if it was not asked for."""

    exact: FloatArray | None
    monte_carlo: FloatArray
    scatter: Scatter


@dataclass(eq=False)
class References:
    """Reference scores, kept for the next bundle of the same trained model.

    Raises CimError for a kind that is none, samples or a seed out of range, also where a and b turn
    out not to be known. If Monte Carlo is the reference, one sample is too few.
    """

    kind: ReferenceKind = "exact"
    samples: int = DEFAULT_SAMPLES
    seed: int = 0
    _key: tuple[Any, ...] = field(default=(), init=False)
    _known: TeacherScores | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("reference", self.kind, KINDS)
        check_samples(self.samples)
        if self.kind == "mc" and self.samples == 1:
            raise ArgumentError(
                "{samples} is 1; expected at least 2 with {reference} mc, for a standard error"
            )
        if not 0 <= self.seed < 2**63:
            raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", self.seed)

    @property
    def monte_carlo_name(self) -> str:
        """Monte Carlo's name in the table."""
        return f"Monte Carlo (K={self.samples})"

    @property
    def name(self) -> str:
        """The reference's name in the table, where a and b are known."""
        return EXACT if self.kind == "exact" else self.monte_carlo_name

    def of(
        self,
        text: Gaussians,
        video: Gaussians,
        model: ModelCard,
        say: Say,
        leave_one_out: bool = False,
    ) -> TeacherScores | None:
        """The references' scores; None if a or b is not known.

        Scores are logits, or probabilities for a head that predicts those. With `leave_one_out` an
        item is no candidate for its own best, in agreements.
        """
        if model.a is None or model.b is None:
            return None
        settings = (model.a, model.b, model.head.predicts_logit, leave_one_out)
        key: tuple[Any, ...] = (*settings, text.mu, text.s, video.mu, video.s)
        if self._known is None or not all(
            np.array_equal(one, other) for one, other in zip(self._key, key, strict=True)
        ):
            self._known, self._key = self._compute(text, video, *settings, say), key
        return self._known

    def _compute(
        self,
        text: Gaussians,
        video: Gaussians,
        a: float,
        b: float,
        fit_logit: bool,
        leave_one_out: bool,
        say: Say,
    ) -> TeacherScores:
        def sample(items: int | None, seed: int, say: Say = silent) -> tuple[FloatArray, Array]:
            """Scores of the first `items` of both modalities, and their standard errors."""
            found = monte_carlo(text[:items], video[:items], a, b, self.samples, seed, say)
            if fit_logit:
                return found.logit, found.standard_error_of_logit
            p = np.exp(found.log_p)
            # The delta method, back from the logit.
            return p, found.standard_error_of_logit * p * np.exp(found.log_1mp)

        pairs = f"{len(text)} x {len(video)} pairs"
        say(f"{self.monte_carlo_name}: {pairs}")
        sampled, error = sample(None, self.seed, say)
        standard_error = float(np.sqrt(np.mean(error * error)))
        sampled = on_grid(sampled)
        del error  # as large as the scores
        seeds = range(self.seed + 1, self.seed + FLOOR_SEEDS)  # the first one's are sampled
        few = [sampled[:FLOOR_ITEMS, :FLOOR_ITEMS]]
        few += [sample(FLOOR_ITEMS, seed)[0] for seed in seeds]
        if self.kind == "mc":
            scatter = Scatter(self.samples, standard_error, _centred_scatter(few))
            return TeacherScores(None, sampled, scatter)
        say(f"{EXACT} score: {pairs}")
        found = exact(text, video, a, b, say)
        scores = on_grid(found.logit if fit_logit else np.exp(found.log_p))
        del found
        floor = _floor(ReferenceScores(scores[:FLOOR_ITEMS, :FLOOR_ITEMS], leave_one_out), few)
        rmse, centred, agreement = _errors(ReferenceScores(scores, leave_one_out), sampled)
        scatter = Scatter(self.samples, standard_error, centred, rmse, agreement, floor)
        return TeacherScores(scores, sampled, scatter)


def _errors(reference: ReferenceScores, scores: FloatArray) -> tuple[float, float, float]:
    """RMSE from the reference, the same centred, and top-1 agreement."""
    rmse = float(np.sqrt(reference.squares(scores).mean()))
    agreement = min(float(one.mean()) for one in reference.same_best(scores))
    return rmse, centred_rmse(scores, reference.scores), agreement


def _floor(reference: ReferenceScores, seeds: list[FloatArray]) -> Floor:
    """The errors of each seed's scores, over all of them."""
    errors = np.array([_errors(reference, one) for one in seeds])
    rmse, centred, agreement = map(float, errors.mean(axis=0))
    spread, centred_spread, _ = map(float, errors.std(axis=0, ddof=1))
    texts, videos = reference.scores.shape
    return Floor(
        seeds=len(seeds),
        texts=texts,
        videos=videos,
        rmse=rmse,
        rmse_spread=spread,
        centred_rmse=centred,
        centred_rmse_spread=centred_spread,
        top1_agreement=agreement,
    )


def _centred_scatter(seeds: list[FloatArray]) -> float:
    """Standard deviation over the seeds' scores, without the mean error within each query."""
    mean = np.mean(seeds, axis=0)
    squares = np.mean([centred_rmse(one, mean) ** 2 for one in seeds])
    return float(np.sqrt(squares * len(seeds) / (len(seeds) - 1)))


@contextmanager
def within_float64(data: Embeddings) -> Iterator[None]:
    """Names the file of rows for which the trained program overflows, in place of warnings."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except CimError as error:
        raise CimError(f"{data.file}: its rows are too large for the model: {error}") from None


def trained_features(trained: Simulator, data: Embeddings) -> dict[str, Features]:
    """Features of both modalities' rows in the trained program, and `s` where one is summed alone.

    Raises CimError, naming the file, where a feature is not finite.
    """
    with within_float64(data):
        found: dict[str, Features] = {m: _encoded(trained, m, getattr(data, m)) for m in MODALITIES}
    for side, features in found.items():
        modality = name_of(side, data.called)
        for name, values in features.items():
            if np.isnan(values).any():
                row = int(np.argmax(np.isnan(values).reshape(len(values), -1).any(axis=1)))
                raise CimError(
                    f"{data.file}: {modality} row {row} has no {name}: a norm or a spread that it "
                    "is divided by is 0, or beyond float64; expected rows such as the model was "
                    "trained on"
                )
            if not np.isfinite(values).all():
                raise CimError(
                    f"{data.file}: {modality} rows are too large: {name} is beyond float64; "
                    "expected rows such as the model was trained on"
                )
    return found


def reference_scores(
    references: References,
    model: ModelCard,
    features: Mapping[str, Features],
    data: Embeddings,
    say: Say,
) -> TeacherScores | None:
    """The references' scores of `trained_features` of `data`.

    None if a or b is not known, or says nothing of the head's items.
    """
    if not model.head.is_sampled or model.a is None or model.b is None:
        return None
    return references.of(*gaussians(features), model, say, data.alone)


def gaussians(features: Mapping[str, Features]) -> tuple[Gaussians, Gaussians]:
    """Means and variances of texts and videos, by the `trained_features` of their rows."""
    text, video = (Gaussians(features[m]["mu"], features[m]["s"]) for m in MODALITIES)
    return text, video


def _encoded(trained: Simulator, modality: str, rows: Array) -> Features:
    """Features in one pass; a head that stores sums of s alone still encodes s on the way."""
    graph = getattr(trained.program, modality)
    names = dict(graph.outputs)
    summed = [name for name, op in graph.operations(Store).items() if op.role == "s_self"]
    if "s" not in names and summed:
        (names["s"],) = summed
    values = trained.values(modality, rows, tuple(names.values()))
    return {name: values[value] for name, value in names.items()}
