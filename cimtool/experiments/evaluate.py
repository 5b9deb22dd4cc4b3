"""Evaluate retrieval of embeddings, trained models and bundles, with intervals.

Rankings go into TREC files for both ways: runs `query Q0 item rank score tag`, and qrels
`query 0 item grade`. If both pairs and classes define right items, files by classes are added;
their names have `classes`, and they leave out videos without a text. trec_eval compares scores as
float32 and breaks ties by name. So scores are rounded to float32, and each of several equal scores
gets the next smaller number. The order is then the order of the metrics, in which ties count
against the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_folder, keeping_inputs, require_kept, staged
from cimtool.base.intervals import Change, Interval
from cimtool.base.modality_names import Modalities
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.experiments.options import EvaluateOptions
from cimtool.experiments.subjects import Subject, sources_of, subjects_of
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.qrels import judged_rows
from cimtool.loading.source import ModelOptions
from cimtool.reference.exact import OutOfReach, exact
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import centred_squares, common_mean, on_grid, settle
from cimtool.reference.montecarlo import check_samples, monte_carlo
from cimtool.reference.queries import (
    RANKINGS_BY_KEY,
    Queries,
    both_sides,
    metrics,
    rounded,
    uncertainties,
)
from cimtool.reference.retrieval import columns, questions, rank_queries
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth, all_equal, any_alike, memberships
from cimtool.report.formats import numbered
from cimtool.report.result import Result
from cimtool.simulation.simulator import Features, Simulator
from cimtool.verification.notes import few_queries, judged_by, unused_labels
from cimtool.verification.references import gaussians, trained_features, within_float64
from cimtool.verification.stages import encode, real_means

FORMAT_VERSION = 1

MOST_PAIRS = 1 << 22
"""Pairs whose exact scores are computed for a logit RMSE; `verify` has no such limit."""


@dataclass(frozen=True)
class Score:
    """The metrics of one subject by name, with their intervals, and its warnings.

    `modalities` are the names of its text and video arrays. `differences` are its metrics minus
    the metrics of the first subject with these modalities, on the same resamples; empty for the
    first subject. Shares are fractions. The names are the keys of
    `reference.queries.RANKINGS_BY_KEY`, and `centred_rmse` and `logit_rmse` against the exact score
    of the trained model, if it has one. `queries` counts queries with a right item, by way.
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

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, each metric with its interval and its difference to the first."""
        metrics: dict[str, Any] = {}
        for name, value in self.metrics.items():
            metrics[name] = {"value": value, **asdict(self.intervals[name])}
            if name in self.differences:
                metrics[name]["difference"] = asdict(self.differences[name])
        names = ("name", "kind", "head", "modalities", "queries")
        said = {name: getattr(self, name) for name in names}
        return {**said, "figures": metrics, "warnings": list(self.warnings)}


@dataclass(frozen=True, repr=False)
class Evaluation(Result, shown_by="cimtool.experiments.render_evaluation"):
    """Scores of one or several subjects on the same data, in the order given.

    `texts`, `videos` and `queries` (with a right item, by way) are of the first pair of modalities;
    each score has its own counts. With `leave_one_out`, all other items with the same label are
    right. Otherwise `text_to_video` defines right items; with `by_class`, labels do for metrics of
    classes. If pairs are `judged`, only the judgements count.
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
    notes: tuple[str, ...]
    scores: tuple[Score, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        scores = [score.to_json() for score in self.scores]
        return {"format_version": FORMAT_VERSION, **vars(self), "scores": scores}


@keeping_inputs
@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions, say: Say = silent) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder. `poly` and the options of `model` (`a`, `b`, `layer_map`,
    `head`) apply to projectors, except a ModelSource, which has its own options. `head` also
    applies to the embeddings (cosine or euclidean). With `leave_one_out`, or if `data` are items of
    one modality (`rows`), the other items with the same label are right. With a file `qrels`, items
    that it grades above 0 are right. Each of `samples` adds Monte Carlo with this many per side for
    projectors whose a and b are known. Raw embeddings come last if both sides are equally wide.
    Without `what`, each pair of the arrays `modalities` is compared; projectors and bundles know
    their own. Runs and qrels are written into the folder `trec`. Differences are to the first
    subject.
    """
    check_sampling(options.resamples, options.seed, options.samples)
    sources = sources_of(options.what, {"poly": options.poly, **options.part(ModelOptions)})
    folder = None if options.trec is None else Path(options.trec)
    if folder is not None:
        check_folder(folder)
        for name in QRELS:
            require_kept(folder / name)
    subjects = subjects_of(options, sources, say)
    judged = [replace(one, data=judged_rows(one.data, options.qrels)) for one in subjects]
    return evaluate_pairs(judged, options, folder, say)


def evaluate_pairs(
    subjects: Sequence[Subject], options: EvaluateOptions, trec: Path | None, say: Say
) -> Evaluation:
    """Evaluate subjects of one pair of modalities, or of several in one table.

    Subjects of the same pair are ranked and resampled together. Runs and qrels go into the folder
    `trec`, if there is one; several pairs have a folder each.
    """
    pairs = list(dict.fromkeys(subject.data.modalities for subject in subjects))
    # Data report an array as unread only if no subject reads it.
    unread = set.intersection(*(set(subject.data.unread) for subject in subjects))
    parts = []
    for pair in pairs:
        own = []
        for one in subjects:
            if one.data.modalities == pair:
                left = tuple(name for name in one.data.unread if name in unread)
                own.append(replace(one, data=replace(one.data, unread=left)))
        named = "-".join(pair or MODALITIES)
        place = trec if trec is None or len(pairs) == 1 else trec / named
        parts.append(evaluate_subjects(own, options, place, say))
    scores = tuple(score for part in parts for score in part.scores)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    by_class = any(part.by_class for part in parts)
    return replace(parts[0], scores=scores, notes=tuple(notes), by_class=by_class)


def evaluate_subjects(
    subjects: Sequence[Subject],
    options: EvaluateOptions,
    trec: Path | None = None,
    say: Say = silent,
) -> Evaluation:
    """Rank all queries of every subject, one after the other, and resample them together.

    With items of one modality, a query never finds itself. Raises CimError if the data do not
    define right items, or if a score is not finite.
    """
    data = subjects[0].data
    alone = options.leave_one_out or data.alone
    check_truth(data, alone)
    truth = data.truth_of(alone)
    names = numbered([subject.name for subject in subjects])
    found, notes = [], []
    with nullcontext() if trec is None else staged(trec, "the runs") as folder:
        ranker = Ranker(truth, folder, say)
        for name, subject in zip(names, subjects, strict=True):
            queries, said = ranker.ranked(name, subject)
            found.append(queries)
            notes += [f"{name}: {sentence}" for sentence in (*subject.warnings, *said)]
        if folder is not None:
            write_qrels(folder, data, truth)
    say("resampling queries")
    rows = [partial(metrics, queries) for queries in found]
    drawn = truth.text_to_video, truth.videos, options.seed, options.resamples
    counts, scores = found[0].counts, []
    samples = uncertainties(rows, rows[0], *drawn)
    for name, subject, one in zip(names, subjects, samples, strict=True):
        values = rounded(one.metrics)
        losses = {key: loss for key, loss in one.losses.items() if key in RANKINGS_BY_KEY}
        less = {  # a loss is positive if the metric is worse; a rank is worse if it is higher
            key: loss
            if RANKINGS_BY_KEY[key].lower_is_better
            else Change(0.0 - loss.value, 0.0 - loss.high, 0.0 - loss.low)
            for key, loss in losses.items()
        }
        told = subject.kind, subject.head.name, subject.data.called, counts
        differences = {} if name == names[0] else less
        scores.append(Score(name, *told, values, one.intervals, differences, subject.warnings))
    notes += [*judged_by(data), *data.notes, *few_queries(*counts.values(), called=data.called)]
    notes += unused_labels(data, truth.by_class)
    return Evaluation(
        data=data.file,
        texts=len(data.text),
        videos=len(data.video),
        queries=counts,
        leave_one_out=alone,
        by_class=truth.by_class,
        judged=truth.judged is not None,
        resamples=options.resamples,
        seed=options.seed,
        scores=tuple(scores),
        notes=tuple(notes),
    )


def check_truth(data: Embeddings, leave_one_out: bool) -> None:
    """Raise CimError unless `data` defines the right items of each query."""
    if not leave_one_out:
        _ = data.truth  # raises if pairs are not known
        return
    if len(data.text) != len(data.video):
        raise ArgumentError(
            "{}: {}; expected equal numbers with {leave_one_out}: row i of both is one item",
            data.file,
            data.counted,
        )
    if data.truth_of(leave_one_out).judged is not None:
        return
    if data.labels is None:
        raise CimError(
            f"{data.file}: labels, the class of each item, is missing; expected it, as an item "
            "does not find itself"
        )
    numbers = memberships(data.labels)[1]
    if (every := np.bincount(numbers) == len(data.labels)).any():
        of_all = int(every.argmax()) if data.labels.ndim == 2 else data.labels[0]
        raise CimError(
            f"{data.file}: the label of every item is {of_all}; expected at least two classes"
        )
    if not any_alike(data.labels):
        raise CimError(
            f"{data.file}: no two items share a label; expected classes of several items, as an "
            "item does not find itself"
        )


MOST_RESAMPLES = 1_000_000
"""Most resamples for an interval; each draws all queries."""


def check_sampling(resamples: int, seed: int, samples: Sequence[int] = ()) -> None:
    """Raise CimError if resamples, samples per side or the seed are out of range."""
    if not 2 <= resamples <= MOST_RESAMPLES:
        raise ArgumentError(
            "{resamples} is {}; expected at least 2, and at most {:,}", resamples, MOST_RESAMPLES
        )
    if not 0 <= seed < 2**63:
        raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", seed)
    for count in samples:
        check_samples(count)


@dataclass(eq=False)
class Ranker:
    """The rankings of subjects, one after the other; subjects of one trained program share work.

    Features and Gaussians of the last program are kept. Exact logits [n, m] of all programs are
    kept, by the program's identity and its sigmoid's a and b. Runs go into `folder`, if given.
    """

    truth: Truth
    folder: Path | None
    say: Say
    _exact: dict[tuple[int, tuple[float, float]], FloatArray] = field(default_factory=dict)
    _last: Program | None = None
    _features: dict[str, Features] = field(default_factory=dict)
    _gaussians: tuple[Gaussians, Gaussians] | None = None

    def ranked(self, name: str, subject: Subject) -> tuple[Queries, list[str]]:
        """Rank the queries of a subject, also into the folder; also return warnings on scores."""
        data, say = subject.data, self.say
        say(f"{name}: encoding {data.counted}")
        simulator = Simulator(subject.program)
        if self._last is not subject.trained:
            self._features = trained_features(Simulator(subject.trained), data)
            self._last, self._gaussians = subject.trained, None
        trained = self._features
        features = trained if subject.program is subject.trained else encode(simulator, data)
        text, video = real_means(subject.program, features)
        # Compiled means lack their common mean; move them back to the trained common mean.
        offset = common_mean(*real_means(subject.trained, trained)) - common_mean(text, video)
        say(f"{name}: scoring {len(data.text)} x {len(data.video)} pairs")
        with within_float64(data):
            if subject.samples is None or subject.sigmoid is None:
                scores = simulator.score(features["text"], features["video"])
            else:
                items, samples = self._items(), subject.samples
                scores = monte_carlo(*items, *subject.sigmoid, samples, say=say).logit
        if not (np.isfinite(scores.min()) and np.isfinite(scores.max())):
            raise CimError(
                f"{name}: a score of {data.file} is not finite; the model is out of float64's range"
            )
        settle(scores)
        say(f"{name}: ranking")
        if self.folder is not None:
            write_run(self.folder, name, data, self.truth, scores)
        of_logits = subject.samples is not None or subject.head.predicts_logit
        ranked = rank_queries(scores, text + offset, video + offset, self.truth, of_logits)
        said = all_equal(scores, data.called, "scores")
        if subject.sigmoid is None or not of_logits:  # a polynomial may predict probabilities
            return ranked, said
        say(f"{name}: exact scores")
        if scores.size > MOST_PAIRS:
            few = f"no logit RMSE for more than {MOST_PAIRS:,} pairs; use `cimtool verify`"
            return ranked, [*said, few]
        place = id(subject.trained), subject.sigmoid
        try:
            if place not in self._exact:
                logits = exact(*self._items(), *subject.sigmoid, say).logit
                self._exact[place] = on_grid(logits)
        except OutOfReach as error:
            return ranked, [*said, f"no logit RMSE: {error}"]
        off = scores - self._exact[place]
        ranked.text["logit_squares"] = np.einsum("nm,nm->n", off, off) / off.shape[1]
        centred = both_sides({"centred_squares": centred_squares(scores, self._exact[place])})
        return ranked.merged(centred), said

    def _items(self) -> tuple[Gaussians, Gaussians]:
        """Means and variances of the rows in the last trained program."""
        if self._gaussians is None:
            self._gaussians = gaussians(self._features)
        return self._gaussians


SIDES = {WAYS[0]: ("text", "video"), WAYS[1]: ("video", "text")}
"""Modalities of queries and of items, by way."""


def _relations(truth: Truth) -> tuple[tuple[str, bool], ...]:
    """The rules that make items right, as (ending of file names, True if by class)."""
    if truth.labels is None or truth.leave_one_out:
        return (("", False),)
    return (("", False), (".classes", True))


QRELS = tuple(f"{way}{ending}.qrels" for way in SIDES for ending in ("", ".classes"))
"""The names of files of judgements."""


def write_qrels(folder: Path, data: Embeddings, truth: Truth) -> None:
    """Write WAY.qrels, and WAY.classes.qrels if classes define right items too."""
    for ending, by_class in _relations(truth):
        for way, (one, other) in SIDES.items():
            queries, items = data.ids(one), data.ids(other)
            with (folder / f"{way}{ending}.qrels").open("w", encoding="utf-8") as file:
                asked = questions(truth, way, by_class)
                for query, (shown, grades) in zip(*asked, strict=True):
                    right = grades > 0
                    for item, grade in zip(items[shown[right]], grades[right], strict=True):
                        file.write(f"{queries[query]} 0 {item} {int(grade)}\n")


def write_run(folder: Path, tag: str, data: Embeddings, truth: Truth, scores: FloatArray) -> None:
    """Write TAG.WAY.run of scores [n, m], and TAG.WAY.classes.run if there are such qrels."""
    tag = re.sub(r"[^A-Za-z0-9_@.+-]+", "-", tag).strip("-.")
    for ending, by_class in _relations(truth):
        for way, (one, other) in SIDES.items():
            names, items = data.ids(one), data.ids(other)
            queries, asked = questions(truth, way, by_class)
            rows = (scores[i] for i in queries) if way == WAYS[0] else columns(scores, queries)
            with (folder / f"{tag}.{way}{ending}.run").open("w", encoding="utf-8") as file:
                for query, row, (shown, grades) in zip(queries, rows, asked, strict=True):
                    order = np.lexsort((grades, -row[shown]))
                    ranked = zip(items[shown[order]], falling(row[shown[order]]), strict=True)
                    file.writelines(
                        f"{names[query]} Q0 {item} {rank} {score:.9g} {tag}\n"
                        for rank, (item, score) in enumerate(ranked, 1)
                    )


def falling(scores: Array) -> Array:
    """Round scores [n], which never rise, to float32 so that each is below the one before it."""
    bits = scores.astype(np.float32).view(np.int32).astype(np.int64)
    # float32 has sign and magnitude; these integers have the same order as the numbers.
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    steps = np.arange(len(keys))
    keys = np.minimum.accumulate(keys + steps) - steps
    back = np.where(keys < 0, -keys - 2**31, keys)
    return back.astype(np.int32).view(np.float32)
