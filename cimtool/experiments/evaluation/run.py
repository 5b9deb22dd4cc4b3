"""Evaluate: how well embeddings, trained models and bundles retrieve, with intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import staged
from cimtool.base.progress import Say, silent
from cimtool.experiments.evaluation.subjects import Subject
from cimtool.experiments.evaluation.trec import write_qrels, write_run
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import RESAMPLES, Change, Interval
from cimtool.reference.classes import any_alike, memberships
from cimtool.reference.equal_scores import all_equal
from cimtool.reference.exact import OutOfReach, exact
from cimtool.reference.metrics import centred_squares, common_mean, on_grid, settle
from cimtool.reference.modality_names import Modalities
from cimtool.reference.montecarlo import check_samples, monte_carlo
from cimtool.reference.queries import (
    RANKINGS_BY_KEY,
    Queries,
    Uncertainty,
    metrics,
    rounded,
    uncertainties,
)
from cimtool.reference.retrieval import of_means, retrieved
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth
from cimtool.report.formats import numbered
from cimtool.report.result import Result
from cimtool.simulation.simulator import Features, Simulator
from cimtool.verification.notes import few_queries, judged_by, unused_labels
from cimtool.verification.references import gaussians, trained_features, within_float64
from cimtool.verification.stages import encode, real_means

FORMAT_VERSION = 1

MOST_PAIRS = 1 << 22
"""Pairs whose exact scores are computed for a logit RMSE; `verify` has no such limit."""


@dataclass(eq=False)
class TrainedValues:
    """Values of rows in trained programs, kept for the subjects that share a program.

    Features and Gaussians are those of the last program, exact logits [n, m] those of all, by the
    program's identity and its sigmoid's a and b.
    """

    exact: dict[tuple[int, tuple[float, float]], FloatArray] = field(default_factory=dict)
    _last: Program | None = None
    _features: dict[str, Features] = field(default_factory=dict)
    _gaussians: tuple[Gaussians, Gaussians] | None = None

    def features(self, subject: Subject) -> dict[str, Features]:
        """The features of a subject's rows in its trained program."""
        if self._last is not subject.trained:
            self._features = trained_features(Simulator(subject.trained), subject.data)
            self._last, self._gaussians = subject.trained, None
        return self._features

    def gaussians(self, subject: Subject) -> tuple[Gaussians, Gaussians]:
        """Means and variances of a subject's rows in its trained program."""
        features = self.features(subject)
        if self._gaussians is None:
            self._gaussians = gaussians(features)
        return self._gaussians


@dataclass(frozen=True)
class Score:
    """The metrics of one subject by name, their intervals, its warnings.

    `modalities` are the names of the arrays that were its text and video. `differences` are its
    metrics less those of the first subject of the same two, on the same resamples; empty for that
    one. Shares are fractions; the names are the keys of `reference.queries.RANKINGS`, and
    `centred_rmse` and
    `logit_rmse` against the exact score of the trained model, where it has one. `queries` counts
    items of these two with a right item, by way.
    """

    name: str
    kind: str
    head: str
    modalities: Modalities
    queries: Mapping[str, int]
    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Change]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Evaluation(Result, shown_by="cimtool.experiments.evaluation.render"):
    """Scores of one or several subjects on the same data, in the order given.

    `texts`, `videos` and `queries`, items with a right item by way, are those of the first pair of
    modalities; each score has its own. With `leave_one_out` all other items of the
    same label are right; otherwise those of `text_to_video`, and with `by_class` for metrics of
    classes those of the same label. Where pairs are `judged` right are those alone.
    """

    data: str
    texts: int
    videos: int
    queries: Mapping[str, int]
    leave_one_out: bool
    by_class: bool
    judged: bool
    resamples: int
    seed: int
    scores: tuple[Score, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, each metric with its interval and its difference to the first."""
        values = {name: value for name, value in vars(self).items() if name != "scores"}
        return {
            "format_version": FORMAT_VERSION,
            **values,
            "scores": [_score_json(one) for one in self.scores],
        }


def _score_json(score: Score) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for name, value in score.metrics.items():
        metrics[name] = {"value": value, **asdict(score.intervals[name])}
        if name in score.differences:
            metrics[name]["difference"] = asdict(score.differences[name])
    names = ("name", "kind", "head", "modalities", "queries")
    said = {name: getattr(score, name) for name in names}
    return {**said, "figures": metrics, "warnings": list(score.warnings)}


@dataclass(frozen=True)
class EvaluationChoices:
    """The choices of an evaluation, beside its subjects.

    With `leave_one_out` all other items of an item's label are right. Queries are resampled
    `resamples` times by `seed`; runs and qrels go into the folder `trec`, where one is given.
    """

    leave_one_out: bool = False
    resamples: int = RESAMPLES
    seed: int = 0
    trec: Path | None = None
    say: Say = silent


def evaluate_pairs(subjects: Sequence[Subject], choices: EvaluationChoices) -> Evaluation:
    """Evaluate subjects of one pair of modalities, or of several in one table.

    Each is ranked and resampled with those of its own pair, and runs of several pairs go into a
    folder each.
    """
    trec = choices.trec
    pairs = list(dict.fromkeys(subject.data.modalities for subject in subjects))
    unread = set.intersection(*(set(subject.data.unread) for subject in subjects))
    parts = []
    for pair in pairs:
        own = [_reading(one, unread) for one in subjects if one.data.modalities == pair]
        named = "-".join(pair or MODALITIES)
        place = trec if trec is None or len(pairs) == 1 else trec / named
        parts.append(evaluate_subjects(own, replace(choices, trec=place)))
    scores = tuple(score for part in parts for score in part.scores)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    by_class = any(part.by_class for part in parts)
    return replace(parts[0], scores=scores, notes=tuple(notes), by_class=by_class)


def _reading(subject: Subject, unread: Collection[str]) -> Subject:
    """A subject whose data name those arrays as unread that no subject reads."""
    left = tuple(name for name in subject.data.unread if name in unread)
    return replace(subject, data=replace(subject.data, unread=left))


def evaluate_subjects(subjects: Sequence[Subject], choices: EvaluationChoices) -> Evaluation:
    """Rank all queries of every subject, one after the other, and resample them together.

    Items of one modality leave themselves out in any case. Raises CimError where the data do not
    say what is right, or a score is not finite.
    """
    data, trec, say = subjects[0].data, choices.trec, choices.say
    resamples, seed = choices.resamples, choices.seed
    alone = choices.leave_one_out or data.alone
    check_truth(data, alone)
    truth = data.truth_of(alone)
    names = numbered([subject.name for subject in subjects])
    found, notes = [], []
    known = TrainedValues()
    with nullcontext() if trec is None else staged(trec, "the runs") as folder:
        for name, subject in zip(names, subjects, strict=True):
            queries, said = _queries(subject, name, truth, folder, known, say)
            found.append(queries)
            notes += [f"{name}: {sentence}" for sentence in (*subject.warnings, *said)]
        if folder is not None:
            write_qrels(folder, data, truth)
    say("resampling queries")
    measured = [partial(metrics, queries) for queries in found]
    samples = uncertainties(
        measured, measured[0], truth.text_to_video, truth.videos, seed, resamples
    )
    counts = found[0].counts
    scores = [
        _score(name, subject, counts, one, name == names[0])
        for name, subject, one in zip(names, subjects, samples, strict=True)
    ]
    notes += [*judged_by(data), *data.notes]
    notes += few_queries(*counts.values(), called=data.called)
    by_class = truth.by_class
    notes += unused_labels(data, by_class)
    texts, videos = len(data.text), len(data.video)
    judged = truth.judged is not None
    counted = (counts, alone, by_class, judged, resamples, seed)
    return Evaluation(data.file, texts, videos, *counted, tuple(scores), tuple(notes))


def check_truth(data: Embeddings, leave_one_out: bool) -> None:
    """Raise CimError unless `data` says what is right for each query."""
    if not leave_one_out:
        _ = data.truth  # raises where pairs are not known
        return
    if len(data.text) != len(data.video):
        raise ArgumentError(
            "{}: {}; expected as many of both with {leave_one_out}, where row i of both is one "
            "item",
            data.file,
            data.counted,
        )
    if data.truth_of(leave_one_out).judged is not None:
        return
    if data.labels is None:
        raise CimError(
            f"{data.file}: labels is missing, the class of each item; expected it, for an item "
            "does not find itself"
        )
    numbers = memberships(data.labels)[1]
    if (every := np.bincount(numbers) == len(data.labels)).any():
        of_all = int(every.argmax()) if data.labels.ndim == 2 else data.labels[0]
        raise CimError(
            f"{data.file}: the label of every item is {of_all}; expected two classes or more"
        )
    if not any_alike(data.labels):
        raise CimError(
            f"{data.file}: no two items share a label; expected classes of several items, for an "
            "item does not find itself"
        )


MOST_RESAMPLES = 1_000_000
"""Resamples for an interval, each of all queries."""


def check_sampling(resamples: int, seed: int, samples: Sequence[int] = ()) -> None:
    """Raise CimError for fewer than two resamples or samples a side, or a seed out of range."""
    if not 2 <= resamples <= MOST_RESAMPLES:
        raise ArgumentError(
            "{resamples} is {}; expected at least 2, and at most {:,}", resamples, MOST_RESAMPLES
        )
    if not 0 <= seed < 2**63:
        raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", seed)
    for count in samples:
        check_samples(count)


def _queries(
    subject: Subject, name: str, truth: Truth, folder: Path | None, known: TrainedValues, say: Say
) -> tuple[Queries, list[str]]:
    """Rank the queries of a subject, also into `folder`; and give warnings on its scores."""
    data = subject.data
    say(f"{name}: encoding {data.counted}")
    simulator = Simulator(subject.program)
    trained = known.features(subject)
    features = trained if subject.program is subject.trained else encode(simulator, data)
    means = _moved_back(subject, trained, *real_means(subject.program, features))
    say(f"{name}: scoring {len(data.text)} x {len(data.video)} pairs")
    with within_float64(data):
        scores = _scores(subject, simulator, features, known, say)
    if not (np.isfinite(scores.min()) and np.isfinite(scores.max())):
        raise CimError(
            f"{name}: a score of {data.file} is not finite; the model is out of float64's range"
        )
    settle(scores)
    say(f"{name}: ranking")
    if folder is not None:
        write_run(folder, name, data, truth, scores)
    ranked, said = rank_queries(scores, *means, truth), all_equal(scores, data.called, "scores")
    if subject.sigmoid is not None and _of_logits(subject):
        say(f"{name}: exact scores")
        said += _add_error(ranked, subject, subject.sigmoid, scores, known, say)
    return ranked, said


def _add_error(
    ranked: Queries,
    subject: Subject,
    sigmoid: tuple[float, float],
    scores: FloatArray,
    known: TrainedValues,
    say: Say,
) -> list[str]:
    """Add each query's mean squared distance of `scores` [n, m] from the exact ones, and its part
    that can change a rank.

    Those are kept in `known`: samples of a model share them with its own score. Returns the
    sentence on why there is none instead.
    """
    if scores.size > MOST_PAIRS:
        return [f"no logit RMSE of more than {MOST_PAIRS:,} pairs; `cimtool verify` has it"]
    place = id(subject.trained), sigmoid
    try:
        if place not in known.exact:
            known.exact[place] = on_grid(exact(*known.gaussians(subject), *sigmoid, say).logit)
    except OutOfReach as error:
        return [f"no logit RMSE: {error}"]
    off = scores - known.exact[place]
    ranked.text["logit_squares"] = np.einsum("nm,nm->n", off, off) / off.shape[1]
    text, video = centred_squares(scores, known.exact[place])
    ranked.text["centred_squares"], ranked.video["centred_squares"] = text, video
    return []


def _of_logits(subject: Subject) -> bool:
    """True where a subject's scores are logits: a polynomial may give probabilities."""
    return subject.samples is not None or subject.head.predicts_logit


def _scores(
    subject: Subject,
    simulator: Simulator,
    features: Mapping[str, Features],
    known: TrainedValues,
    say: Say,
) -> FloatArray:
    """The scores of all pairs [n, m]; those of Monte Carlo are logits."""
    if subject.samples is None or subject.sigmoid is None:
        found: FloatArray = simulator.score(features["text"], features["video"])
        return found
    items = known.gaussians(subject)
    return monte_carlo(*items, *subject.sigmoid, subject.samples, say=say).logit


def rank_queries(scores: Array, text: Array, video: Array, truth: Truth) -> Queries:
    """Rank queries by `scores` [n, m], and measure means `text` [n, d], `video` [m, d]."""
    return retrieved(scores, truth).merged(of_means(truth, text, video))


def _moved_back(
    subject: Subject, trained: Mapping[str, Features], text: Array, video: Array
) -> tuple[Array, Array]:
    """Compiled means, moved back to where training left what they share, which they lack."""
    offset = common_mean(*real_means(subject.trained, trained)) - common_mean(text, video)
    return text + offset, video + offset


def _score(
    name: str, subject: Subject, counts: Mapping[str, int], found: Uncertainty, first: bool
) -> Score:
    metrics = rounded(found.metrics)
    differences = {} if first else _differences(found)
    kind, head = subject.kind, subject.head.name
    pair = subject.data.called
    intervals, warnings = found.intervals, subject.warnings
    return Score(name, kind, head, pair, counts, metrics, intervals, differences, warnings)


def _differences(found: Uncertainty) -> dict[str, Change]:
    """Each metric less the first subject's; losses count what is worse, of ranks the higher."""
    return {
        name: loss
        if RANKINGS_BY_KEY[name].lower_is_better
        else Change(0.0 - loss.value, 0.0 - loss.high, 0.0 - loss.low)
        for name, loss in found.losses.items()
        if name in RANKINGS_BY_KEY
    }
