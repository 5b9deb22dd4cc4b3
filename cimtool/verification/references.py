"""Reference scores: the exact score, and Monte Carlo with its scatter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
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
from cimtool.reference.montecarlo import (
    DEFAULT_SAMPLES,
    SampledProbabilities,
    check_samples,
    monte_carlo,
    monte_carlo_of_pairs,
)
from cimtool.reference.pair_draw import PairDraw, draw_pairs
from cimtool.reference.queries import compared_on, once
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features, Simulator

ReferenceKind = Literal["exact", "mc"]
KINDS: tuple[str, ...] = get_args(ReferenceKind)

EXACT = "exact"

FLOOR_SEEDS = 5
FLOOR_ITEMS = 128
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
    over the floor's seeds, on its pairs. `drawn` are the number of pairs by which errors on all
    pairs are estimated, and the number of these; None if all were sampled.
    """

    samples: int
    standard_error: float
    centred_error: float
    rmse: float | None = None
    top1_agreement: float | None = None
    floor: Floor | None = None
    drawn: tuple[int, int] | None = None

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
    """The references' scores [n, m]; `exact` is None if it was not asked for.

    If only `drawn` pairs were sampled, `monte_carlo` has the exact score of the others.
    """

    exact: FloatArray | None
    monte_carlo: FloatArray
    scatter: Scatter
    drawn: PairDraw | None = None


@dataclass(eq=False)
class References:
    """Reference scores, kept for the next bundle of the same trained model.

    Raises CimError for a kind that is none, samples or a seed out of range, also where a and b turn
    out not to be known. If Monte Carlo is the reference, one sample is too few. Beside the exact
    score a head that approximates it has Monte Carlo on a sample of pairs, without `all_pairs`.
    """

    kind: ReferenceKind = "exact"
    samples: int = DEFAULT_SAMPLES
    seed: int = 0
    all_pairs: bool = False
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
        truth: Truth | None = None,
    ) -> TeacherScores | None:
        """The references' scores; None if a or b is not known.

        Scores are logits, or probabilities for a head that predicts those. `truth` has the right
        pairs, which are in every sample of pairs, and tells whether an item is a candidate for its
        own best, in agreements; without it Monte Carlo is on all pairs.
        """
        if model.a is None or model.b is None:
            return None
        alone = truth is not None and truth.leave_one_out
        some = None if self.all_pairs or not model.head.is_surrogate else truth
        settings = (model.a, model.b, model.head.predicts_logit, alone, some is not None)
        key: tuple[Any, ...] = (*settings, text.mu, text.s, video.mu, video.s)
        if self._known is None or not all(
            np.array_equal(one, other) for one, other in zip(self._key, key, strict=True)
        ):
            scoring = _Scoring(text, video, model.a, model.b, model.head.predicts_logit)
            self._known, self._key = self._compute(scoring, alone, some, say), key
        return self._known

    def _compute(
        self, scoring: _Scoring, leave_one_out: bool, truth: Truth | None, say: Say
    ) -> TeacherScores:
        pairs = "{} x {} pairs".format(*scoring.shape)
        if self.kind == "mc":
            say(f"{self.monte_carlo_name}: {pairs}")
            sampled, error = self._sampled(scoring, say)
            scatter = Scatter(self.samples, error, _centred_scatter(self._few(scoring, sampled)))
            return TeacherScores(None, sampled, scatter)
        say(f"{EXACT} score: {pairs}")
        scores = scoring.exact(say)
        reference = ReferenceScores(scores, leave_one_out)
        drawn = None if truth is None else draw_pairs(scores, truth, self.seed)
        if drawn is None:
            say(f"{self.monte_carlo_name}: {pairs}")
            sampled, error = self._sampled(scoring, say)
            rmse, centred, agreement = _errors(reference, sampled)
        else:
            say(f"{self.monte_carlo_name}: {len(drawn):,} of {scores.size:,} pairs")
            rows = drawn.texts, drawn.videos
            values, errors = scoring.sampled_pairs(rows, self.samples, self.seed)
            error = float(np.sqrt(drawn.of_texts.means(errors * errors).mean()))
            sampled = scores.copy()
            sampled[rows] = on_grid(values)
            found = once(compared_on(drawn, sampled, reference))
            names = ("logit_rmse", "centred_rmse", "top1_agreement")
            rmse, centred, agreement = (found[name] for name in names)
        few = ReferenceScores(scores[:FLOOR_ITEMS, :FLOOR_ITEMS], leave_one_out)
        scatter = Scatter(
            samples=self.samples,
            standard_error=error,
            centred_error=centred,
            rmse=rmse,
            top1_agreement=agreement,
            floor=_floor(few, self._few(scoring, sampled if drawn is None else None)),
            drawn=None if drawn is None else (len(drawn), scores.size),
        )
        return TeacherScores(scores, sampled, scatter, drawn)

    def _sampled(self, scoring: _Scoring, say: Say) -> tuple[FloatArray, float]:
        """Scores of all pairs, and the root mean square of their standard errors."""
        sampled, errors = scoring.sampled(None, self.samples, self.seed, say)
        return on_grid(sampled), float(np.sqrt(np.mean(errors * errors)))

    def _few(self, scoring: _Scoring, sampled: FloatArray | None) -> list[FloatArray]:
        """Scores of the first FLOOR_ITEMS items of both modalities by each seed.

        `sampled` are those of all pairs by the first seed, if they are known.
        """
        seeds = range(self.seed, self.seed + FLOOR_SEEDS)
        known = [] if sampled is None else [sampled[:FLOOR_ITEMS, :FLOOR_ITEMS]]
        others = (scoring.sampled(FLOOR_ITEMS, self.samples, one)[0] for one in seeds[len(known) :])
        return [*known, *others]


@dataclass(frozen=True, eq=False)
class _Scoring:
    """Items of both modalities and their sigmoid; scores are logits, or else probabilities."""

    text: Gaussians
    video: Gaussians
    a: float
    b: float
    fit_logit: bool

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.text), len(self.video)

    def exact(self, say: Say) -> FloatArray:
        """The exact scores [n, m], on the grid of ties."""
        found = exact(self.text, self.video, self.a, self.b, say, close=False)
        return on_grid(found.logit if self.fit_logit else np.exp(found.log_p))

    def sampled(
        self, items: int | None, samples: int, seed: int, say: Say = silent
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of the first `items` of both modalities, and their standard errors."""
        both = self.text[:items], self.video[:items]
        return self._scores(monte_carlo(*both, self.a, self.b, samples, seed, say))

    def sampled_pairs(
        self, rows: tuple[IntArray, IntArray], samples: int, seed: int
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of pairs [P], given by their rows, and their standard errors."""
        sigmoid = self.a, self.b
        return self._scores(
            monte_carlo_of_pairs(self.text, self.video, sigmoid, rows, samples, seed)
        )

    def _scores(self, found: SampledProbabilities) -> tuple[FloatArray, FloatArray]:
        if self.fit_logit:
            return found.logit, found.standard_error_of_logit
        p = np.exp(found.log_p)
        # The delta method, back from the logit.
        return p, found.standard_error_of_logit * p * np.exp(found.log_1mp)


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
    return references.of(*gaussians(features), model, say, data.truth)


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
