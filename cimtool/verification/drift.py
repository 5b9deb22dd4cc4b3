"""The drift table: one row a stage, against the reference, the polynomial and the stage before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cimtool.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.metrics import (
    Drift,
    Retrieval,
    cosine_gap,
    drift,
    mean_average_precision,
    retrieval,
    top1_agreement,
)

GAP_DECIMALS = 12
"""Cosine gaps are rounded to these: less is rounding in float64, and no gap must read 0."""

TIE_GRID = 2.0**-30
"""Scores this share of the largest apart are one: equal items differ by rounding in float64."""

POLYNOMIAL = "polynomial"
"""The row of the float surrogate: the trained program before any pass."""


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
class Row:
    """One stage of the table; None is a figure not known, or of a row compared with itself.

    `spread` is the mean over queries of the standard deviation of the row's own scores within a
    query. `drift` is against the reference; `polynomial_rmse` and `polynomial_top1` are the RMSE
    and top-1 agreement against the float polynomial; `step_rmse` is the RMSE against the row
    before.
    """

    stage: str
    drift: Drift | None = None
    spread: float | None = None
    polynomial_rmse: float | None = None
    polynomial_top1: float | None = None
    step_rmse: float | None = None
    retrieval: Retrieval | None = None
    mean_precision: MeanPrecision | None = None
    cosine_gap: float | None = None


def mean_precision(scores: Array, truth: Truth) -> MeanPrecision | None:
    """Return mAP of `scores` [n, m] both ways, over labelled videos; None without labels."""
    if truth.text_labels is None or truth.video_labels is None or truth.labelled is None:
        return None
    known, labels = scores[:, truth.labelled], truth.video_labels[truth.labelled]
    return MeanPrecision(
        mean_average_precision(known, truth.text_labels, labels),
        mean_average_precision(known.T, labels, truth.text_labels),
    )


def rmse(scores: Array, other: Array) -> float:
    """Root mean square difference of two matrices, in float64."""
    difference = scores.astype(np.float64) - other
    return float(np.sqrt(np.mean(difference * difference)))


def on_grid(scores: Array) -> FloatArray:
    """Round scores to multiples of TIE_GRID of the largest, a power of two; integers stay exact.

    Without it the ranks of equal items would be the rounding of one machine's matrix product.
    """
    scores = scores.astype(np.float64)
    _, exponent = np.frexp(np.abs(scores).max())
    step = np.ldexp(TIE_GRID, int(exponent))
    rounded: FloatArray = np.rint(scores / step) * step
    return rounded


@dataclass(eq=False)
class Table:
    """Collects rows stage by stage and holds four matrices [n, m] at most.

    `reference` is what drift is measured against, None for the float polynomial itself.
    """

    truth: Truth
    reference: FloatArray | None
    rows: list[Row] = field(default_factory=list)
    _polynomial: FloatArray | None = None
    _before: FloatArray | None = None
    _mean: FloatArray | None = None

    def add_reference(self, stage: str) -> None:
        """Append the reference's own row, or one of unknowns where there is no reference."""
        if self.reference is None:
            self.rows.append(Row(stage))
            return
        scores = self.reference
        self.rows.append(
            Row(
                stage,
                retrieval=retrieval(scores, self.truth.text_to_video),
                mean_precision=mean_precision(scores, self.truth),
            )
        )
        self._before = scores

    def add(self, stage: str, scores: Array, text_mu: Array, video_mu: Array) -> None:
        """Append a stage's row from its scores [n, m] and real means [n, d], [m, d].

        The first one is the float polynomial.
        """
        scores = on_grid(scores)
        self.rows.append(self.row(stage, scores, text_mu, video_mu))
        self._before = scores
        if self._polynomial is None:
            self._polynomial = scores

    def row(self, stage: str, scores: Array, text_mu: Array, video_mu: Array) -> Row:
        """The row of scores as `add` would append it, beside the table: its step is from the end.

        `scores` are those of `on_grid`.
        """
        polynomial, before = self._polynomial, self._before
        reference = polynomial if self.reference is None else self.reference
        return Row(
            stage,
            drift=None if reference is None else drift(scores, reference),
            spread=float(scores.std(axis=1).mean()),
            polynomial_rmse=None if polynomial is None else rmse(scores, polynomial),
            polynomial_top1=None if polynomial is None else top1_agreement(scores, polynomial),
            step_rmse=None if before is None else rmse(scores, before),
            retrieval=retrieval(scores, self.truth.text_to_video),
            mean_precision=mean_precision(scores, self.truth),
            cosine_gap=self._cosine_gap(text_mu, video_mu),
        )

    def _cosine_gap(self, text: Array, video: Array) -> float | None:
        """The cosine gap of the means, moved back to where training left their common mean.

        `fold` takes one common vector from both modalities: distances stay, cosines would not.
        """
        if len(video) < 2:
            return None
        mean = (text.mean(axis=0) + video.mean(axis=0)) / 2
        if self._mean is None:
            self._mean = mean
        offset = self._mean - mean
        gap = cosine_gap(text + offset, video + offset, self.truth.text_to_video)
        return round(gap, GAP_DECIMALS) + 0.0  # which makes a -0.0 a 0.0
