"""Evaluate: how well embeddings, trained models and bundles retrieve, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.progress import Say
from cimtool.evaluation.ranking import check_truth, found_by_label, found_by_pairs
from cimtool.evaluation.subjects import Subject
from cimtool.reference.bootstrap import Change, Interval, Samples
from cimtool.reference.metrics import common_mean, settle
from cimtool.reference.queries import (
    LOSS_FIGURES,
    WAYS,
    Queries,
    Uncertainty,
    ranking_figures,
    uncertainties,
)
from cimtool.report.formats import numbered
from cimtool.simulation.simulator import Features, Simulator
from cimtool.verification.drift import GAP_DECIMALS
from cimtool.verification.notes import all_equal, few_queries, unused_labels
from cimtool.verification.references import trained_features, within_float64
from cimtool.verification.stages import encode, real_means

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Score:
    """What one subject scored: figures by name, their intervals, its warnings.

    `differences` are its figures less the first subject's on the same resamples; empty for the
    first. Shares are fractions; the names are those of `ranking_figures`.
    """

    name: str
    kind: str
    head: str
    figures: Mapping[str, float]
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Change]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Scores of one or several subjects on the same data, in the order given.

    `queries` counts texts and videos that have something right to find. With `leave_one_out` right
    is what has an item's label, itself left out; otherwise what `text_to_video` says.
    """

    data: str
    texts: int
    videos: int
    queries: tuple[int, int]
    leave_one_out: bool
    resamples: int
    seed: int
    scores: tuple[Score, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, each figure with its interval and its difference to the first."""
        values = {name: value for name, value in vars(self).items() if name != "scores"}
        return {
            "format_version": FORMAT_VERSION,
            **values,
            "queries": dict(zip(WAYS, self.queries, strict=True)),
            "scores": [_score_json(one) for one in self.scores],
        }


def _score_json(score: Score) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, value in score.figures.items():
        figures[name] = {"value": value, **asdict(score.intervals[name])}
        if name in score.differences:
            figures[name]["difference"] = asdict(score.differences[name])
    said = {"name": score.name, "kind": score.kind, "head": score.head}
    return {**said, "figures": figures, "warnings": list(score.warnings)}


def evaluate_subjects(
    subjects: Sequence[Subject], leave_one_out: bool, resamples: int, seed: int, say: Say
) -> Evaluation:
    """Rank all queries of every subject, one after the other, and resample them together.

    Items of one modality leave themselves out in any case. Raises CimError where the data do not
    say what is right, or a score is not finite.
    """
    data = subjects[0].data
    alone = leave_one_out or data.alone
    check_truth(data, alone)
    names = numbered([subject.name for subject in subjects])
    found, notes = [], []
    for name, subject in zip(names, subjects, strict=True):
        queries, said = _queries(subject, name, alone, say)
        found.append(queries)
        notes += [f"{name}: {sentence}" for sentence in (*subject.warnings, *said)]
    say("resampling queries")
    clusters = np.arange(len(data.text)) if alone else data.right
    counts = _count(found[0].text["rank"]), _count(found[0].video["rank"])
    return Evaluation(
        data.file,
        len(data.text),
        len(data.video),
        counts,
        alone,
        resamples,
        seed,
        _scores(names, subjects, found, clusters, resamples, seed),
        (*notes, *few_queries(*counts), *unused_labels(data, "precision" in found[0].text)),
    )


def check_sampling(resamples: int, seed: int) -> None:
    """Raise CimError for fewer than two resamples, or a seed out of range."""
    if resamples < 2:
        raise ArgumentError("{resamples} is {}; expected at least 2", resamples)
    if not 0 <= seed < 2**63:
        raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", seed)


def _queries(
    subject: Subject, name: str, leave_one_out: bool, say: Say
) -> tuple[Queries, list[str]]:
    """What the queries of a subject find, and what its scores must be warned of."""
    data = subject.data
    say(f"{name}: encoding {len(data.text)} texts and {len(data.video)} videos")
    simulator = Simulator(subject.program)
    trained = trained_features(Simulator(subject.trained), data)
    if subject.program is subject.trained:
        features, means = trained, real_means(subject.trained, trained)
    else:
        features = encode(simulator, data)
        means = _moved_back(subject, trained, *real_means(subject.program, features))
    say(f"{name}: scoring {len(data.text)} x {len(data.video)} pairs")
    with within_float64(data):
        scores: FloatArray = simulator.score(features["text"], features["video"])
    if not (np.isfinite(scores.min()) and np.isfinite(scores.max())):
        raise CimError(
            f"{name}: a score of {data.file} is not finite; the model is out of float64's range"
        )
    settle(scores)
    say(f"{name}: ranking")
    if leave_one_out and data.labels is not None:
        found = found_by_label(scores, *means, data.labels)
    else:
        found = found_by_pairs(scores, *means, data)
    return found, all_equal(scores, "scores")


def _moved_back(
    subject: Subject, trained: Mapping[str, Features], text: Array, video: Array
) -> tuple[Array, Array]:
    """Compiled means, moved back to where training left what they share, which they lack."""
    offset = common_mean(*real_means(subject.trained, trained)) - common_mean(text, video)
    return text + offset, video + offset


def _scores(
    names: Sequence[str],
    subjects: Sequence[Subject],
    found: Sequence[Queries],
    clusters: IntArray,
    resamples: int,
    seed: int,
) -> tuple[Score, ...]:
    data = subjects[0].data
    measured = [partial(ranking_figures, queries) for queries in found]
    samples = uncertainties(measured, measured[0], clusters, len(data.video), seed, resamples)
    once = Samples.once(len(data.text), len(data.video))
    made = []
    for i, (name, subject) in enumerate(zip(names, subjects, strict=True)):
        values = {key: float(value[0]) for key, value in measured[i](once).items()}
        if "cosine_gap" in values:
            values["cosine_gap"] = round(values["cosine_gap"], GAP_DECIMALS) + 0.0
        made.append(
            Score(
                name,
                subject.kind,
                subject.head.name,
                values,
                samples[i].intervals,
                _differences(samples[i]) if i else {},
                subject.warnings,
            )
        )
    return tuple(made)


def _differences(found: Uncertainty) -> dict[str, Change]:
    """Each figure less the first subject's; losses count what is worse, of ranks the higher."""
    result = {}
    for name in LOSS_FIGURES:
        if name in found.losses:
            loss = found.losses[name]
            flipped = Change(0.0 - loss.value, 0.0 - loss.high, 0.0 - loss.low)
            result[name] = loss if "_rank_" in name else flipped
    return result


def _count(ranks: FloatArray) -> int:
    return int(np.count_nonzero(~np.isnan(ranks)))
