"""The drift table: one row a stage, against the reference, the float score and the stage before.

Its queries are kept in a report, so that a later run on the same data is paired with it. Baselines
are rankings that cost no projector or no score: raw embeddings by their cosine, if texts and videos
are equally wide, also rounded to 8 bits, and `-ed`, the plain negative expected distance, whose
logit is b - a ed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change, Interval
from cimtool.base.json_files import significant
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.limits import LIMITED
from cimtool.reference.measures import RANKINGS
from cimtool.reference.metrics import ReferenceScores, common_mean, on_grid, spreads
from cimtool.reference.pair_draw import PairDraw
from cimtool.reference.queries import (
    MetricsOf,
    Queries,
    Selection,
    Uncertainty,
    both_sides,
    compared,
    compared_on,
    differing,
    independent,
    led,
    metrics,
    relative_errors,
    rounded,
    uncertainties,
    widened,
)
from cimtool.reference.retrieval import after_shortlist, measured, of_means
from cimtool.reference.truth import Truth


@dataclass(frozen=True)
class StageRow:
    """One stage of the table. A metric that is not known is absent, as is a row against itself.

    `metrics` are by name, as `reference.queries.metrics` has them.
    `logit_rmse`, `centred_rmse`, `bias` and others to `spearman` are against the reference. Its
    `spread` is the mean standard deviation of scores within a text, `video_spread` within a video;
    `own_*` are the spreads of the row. `float_*`, `monte_carlo_rmse` and `step_*` are against the
    float score, Monte Carlo and the row before. `*centred_rmse` leave out the mean difference
    within each query, in the worse direction. `intervals` are of the metrics, `losses` are the
    reference's metrics less these, paired; `queries` are counted by way.
    """

    stage: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    losses: Mapping[str, Change] = field(default_factory=dict)

    def get(self, metric: str) -> float | None:
        """A metric; None if it is not there."""
        return self.metrics.get(metric)

    def with_interval(self, metric: str) -> Change | None:
        """A metric and its interval; None if it is not there."""
        if metric not in self.metrics:
            return None
        found = self.intervals[metric]
        return Change(self.metrics[metric], found.low, found.high)


def row_of(stage: str, queries: Queries, found: Uncertainty) -> StageRow:
    """The row of a stage from its metrics and the queries that they are of."""
    metrics = rounded({**found.metrics, **relative_errors(found.metrics)})
    return StageRow(stage, metrics, queries.counts, found.intervals, found.losses)


class DriftTable:
    """Collects rows stage by stage and holds five matrices [n, m], the references' two with them.

    Measuring a row needs about two more matrices.
    `reference` is what drift is measured against, None for the float score itself. With `of_logit`
    scores are logits of a matching probability, which is measured too.
    """

    def __init__(self, truth: Truth, reference: FloatArray | None, of_logit: bool = True):
        self.truth, self.of_logit = truth, of_logit
        self.stages: list[str] = []
        self.queries: list[Queries] = []
        self.against = Queries()
        """The queries of the row that losses are measured from."""
        self._reference = None if reference is None else self._ready(reference)
        self._float: ReferenceScores | None = None
        self._monte_carlo: ReferenceScores | None = None
        self._drawn: PairDraw | None = None  # the pairs that Monte Carlo was sampled on
        self._before: ReferenceScores | None = self._reference
        self._last: Queries | None = None  # of the scores before, in all that the next ones have
        self._mean: FloatArray | None = None

    def _ready(self, scores: Array) -> ReferenceScores:
        return ReferenceScores(scores, self.truth.leave_one_out)

    @property
    def scores(self) -> FloatArray:
        """The scores [n, m] that drift is measured against: the reference's or the float ones."""
        reference = self._reference or self._float
        assert reference is not None, "the table has no scores yet"
        return reference.scores

    @property
    def float_scores(self) -> FloatArray:
        """The scores [n, m] of the trained program."""
        assert self._float is not None, "the table has no scores yet"
        return self._float.scores

    def add_reference(self, stage: str, text_mu: Array, video_mu: Array) -> None:
        """Append the reference's row; if it cannot be computed, it has no metrics.

        The reference scores the trained means, and the row has their metrics too.
        """
        if self._reference is not None:
            queries = measured(self.scores, self.truth, self.of_logit)
            self.against = self._with_means(queries, text_mu, video_mu)
        self._append(stage, self.against)

    def add_monte_carlo(
        self, stage: str, scores: FloatArray, drawn: PairDraw | None = None
    ) -> None:
        """Append the row of Monte Carlo beside another reference.

        With `drawn`, only these pairs were sampled: errors are estimated from them.
        """
        queries = measured(scores, self.truth, self.of_logit, drawn)
        if self._reference is not None:
            found = (
                compared(scores, self._reference)
                if drawn is None
                else compared_on(drawn, scores, self._reference)
            )
            queries = queries.merged(found)
        self._monte_carlo, self._drawn = self._ready(scores), drawn
        self._append(stage, queries)

    def add(self, stage: str, scores: Array, text_mu: Array, video_mu: Array) -> None:
        """Append a stage's row from its scores [n, m] and real means [n, d], [m, d].

        The first row is the float score, of the trained program before any pass. Raises CimError
        where a score is not finite.
        """
        if not np.isfinite(scores).all():
            raise CimError(
                f"stage {stage}: a score is not finite; the model is out of float64's range"
            )
        scores = on_grid(scores)
        queries = self.measured(scores, text_mu, video_mu)
        self._append(stage, queries)
        self._before = self._ready(scores)
        if self._float is not None:
            self._last = queries
        else:
            self._float = self._before
            if self._reference is None:
                self.against = queries

    def add_beside(self, stage: str, scores: Array) -> None:
        """Append a row that is no step: the next row is not compared with it.

        Its scores are no stage's and come without means. One that is not finite has no metrics.
        """
        finite = bool(np.isfinite(scores).all())
        self._append(stage, self._compared(on_grid(scores)) if finite else Queries())

    def add_baseline(self, stage: str, scores: Array, of_logit: bool = False) -> None:
        """Append a row of retrieval alone, of logits too; nothing if nothing is ranked."""
        if self.truth.ranks:
            self._append(stage, measured(on_grid(scores), self.truth, of_logit and self.of_logit))

    def _append(self, stage: str, queries: Queries) -> None:
        self.stages.append(stage)
        self.queries.append(queries)

    def measured(self, scores: FloatArray, text_mu: Array, video_mu: Array) -> Queries:
        """Measure scores of `on_grid` query by query; the step is from the last row added."""
        before, last = self._before, self._last
        if before is not None and last is not None and np.array_equal(before.scores, scores):
            found = Queries(dict(last.text), dict(last.video))
        else:
            found = self._compared(scores)
        if before is not None:
            found.text["step_squares"] = before.squares(scores)
            step = both_sides({"step_centred_squares": before.centred_squares(scores)})
            found = found.merged(step)
        return self._with_means(found, text_mu, video_mu)

    def _compared(self, scores: FloatArray) -> Queries:
        """Retrieval of scores of `on_grid`, and their differences from the references."""
        found = measured(scores, self.truth, self.of_logit)
        found = found.merged(both_sides({"own_spread": spreads(scores)}))
        reference = self._reference or self._float
        if reference is not None:
            found = found.merged(compared(scores, reference))
        if self._float is not None:
            found.text["float_squares"] = self._float.squares(scores)
            of_float = {
                "float_centred_squares": self._float.centred_squares(scores),
                "float_best": self._float.same_best(scores),
            }
            found = found.merged(both_sides(of_float))
        if self._monte_carlo is not None:
            found.text["monte_carlo_squares"] = self._from_monte_carlo(scores)
        return found

    def _from_monte_carlo(self, scores: FloatArray) -> FloatArray:
        """Mean squared difference of each text's scores from Monte Carlo's, [n]."""
        assert self._monte_carlo is not None
        if self._drawn is None:
            return self._monte_carlo.squares(scores)
        difference = self._drawn.of(scores) - self._drawn.of(self._monte_carlo.scores)
        return self._drawn.of_texts.means(difference * difference)

    def _with_means(self, found: Queries, text: Array, video: Array) -> Queries:
        """Add the metrics of the means, after adding back the common mean that `fold` took off.

        `fold` takes one vector from both modalities: distances stay, cosines would not.
        """
        mean = common_mean(text, video)
        if self._mean is None:
            self._mean = mean
        offset = self._mean - mean
        return found.merged(of_means(self.truth, text + offset, video + offset))

    def answer_by(self, left: Array) -> None:
        """Let the texts of the last row retrieve by the scores that a shortlist `left`."""
        self.queries[-1] = self.after_shortlist(self.queries[-1], left)

    def after_shortlist(self, queries: Queries, left: Array) -> Queries:
        """Queries of all scores, with what texts retrieve by the scores that a shortlist `left`."""
        known = {"same_best": self._reference or self._float, "float_best": self._float}
        references = {n: one for n, one in known.items() if one is not None and n in queries.text}
        return after_shortlist(queries, left, self.truth, references)

    def queries_of(self, stage: str) -> Queries | None:
        """The queries of a row; None if there is none of this name."""
        return self.queries[self.stages.index(stage)] if stage in self.stages else None

    def finished(self, seed: int) -> tuple[StageRow, ...]:
        """The rows with the intervals of their metrics."""
        rows = [partial(metrics, one) for one in self.queries]
        found = self.uncertainties(rows, seed, queries=self.queries)
        return tuple(map(row_of, self.stages, self.queries, found))

    def compared_with(self, stage: str, other: str, seed: int) -> tuple[Uncertainty, Uncertainty]:
        """The uncertainty of the metric that leads, of a stage and of another; losses are from it.

        Other metrics of the same measurement come with it.
        """
        measurement = [led(self.truth.by_class)[0].of]
        queries = (self.queries[self.stages.index(name)] for name in (stage, other))
        own, reference = (partial(metrics, one.only(measurement)) for one in queries)
        first, second = self.uncertainties([own, reference], seed, reference)
        return first, second

    def uncertainties(
        self,
        rows: Sequence[MetricsOf],
        seed: int,
        other: MetricsOf | None = None,
        queries: Sequence[Queries] = (),
    ) -> list[Uncertainty]:
        """The uncertainty of rows measured on this table's pairs, those of `queries` if given.

        Losses are from the `other` row; without one from the reference's, or from the float score's
        if there is no reference.
        """
        truth, other = self.truth, other or partial(metrics, self.against)
        right, videos = truth.text_to_video, truth.videos
        return uncertainties(rows, other, right, videos, seed, queries=queries)


MOST_QUERIES = 1 << 14
"""Texts, and videos, that are kept; of more a draw that their number alone decides."""

RANKED = tuple(dict.fromkeys(metric.of for metric in RANKINGS if metric.one_number))
COMPARED = tuple(one.of for one in LIMITED)
"""Measurements against the reference, which its own row lacks."""

KEPT = (*RANKED, *COMPARED)

OF_REFERENCE = tuple(led(by_class)[0].of for by_class in (False, True))
"""Measurements of the reference that are kept: those of the metrics that lead."""


@dataclass(frozen=True)
class KeptQueries:
    """Measurements of queries by their names in Queries, over texts and over videos.

    Numbers of 6 significant digits, as JSON holds them; NaN is no query.
    """

    text: Mapping[str, tuple[float, ...]]
    video: Mapping[str, tuple[float, ...]]

    @property
    def queries(self) -> Queries:
        """The same as arrays."""
        sides = (self.text, self.video)
        return Queries(*({name: np.array(one) for name, one in side.items()} for side in sides))


@dataclass(frozen=True)
class KeptRun:
    """The queries of the compiled model and of its reference, those of `kept_rows`."""

    compiled: KeptQueries
    reference: KeptQueries


def kept_run(table: DriftTable) -> KeptRun:
    """Keep the queries of a table's last row and of the row that its losses are from."""
    rows = kept_rows(table.truth)
    compiled, reference = (one.of(rows) for one in (table.queries[-1], table.against))
    return KeptRun(_kept(compiled.only(KEPT)), _kept(reference.only(OF_REFERENCE)))


def _kept(queries: Queries) -> KeptQueries:
    sides = (queries.text, queries.video)
    return KeptQueries(*({name: _rounded(one) for name, one in side.items()} for side in sides))


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(significant(float(value)) for value in values)


def kept_rows(truth: Truth) -> Selection:
    """Rows of the texts and videos whose queries are kept: all, or MOST_QUERIES drawn of more."""
    return Selection(*map(_drawn, (len(truth.text_to_video), truth.videos)))


def _drawn(count: int) -> IntArray:
    if count <= MOST_QUERIES:
        return np.arange(count)
    rows: IntArray = np.sort(np.random.default_rng(count).permutation(count)[:MOST_QUERIES])
    return rows


DISTANCE = "-ed"


@dataclass(frozen=True)
class BaselineLoss:
    """The loss of a stage against a baseline, of R@1, or of mAP where classes are known.

    It is of the worse way, on the same queries, and negative if the stage does better.
    `of_baseline` and `of_stage` are the metric in that `way`, such as "text to video" ("" of items
    of one modality), of so many independent `queries`.
    """

    baseline: str
    stage: str
    metric: str
    loss: Change
    of_baseline: float
    of_stage: float
    queries: int
    way: str


def without_cosine(data: Embeddings) -> str | None:
    """The sentence on rows of tokens or of two widths, which have no cosine; None for others."""
    if any(data.tokens):
        return "raw embeddings have no cosine: an item is several tokens"
    text, video = data.text.shape[1], data.video.shape[1]
    if text == video:
        return None
    one, other = data.called
    return f"raw embeddings have no cosine: {one} rows have {text} numbers, {other} rows {video}"


def baseline_losses(
    table: DriftTable, pairs: Sequence[tuple[str, str]], seed: int
) -> tuple[BaselineLoss, ...]:
    """The loss of the stage of each pair (baseline, stage); of a baseline that is missing none."""
    return tuple(
        baseline_loss(
            (baseline, stage),
            *table.compared_with(stage, baseline, seed),
            (
                table.queries[table.stages.index(baseline)],
                table.queries[table.stages.index(stage)],
            ),
            table.truth,
        )
        for baseline, stage in pairs
        if baseline in table.stages
    )


def baseline_loss(
    names: tuple[str, str],
    own: Uncertainty,
    other: Uncertainty,
    queries: tuple[Queries, Queries],
    truth: Truth,
) -> BaselineLoss:
    """The loss of a stage against the `other` uncertainty, which its `own` losses are from.

    `names` are those of the baseline and of the stage, which have these `queries`.
    """
    metric = led(truth.by_class)[0]
    loss = own.losses[metric.loss]
    way = next(way for way, key in metric.keys.items() if own.losses[key] is loss)
    count = independent(queries[1], metric.of, truth.text_to_video)[way]
    changed = differing(*queries, metric, truth.text_to_video)[way]
    loss = widened(loss, changed, count)
    key = metric.keys[way]
    return BaselineLoss(
        *names,
        metric.label,
        loss,
        of_baseline=other.metrics[key],
        of_stage=own.metrics[key],
        queries=count,
        way="" if key == metric.name else way.replace("_", " "),
    )
