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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
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
from cimtool.base.typed_fields import made_of
from cimtool.experiments.engine import (
    ExperimentKind,
    PagedResult,
    check_workers,
    content_digest,
    program_bytes,
    values_name,
    workers,
    write_page,
)
from cimtool.experiments.kept_queries import counts_by_name, plain_queries, read_queries
from cimtool.experiments.options import EvaluateOptions
from cimtool.experiments.subjects import Subject, sources_of, subjects_of
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.qrels import judged_rows
from cimtool.loading.source import ModelOptions
from cimtool.reference.exact import OutOfReach, exact
from cimtool.reference.measures import RANKINGS, WAYS
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
from cimtool.reference.retrieval import RETRIEVED, columns, questions, rank_queries
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth, all_equal, any_alike, memberships
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import counted, numbered
from cimtool.simulation.simulator import Simulator
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
class Evaluation(PagedResult, shown_by="cimtool.experiments.render_evaluation"):
    """Scores of one or several subjects on the same data, in the order given.

    `texts`, `videos` and `queries` (with a right item, by way) are of the first pair of modalities;
    each score has its own counts. With `leave_one_out`, all other items with the same label are
    right. Otherwise `text_to_video` defines right items; with `by_class`, labels do for metrics of
    classes. If pairs are `judged`, only the judgements count. `resumed` counts subjects that an
    earlier run ranked; the results were `written` into a folder, if one was given.
    """

    page = "evaluation.html"

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
    resumed: int = 0
    written: Sequence[Path] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on workers, or on the number of runs."""
        scores = [score.to_json() for score in self.scores]
        own = {k: v for k, v in vars(self).items() if k not in ("resumed", "written")}
        return {"format_version": FORMAT_VERSION, **own, "scores": scores}

    def of_this_run(self) -> Document:
        """The document with the files that this run wrote into its folder."""
        if not self.written:
            return self.document()
        said = f"{counted(len(self.scores), 'subject')}, {self.resumed} ranked by an earlier run"
        more = self.document().plus(Sentence(said), resumed=self.resumed)
        return more.wrote(self.written)


@dataclass(frozen=True, eq=False)
class Ranked:
    """The measured queries of a subject, and warnings on its scores."""

    queries: Queries
    notes: tuple[str, ...] = ()
    error: None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"queries": plain_queries(self.queries), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ranked:
        """Read the values of `to_json`; KeyError, TypeError or ValueError for other values."""
        parts = {"queries": read_queries(values["queries"]), "notes": tuple(values["notes"])}
        return made_of(cls, parts)

    def measures(self, pairs: SubjectPairs) -> bool:
        """True if it has all measurements of the queries of these pairs, and no others."""
        needed, known = {*RETRIEVED} if pairs.truth.ranks else set(), {*RETRIEVED, *BESIDE}
        counts = len(pairs.data.text), pairs.truth.videos
        return all(
            needed <= {*side} <= known and all(own == count for own in side.values())
            for side, count in zip(counts_by_name(self.queries), counts, strict=True)
        )


EVALUATION = ExperimentKind(
    "retrieval evaluation", "evaluation.json", 1, {"data": "data set"}, Ranked.from_json
)

BESIDE = (
    *(one.of for one in RANKINGS if one.texts_only),
    *("logit_squares", "centred_squares"),
)
"""Measurements of a query beside those of its ranking."""


@dataclass(frozen=True, eq=False)
class SubjectPairs:
    """The data of all subjects of one pair of modalities, and what is right in them.

    Runs of TREC go into the folder `runs`, if there is one.
    """

    data: Embeddings
    truth: Truth
    runs: Path | None = None


@dataclass(frozen=True, eq=False)
class NamedSubject:
    """A subject under its name in the table; `digest` names its point."""

    name: str
    subject: Subject
    pairs: SubjectPairs

    @property
    def digest(self) -> str:
        """A digest of all that decides its ranking."""
        one = self.subject
        programs = (program_bytes(program) for program in (one.trained, one.program))
        rows = one.data.digest_of(self.pairs.truth)
        score = one.head.to_json(), one.sigmoid, one.samples
        own = content_digest(*programs)
        return values_name(EVALUATION.versions, self.name, one.kind, own, rows, score)


@dataclass(frozen=True)
class SubjectPoint:
    """The point of a subject: the `done` of its line is its name, `digest` names it."""

    digest: str
    done: str

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"subject": self.done}


@keeping_inputs
@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions, say: Say = silent) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder. `poly` and the options of `model` (`a`, `b`, `layer_map`,
    `head`) apply to projectors, except a ModelSource, which has its own options. `head` also
    applies to the embeddings (cosine or euclidean). With several `heads` projectors are scored by
    each. With `leave_one_out`, or if `data` are items of
    one modality (`rows`), the other items with the same label are right. With a file `qrels`, items
    that it grades above 0 are right. Each of `samples` adds Monte Carlo with this many per side for
    projectors whose a and b are known. Raw embeddings come last if both sides are equally wide.
    Without `what`, each pair of the arrays `modalities` is compared; projectors and bundles know
    their own. Runs and qrels are written into the folder `trec`. Differences are to the first
    subject. Results and a page go to the folder `output`, if it is given: each subject is kept
    there as soon as it is ranked, and later runs do not rank it again, unless they write `trec`.
    `jobs` processes or the Dask cluster at `dask` rank subjects side by side. Raises CimError if
    the folder holds an evaluation of other data.
    """
    check_sampling(options.resamples, options.seed, options.samples)
    check_workers(options)
    sources = sources_of(
        options.what, {"poly": options.poly, **options.part(ModelOptions)}, options.heads or ()
    )
    if options.trec is not None:
        if options.dask is not None:
            raise ArgumentError("{trec} is written on this machine; expected {jobs}, not {dask}")
        folder = Path(options.trec)
        check_folder(folder)
        for name in QRELS:
            require_kept(folder / name)
    subjects = subjects_of(options, sources, say)
    judged = [replace(one, data=judged_rows(one.data, options.qrels)) for one in subjects]
    return evaluate_subjects(judged, options, say)


def evaluate_subjects(
    subjects: Sequence[Subject], options: EvaluateOptions, say: Say = silent
) -> Evaluation:
    """Rank all queries of every subject, and resample subjects of the same pair together.

    With items of one modality, a query never finds itself. Raises CimError if the data do not
    define right items, or if a score is not finite.
    """
    place = None if options.output is None else Path(options.output)
    with ExitStack() as stack:
        named = _named_subjects(subjects, options, stack)
        digests = {one.digest: one for one in named}
        points = {digest: SubjectPoint(digest, one.name) for digest, one in digests.items()}
        every = dict.fromkeys(one.pairs for one in named)
        data = "".join(one.data.digest_of(one.truth) for one in every)
        compute = stack.enter_context(workers(options, place))
        identity = {"data": content_digest(data.encode())}
        folder = stack.enter_context(EVALUATION.opened(place, identity, compute))

        def ranker(left: Mapping[str, SubjectPoint]) -> Ranker:
            alone = options.dask is None and options.jobs in (None, 1)
            return Ranker({one: digests[one] for one in left}, say if alone else silent)

        def usable(digest: str, known: Ranked) -> bool:
            return options.trec is None and known.measures(digests[digest].pairs)

        def told(text: str) -> None:
            say(text if place else str(text))  # a log keeps lines on subjects in a folder alone

        ranked = folder.outcomes(points, ranker, told, "subject", usable)
        for pairs in every:
            if pairs.runs is not None:
                write_qrels(pairs.runs, pairs.data, pairs.truth)
        say("resampling queries")
        scored = [(one, ranked[digest]) for digest, one in digests.items()]
        found = replace(_evaluation(scored, options), resumed=folder.resumed)
        return found if place is None else replace(found, written=write_page(found, place))


def _named_subjects(
    subjects: Sequence[Subject], options: EvaluateOptions, stack: ExitStack
) -> list[NamedSubject]:
    """The subjects with names and pairs, those of the same pair of modalities together.

    `stack` holds the folders of runs until the end.
    """
    # Data report an array as unread only if no subject reads it.
    unread = set.intersection(*(set(subject.data.unread) for subject in subjects))
    modalities = list(dict.fromkeys(subject.data.modalities for subject in subjects))
    found = []
    for pair in modalities:
        those = [one for one in subjects if one.data.modalities == pair]
        data = those[0].data
        left = tuple(name for name in data.unread if name in unread)
        data, runs = replace(data, unread=left), None
        alone = options.leave_one_out or data.alone
        check_truth(data, alone)
        if options.trec is not None:
            own = Path(options.trec)
            own = own / "-".join(pair or MODALITIES) if len(modalities) > 1 else own
            runs = stack.enter_context(staged(own, "the runs"))
        pairs = SubjectPairs(data, data.truth_of(alone), runs)
        names = numbered([one.name for one in those])
        found += [NamedSubject(n, one, pairs) for n, one in zip(names, those, strict=True)]
    return found


RankedSubjects = Sequence[tuple[NamedSubject, Ranked]]


def _evaluation(ranked: RankedSubjects, options: EvaluateOptions) -> Evaluation:
    """The scores of all subjects, and the notes on each pair of modalities."""
    scores, notes = list[Score](), list[str]()
    every = list(dict.fromkeys(one.pairs for one, _ in ranked))
    for pairs in every:
        those = [(one, found) for one, found in ranked if one.pairs is pairs]
        counts, data = those[0][1].queries.counts, pairs.data
        scores += _scores(those, options)
        for one, found in those:
            notes += [f"{one.name}: {text}" for text in (*one.subject.warnings, *found.notes)]
        notes += [*judged_by(data, pairs.truth), *data.notes]
        notes += few_queries(*counts.values(), called=data.called)
        notes += unused_labels(data, pairs.truth.by_class)
    data, truth = every[0].data, every[0].truth
    return Evaluation(
        data=data.file,
        texts=len(data.text),
        videos=len(data.video),
        queries=scores[0].queries,
        leave_one_out=options.leave_one_out or data.alone,
        by_class=any(one.truth.by_class for one in every),
        judged=truth.judged is not None,
        resamples=options.resamples,
        seed=options.seed,
        notes=tuple(dict.fromkeys(notes)),
        scores=tuple(scores),
    )


def _scores(ranked: RankedSubjects, options: EvaluateOptions) -> Iterator[Score]:
    """Resample the subjects of one pair of modalities together; differences are to the first."""
    first, found = ranked[0]
    truth, counts = first.pairs.truth, found.queries.counts
    rows = [partial(metrics, one.queries) for _, one in ranked]
    drawn = truth.text_to_video, truth.videos, options.seed, options.resamples
    every = [one.queries for _, one in ranked]
    samples = uncertainties(rows, rows[0], *drawn, queries=every)
    for (named, _), one in zip(ranked, samples, strict=True):
        losses = {key: loss for key, loss in one.losses.items() if key in RANKINGS_BY_KEY}
        less = {  # a loss is positive if the metric is worse; a rank is worse if it is higher
            key: loss if RANKINGS_BY_KEY[key].lower_is_better else loss.reversed
            for key, loss in losses.items()
        }
        subject, values = named.subject, rounded(one.metrics)
        told = named.name, subject.kind, subject.head.name, subject.data.called, counts
        differences = {} if named is first else less
        yield Score(*told, values, one.intervals, differences, subject.warnings)


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


class EncodedRows:
    """The rows as a trained program encodes them; several subjects may share it."""

    def __init__(self, program: Program, data: Embeddings):
        self.program, self.features = program, trained_features(Simulator(program), data)

    @cached_property
    def items(self) -> tuple[Gaussians, Gaussians]:
        """Their means and variances."""
        return gaussians(self.features)


@dataclass(eq=False)
class Ranker:
    """Subjects by their digests, and the rankings of each; subjects of one program share work.

    The rows of the last trained program are kept. Exact logits [n, m] of all programs are
    kept, by the program's identity and its sigmoid's a and b.
    """

    subjects: Mapping[str, NamedSubject]
    say: Say = silent
    _exact: dict[tuple[int, tuple[float, float]], FloatArray] = field(default_factory=dict)
    _last: EncodedRows | None = None

    def outcome(self, point: SubjectPoint) -> Ranked:
        """Rank the queries of a subject, also into a file of TREC if its pairs have a folder."""
        named = self.subjects[point.digest]
        name, subject, truth = named.name, named.subject, named.pairs.truth
        data, say = subject.data, self.say
        say(f"{name}: encoding {data.counted}")
        simulator = Simulator(subject.program)
        rows = self._last  # threads of a Dask worker share this
        if rows is None or rows.program is not subject.trained:
            self._last = rows = EncodedRows(subject.trained, data)
        trained = rows.features
        features = trained if subject.program is subject.trained else encode(simulator, data)
        text, video = real_means(subject.program, features)
        # Compiled means lack their common mean; move them back to the trained common mean.
        offset = common_mean(*real_means(subject.trained, trained)) - common_mean(text, video)
        say(f"{name}: scoring {len(data.text)} x {len(data.video)} pairs")
        with within_float64(data):
            if subject.samples is None or subject.sigmoid is None:
                scores = simulator.score(features["text"], features["video"])
            else:
                scores = monte_carlo(*rows.items, *subject.sigmoid, subject.samples, say=say).logit
        if not (np.isfinite(scores.min()) and np.isfinite(scores.max())):
            raise CimError(
                f"{name}: a score of {data.file} is not finite; the model is out of float64's range"
            )
        settle(scores)
        say(f"{name}: ranking")
        if named.pairs.runs is not None:
            write_run(named.pairs.runs, name, data, truth, scores)
        of_logits = subject.samples is not None or subject.head.predicts_logit
        ranked = rank_queries(scores, text + offset, video + offset, truth, of_logits)
        said = all_equal(scores, data.called, "scores")
        if subject.sigmoid is None or not of_logits:  # a polynomial may predict probabilities
            return Ranked(ranked, tuple(said))
        say(f"{name}: exact scores")
        if scores.size > MOST_PAIRS:
            few = f"no logit RMSE for more than {MOST_PAIRS:,} pairs; use `cimtool verify`"
            return Ranked(ranked, (*said, few))
        place = id(subject.trained), subject.sigmoid
        try:
            if place not in self._exact:
                logits = exact(*rows.items, *subject.sigmoid, say).logit
                self._exact[place] = on_grid(logits)
        except OutOfReach as error:
            return Ranked(ranked, (*said, f"no logit RMSE: {error}"))
        off = scores - self._exact[place]
        ranked.text["logit_squares"] = np.einsum("nm,nm->n", off, off) / off.shape[1]
        centred = both_sides({"centred_squares": centred_squares(scores, self._exact[place])})
        return Ranked(ranked.merged(centred), tuple(said))


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
