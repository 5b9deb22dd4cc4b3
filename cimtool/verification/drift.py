"""The drift table: one row a stage, against the reference, the float score and the stage before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.bootstrap import Change, Interval
from cimtool.reference.metrics import (
    ReferenceScores,
    Retrieval,
    ScoreDrift,
    average_precisions,
    common_mean,
    cosine_gaps,
    on_grid,
    spreads,
)
from cimtool.reference.queries import (
    Measured,
    Queries,
    Uncertainty,
    compared,
    drift_of,
    figures,
    once,
    retrieval_of,
    retrieved,
    uncertainties,
)

GAP_DECIMALS = 12
"""Cosine gaps are rounded to these: less is rounding in float64, and no gap must read 0."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Which video [n] is right for each text, and the classes of both sides where known.

    `video_labels` [m] are defined where `labelled` [m] says so: a video right for no text has none.
    """

    text_to_video: IntArray
    text_labels: IntArray | None = None
    video_labels: IntArray | None = None
    labelled: BoolArray | None = None


def truth_of(text_to_video: IntArray, labels: IntArray | None, videos: int) -> Truth:
    """Give each video the label of its texts; no labels at all where two of its texts disagree."""
    if labels is None:
        return Truth(text_to_video)
    of_video = np.zeros(videos, np.int64)
    of_video[text_to_video] = labels
    if not np.array_equal(of_video[text_to_video], labels):
        return Truth(text_to_video)
    labelled = np.bincount(text_to_video, minlength=videos) > 0
    return Truth(text_to_video, labels, of_video, labelled)


@dataclass(frozen=True)
class MeanPrecision:
    """Mean average precision over the whole ranking, by label, both ways."""

    text_to_video: float
    video_to_text: float


@dataclass(frozen=True)
class StageRow:
    """One stage of the table; None is a figure not known, or of a row compared with itself.

    `spread` is the mean over queries of the standard deviation of the row's own scores within a
    query. `drift` is against the reference; `float_rmse` and `float_top1` are the RMSE
    and top-1 agreement against the float score, `monte_carlo_rmse` the RMSE against Monte
    Carlo; `step_rmse` is the RMSE against the row before. `intervals` are of the figures by name,
    `losses` what the reference has more of them, paired.
    """

    stage: str
    drift: ScoreDrift | None = None
    spread: float | None = None
    float_rmse: float | None = None
    float_top1: float | None = None
    monte_carlo_rmse: float | None = None
    step_rmse: float | None = None
    retrieval: Retrieval | None = None
    mean_precision: MeanPrecision | None = None
    cosine_gap: float | None = None
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    losses: Mapping[str, Change] = field(default_factory=dict)


def row_of(stage: str, queries: Queries) -> StageRow:
    """The row of a stage from what its queries got."""
    return row_from(stage, once(queries), queries)


def row_from(stage: str, values: Mapping[str, float], queries: Queries) -> StageRow:
    """The row of a stage from its figures; `queries` say how many there are of each kind."""
    maps = [values.get(f"map_{way}") for way in ("text_to_video", "video_to_text")]
    gap = values.get("cosine_gap")
    return StageRow(
        stage,
        drift=drift_of(values) if "logit_rmse" in values else None,
        spread=values.get("own_spread"),
        float_rmse=values.get("float_rmse"),
        float_top1=values.get("float_top1"),
        monte_carlo_rmse=values.get("monte_carlo_rmse"),
        step_rmse=values.get("step_rmse"),
        retrieval=retrieval_of(values, queries) if "rank" in queries.text else None,
        mean_precision=None if None in maps else MeanPrecision(*maps),  # type: ignore[arg-type]
        # Less than these decimals is rounding; adding 0.0 makes a -0.0 a 0.0.
        cosine_gap=None if gap is None else round(gap, GAP_DECIMALS) + 0.0,
    )


def precision_queries(scores: Array, truth: Truth) -> Queries:
    """Average precision of each query of `scores` [n, m], over labelled videos; none unlabelled."""
    if truth.text_labels is None or truth.video_labels is None or truth.labelled is None:
        return Queries()
    known, labels = scores[:, truth.labelled], truth.video_labels[truth.labelled]
    back = np.full(scores.shape[1], np.nan)
    back[truth.labelled] = average_precisions(known.T, labels, truth.text_labels)
    return Queries(
        {"precision": average_precisions(known, truth.text_labels, labels)}, {"precision": back}
    )


def rmse(scores: Array, other: Array) -> float:
    """Root mean square difference of two matrices, in float64."""
    difference = scores.astype(np.float64) - other
    return float(np.sqrt(np.mean(difference * difference)))


class DriftTable:
    """Collects rows stage by stage and holds five matrices [n, m], the references' two with them.

    Measuring a row takes about two more, whatever comes with it.
    `reference` is what drift is measured against, None for the float score itself.
    """

    def __init__(self, truth: Truth, reference: FloatArray | None):
        self.truth = truth
        self.rows: list[StageRow] = []
        self.queries: list[Queries] = []
        self._videos = 0
        self._reference = None if reference is None else ReferenceScores(reference)
        self._float: ReferenceScores | None = None
        self._monte_carlo: ReferenceScores | None = None
        self._before: ReferenceScores | None = self._reference
        self._mean: FloatArray | None = None

    @property
    def scores(self) -> FloatArray:
        """The scores [n, m] that drift is measured against: the reference's or the float ones."""
        against = self._reference or self._float
        if against is None:
            raise TypeError("the table has no scores yet")
        return against.scores

    def add_unknown(self, stage: str) -> None:
        """Append the row of a score that cannot be computed."""
        self._append(StageRow(stage), Queries())

    def add_reference(self, stage: str) -> None:
        """Append the reference's own row."""
        if self._reference is None:
            raise TypeError("the table has no reference")
        queries = self._retrieved(self._reference.scores)
        self._append(row_of(stage, queries), queries)

    def add_monte_carlo(self, stage: str, scores: FloatArray) -> None:
        """Append the row of Monte Carlo beside another reference."""
        queries = self._retrieved(scores)
        if self._reference is not None:
            queries = queries.merged(compared(scores, self._reference))
        self._monte_carlo = ReferenceScores(scores)
        self._append(row_of(stage, queries), queries)

    def add(self, stage: str, scores: Array, text_mu: Array, video_mu: Array) -> None:
        """Append a stage's row from its scores [n, m] and real means [n, d], [m, d].

        The first one is the float score: of the trained program before any pass.
        """
        scores = on_grid(scores)
        queries = self.measured(scores, text_mu, video_mu)
        self._append(row_of(stage, queries), queries)
        self._before = ReferenceScores(scores)
        if self._float is None:
            self._float = self._before

    def _append(self, row: StageRow, queries: Queries) -> None:
        self.rows.append(row)
        self.queries.append(queries)

    def _retrieved(self, scores: FloatArray) -> Queries:
        self._videos = scores.shape[1]
        found = retrieved(scores, self.truth.text_to_video)
        return found.merged(precision_queries(scores, self.truth))

    def measured(self, scores: FloatArray, text_mu: Array, video_mu: Array) -> Queries:
        """What the queries got of scores of `on_grid`; the step is from the last row added."""
        found = self._retrieved(scores)
        found.text["own_spread"] = spreads(scores)
        reference = self._reference or self._float
        if reference is not None:
            found = found.merged(compared(scores, reference))
        if self._float is not None:
            found.text["float_squares"] = self._float.squares(scores)
            best = self._float.same_best(scores)
            found.text["float_best"], found.video["float_best"] = best
        if self._monte_carlo is not None:
            found.text["monte_carlo_squares"] = self._monte_carlo.squares(scores)
        if self._before is not None:
            found.text["step_squares"] = self._before.squares(scores)
        if len(video_mu) > 1:
            found.text["gap"] = self._cosine_gaps(text_mu, video_mu)
        return found

    def _cosine_gaps(self, text: Array, video: Array) -> FloatArray:
        """The cosine gaps of the means, moved back to where training left their common mean.

        `fold` takes one common vector from both modalities: distances stay, cosines would not.
        """
        mean = common_mean(text, video)
        if self._mean is None:
            self._mean = mean
        offset = self._mean - mean
        return cosine_gaps(text + offset, video + offset, self.truth.text_to_video)

    def finished(self, seed: int) -> tuple[StageRow, ...]:
        """The rows with the intervals of their figures."""
        found = self.uncertainties([partial(figures, one) for one in self.queries], seed)
        return tuple(
            replace(row, intervals=one.intervals, losses=one.losses)
            for row, one in zip(self.rows, found, strict=True)
        )

    def uncertainties(self, rows: Sequence[Measured], seed: int) -> list[Uncertainty]:
        """The uncertainty of rows measured on this table's pairs.

        Losses are against the reference's row, or the float score's where there is no reference.
        """
        first = next(one for one in self.queries if "rank" in one.text)
        right = self.truth.text_to_video
        return uncertainties(rows, partial(figures, first), right, self._videos, seed)
