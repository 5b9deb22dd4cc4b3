"""Goals of a choice of bits, measured on calibration rows with their intervals.

An error that is measured on few rows is another on others. So bits keep a goal only if the upper
end of its interval does on the rows that choose them, and the error itself does on the others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import ArgumentError
from cimtool.base.intervals import Change
from cimtool.base.modality_names import item_names
from cimtool.bundle.bit_choice import RANK_LOSS, DriftGoal
from cimtool.ir.program import Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.passes.base import HALF_ROWS, LEAST_HALF, half_rows
from cimtool.passes.distances import float_pairs
from cimtool.reference.bootstrap import LEVEL, counted_share, interval, resampled_pairs
from cimtool.reference.exact import exact
from cimtool.reference.measures import RANK
from cimtool.reference.metrics import best_ranks, centred_rmse, on_grid, ranks
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.queries import Queries, independent, metrics, uncertainties
from cimtool.reference.statistics import Gaussians
from cimtool.report.formats import four_digits
from cimtool.simulation.simulator import Simulator
from cimtool.verification.references import gaussians, trained_features

RANKED_ROWS = 1024
"""Rows of each modality in a half that are scored for a loss of ranks: few lost show in many only.
"""

PAIRS_OF_SAMPLES, LEAST_SAMPLED = 12_800, 32
"""Rows times samples whose Monte Carlo scores are computed at most, and the rows at least.

The square of such rows is the number of pairs, which are taken from all rows.
"""

GROWTHS = tuple(2.0 ** (n / 2) for n in range(-8, 9))
"""Factors by which the rounding's errors are scaled to see what ranks they change."""


@dataclass(frozen=True, eq=False)
class Half:
    """Calibration rows of both modalities.

    Of the first ones come float scores [n, m], and the `reference` [n, m]: the exact score if it is
    known and asked for, else the float score. `right` [n] is the right video of each text, if ranks
    are asked for. `sampled` [n, m] are square errors of Monte Carlo, if it is asked for; NaN if a
    pair was not sampled.
    """

    text: Array
    video: Array
    scores: FloatArray
    reference: FloatArray
    right: IntArray | None = None
    sampled: FloatArray | None = None

    @classmethod
    def of(
        cls, model: Model, data: Embeddings, samples: int | None = None, exactly: bool = True
    ) -> Half:
        """Score the first rows of `data`, more of them if right videos are known.

        Unless `exactly`, errors are from the float score.
        """
        rows = HALF_ROWS if data.text_to_video is None else RANKED_ROWS
        few = replace(data, text=data.text[:rows], video=data.video[:rows], text_to_video=None)
        _, scores = float_pairs(model.program, few.text, few.video)
        reference, sampled = scores, None
        if exactly and has_exact(model):
            items = gaussians(trained_features(Simulator(model.program), few))
            reference = exact(*items, *_sigmoid(model)).logit
            if samples is not None:
                sampled = _square_errors(*items, *_sigmoid(model), samples, reference)
        right = None if data.text_to_video is None else data.text_to_video[:rows]
        return cls(data.text, data.video, scores, reference, right, sampled)

    def scored(self, program: Program) -> FloatArray:
        """Scores [n, m] of the same rows by a compiled program."""
        texts, videos = self.scores.shape
        return Simulator(program).scores(self.text[:texts], self.video[:videos])


def has_exact(model: Model) -> bool:
    """True if the exact score of a model is known: a head that stands for sampling, a and b."""
    head = model.head
    return head.is_sampled and head.predicts_logit and None not in (model.a, model.b)


def _sigmoid(model: Model) -> tuple[float, float]:
    """The a and b of a model that has them."""
    assert model.a is not None
    assert model.b is not None
    return model.a, model.b


def _square_errors(
    text: Gaussians, video: Gaussians, a: float, b: float, samples: int, exact_logit: FloatArray
) -> FloatArray:
    """Square errors [n, m] of Monte Carlo, of some pairs if there are many samples; else NaN.

    The pairs are of parts of all texts with parts of all videos: an error that is the same for all
    pairs of a row then averages out over as many rows as there are.
    """
    n, m = exact_logit.shape
    count = max(PAIRS_OF_SAMPLES // samples, LEAST_SAMPLED)
    parts = min(max(math.ceil(n * m / count**2), 1), n, m)
    order = Generator(Philox(key=0)).permutation(m)  # right pairs stand side by side
    found = np.full((n, m), np.nan)
    both = (np.array_split(np.arange(n), parts), np.array_split(order, parts))
    for seed, (texts, videos) in enumerate(zip(*both, strict=True)):
        place = np.ix_(texts, videos)
        own = Gaussians(text.mu[texts], text.s[texts])
        drawn = monte_carlo(own, Gaussians(video.mu[videos], video.s[videos]), a, b, samples, seed)
        found[place] = np.square(drawn.logit - exact_logit[place])
    return found


PARTS = {True: (4, "a quarter"), False: (2, "half")}
"""Calibration rows as multiples of those that choose, and the share in words, by `held_out`."""


@dataclass(frozen=True)
class RowParts:
    """Calibration rows that compile a model to measure, that choose its bits, and the `others`."""

    compiling: Embeddings
    choosing: Embeddings
    others: Embeddings


def parts_of(
    data: Embeddings, rows: tuple[Array, Array], goal: DriftGoal, held_out: bool
) -> RowParts:
    """Every second video with its texts of the `rows` that calibrate, and the others.

    Where pairs are unknown, every second row. The first half compiles and chooses. With `held_out`
    it only compiles, and halves of the second half choose and are the others: weights that were
    rounded for some rows err less on these than on others. Choosing rows and others know their
    right videos only if the goal is a loss of ranks. CimError for too few rows.
    """
    text, video = rows
    right = None if data.text_to_video is None else data.text_to_video[: len(text)]
    first, second = _halves(replace(data, text=text, video=video, text_to_video=right))
    choosing, others = _halves(second) if held_out else (first, second)
    choosing, others = (_for_goal(part, goal) for part in (choosing, others))
    if min(len(rows) for part in (choosing, others) for rows in (part.text, part.video)) < (
        LEAST_HALF
    ):
        parts, share = PARTS[held_out]
        texts, videos = item_names(data.called)
        raise ArgumentError(
            "{drift} {}: {} has {:,} {} and {:,} {} that calibrate, and {} of them "
            "chooses the bits; expected at least {} of each",
            goal.text, data.file, len(text), texts, len(video), videos, share, parts * LEAST_HALF,
        )  # fmt: skip
    return RowParts(first if held_out else choosing, choosing, others)


def _halves(data: Embeddings) -> Iterator[Embeddings]:
    """Every second video with its texts, and the others."""
    right = data.text_to_video
    for of_text, of_video in half_rows(len(data.text), len(data.video), right):
        own = None if right is None else right[of_text] // 2
        yield replace(data, text=data.text[of_text], video=data.video[of_video], text_to_video=own)


def _for_goal(part: Embeddings, goal: DriftGoal) -> Embeddings:
    """The rows of a part that are scored, which know their right videos only for ranks."""
    own = part.text_to_video
    if goal.metric != RANK_LOSS or own is None:
        return replace(part, text_to_video=None)
    shown = own < min(RANKED_ROWS, len(part.video))
    return replace(part, text=part.text[shown], text_to_video=own[shown])


@dataclass(frozen=True)
class GoalError:
    """The `error` of `scores` on rows, and the `share` of what the goal allows on them."""

    scores: FloatArray = field(repr=False)
    error: Change
    share: Change


def _share(error: Change, limit: float) -> Change:
    """An error and its interval as shares of a limit."""
    return Change(error.value / limit, error.low / limit, error.high / limit)


class Criterion(ABC):
    """A purpose of choosing bits; `metric` names the error that measures it."""

    metric: str

    @abstractmethod
    def measured(self, rows: Half, scores: FloatArray) -> GoalError:
        """The error of scores [n, m]."""


class Limit(Criterion):
    """A limit of an error."""

    @abstractmethod
    def allowed(self, rows: Half) -> float:
        """The error that the goal allows on rows."""

    @abstractmethod
    def room(self, square: float, halves: Sequence[Half], found: Sequence[GoalError]) -> float:
        """The mean square that rounding may have, from a model whose rounding has this `square`.

        `found` are its errors on the rows that choose and on the others.
        """


def kept(found: Sequence[GoalError]) -> bool:
    """True if errors keep their goal: the interval on the rows that choose, the value on others."""
    choosing, others = found
    return choosing.share.high <= 1 and others.share.value <= 1


def worst(found: Iterable[GoalError]) -> GoalError:
    """The error whose interval ends highest, with the largest shares of all.

    The error with the highest end may be the smaller one, and both must keep a goal.
    """
    errors = list(found)
    shares = [(one.share.value, one.share.low, one.share.high) for one in errors]
    largest = Change(*(max(ends) for ends in zip(*shares, strict=True)))
    return replace(max(errors, key=lambda one: one.share.high), share=largest)


class LeastError(Criterion):
    """The least centred error from the float score."""

    metric = "centred_rmse"

    def measured(self, rows: Half, scores: FloatArray) -> GoalError:
        """The distance from the float score, which is no share of anything."""
        return GoalError(scores, error_on(self.metric, scores, rows.scores), Change(0.0, 0.0, 0.0))


@dataclass(frozen=True)
class ErrorWithin(Limit):
    """A limit of the distance from the reference; None: that of Monte Carlo on the same rows."""

    metric: str
    limit: float | None

    def allowed(self, rows: Half) -> float:
        """The limit, or the logit RMSE of Monte Carlo on the pairs that were sampled."""
        if self.limit is not None:
            return self.limit
        assert rows.sampled is not None
        return float(np.sqrt(np.nanmean(rows.sampled)))

    def measured(self, rows: Half, scores: FloatArray) -> GoalError:
        """The error, and its share of the limit; that of Monte Carlo is resampled with it."""
        error = error_on(self.metric, scores, rows.reference)
        if self.limit is None:
            share = error_on(self.metric, scores, rows.reference, rows.sampled)
        else:
            share = _share(error, self.limit)
        return GoalError(scores, error, share)

    def room(self, square: float, halves: Sequence[Half], found: Sequence[GoalError]) -> float:
        """All but the rounding stays: the score's own error, converters, offsets."""
        choosing, others = found
        error = choosing.error.value
        strain = max(choosing.share.high, others.share.value)
        return (error / strain) ** 2 - (error**2 - square)


@dataclass(frozen=True)
class LossWithin(Limit):
    """A limit of the loss of R@1 from the reference, in the way that loses more."""

    limit: float
    metric = RANK_LOSS

    def allowed(self, rows: Half) -> float:
        """The limit."""
        return self.limit

    def measured(self, rows: Half, scores: FloatArray) -> GoalError:
        """The loss, and its share of the limit."""
        (error,) = losses_on(rows, [scores])
        return GoalError(scores, error, _share(error, self.limit))

    def room(self, square: float, halves: Sequence[Half], found: Sequence[GoalError]) -> float:
        """The square of the errors as they are, scaled as far as they lose no more."""
        scaled = [
            losses_on(rows, [rows.scores + t * (one.scores - rows.scores) for t in GROWTHS])
            for rows, one in zip(halves, found, strict=True)
        ]
        most = 0.0
        for growth, choosing, others in zip(GROWTHS, *scaled, strict=True):
            if max(choosing.high, others.value) > self.limit:
                break
            most = growth
        return most**2 * square


def criterion_of(
    goal: DriftGoal, data: Embeddings, halves: Sequence[Half], held_out: bool = False
) -> Criterion:
    """The measure of a goal on calibration rows; CimError for a loss that they cannot show.

    `held_out` is that of `parts_of`.
    """
    if goal.metric is None:
        return LeastError()
    if goal.metric != RANK_LOSS:
        return ErrorWithin(goal.metric, None if goal.samples is not None else goal.limit)
    for rows in halves:
        queries = _queries_of(rows)
        hidden = counted_share(0, queries).high
        if hidden > goal.limit:
            parts, share = PARTS[held_out]
            needed = parts * math.ceil(math.log((1 - LEVEL) / 2) / math.log1p(-goal.limit))
            more = f", or at least {needed:,} calibration pairs" * (needed <= parts * RANKED_ROWS)
            raise ArgumentError(
                "{drift} {}: a loss of {} may hide from {:,} pairs, {} of those of {}; expected "
                "a larger loss{}",
                goal.text, four_digits(hidden), queries, share, data.file, more,
            )  # fmt: skip
    return LossWithin(goal.limit)


def check_pairs(data: Embeddings, goal: DriftGoal) -> None:
    """Raise CimError if ranks are asked for, and the right video of each text is not known."""
    if goal.metric == RANK_LOSS and (data.alone or data.text_to_video is None):
        held = "items of one modality" if data.alone else "no pairs that are known"
        raise ArgumentError(
            "{drift} {}: {} holds {}, so no answer is right; expected text_to_video, or logit_rmse",
            goal.text, data.file, held,
        )  # fmt: skip


def _ranked(rows: Half, scores: FloatArray) -> Queries:
    """The rank of the right answer of each query."""
    assert rows.right is not None
    settled = on_grid(scores)
    text = ranks(settled, rows.right).astype(np.float64)
    return Queries({RANK: text}, {RANK: best_ranks(settled, rows.right)})


def _queries_of(rows: Half) -> int:
    """Independent queries of the way that has fewer."""
    assert rows.right is not None
    return min(independent(_ranked(rows, rows.reference), RANK, rows.right).values())


def losses_on(rows: Half, scores: Sequence[FloatArray]) -> list[Change]:
    """The loss of R@1 of each of several scores [n, m] from the reference, as `verify` has it.

    The upper end is at least the share of queries that may hide from as many as there are.
    """
    assert rows.right is not None
    measured = [partial(metrics, _ranked(rows, one)) for one in scores]
    reference = partial(metrics, _ranked(rows, rows.reference))
    found = uncertainties(measured, reference, rows.right, rows.scores.shape[1], seed=0)
    hidden = counted_share(0, _queries_of(rows)).high
    losses = [one.losses[RANK_LOSS] for one in found]
    return [Change(one.value, one.low, max(one.high, hidden)) for one in losses]


def error_of(metric: str, scores: Array, reference: Array) -> float:
    """The logit RMSE, or that without the mean difference within a query."""
    if metric == "centred_rmse":
        return centred_rmse(scores, reference)
    return float(np.sqrt(np.square(scores - reference).mean()))


def error_on(
    metric: str, scores: FloatArray, reference: FloatArray, beside: FloatArray | None = None
) -> Change:
    """An error with the middle 95% over resamples of texts and of videos.

    With other square errors `beside` it [n, m], NaN where unknown, it is a share of their root.
    """
    value, error = error_of(metric, scores, reference), scores - reference
    errors = [error]
    if metric == "centred_rmse":  # the worse of both ways
        errors = [error - error.mean(axis=way, keepdims=True) for way in (0, 1)]
    mean = resampled_pairs(*error.shape)
    means = np.max([mean(np.square(one)) for one in errors], axis=0)
    if beside is not None:
        known = ~np.isnan(beside)
        means /= mean(np.where(known, beside, 0.0)) / mean(known)
        value /= float(np.sqrt(beside[known].mean()))
    ends = interval(np.sqrt(means))
    return Change(value, ends.low, ends.high)
