"""Measurements of queries, and every metric as a mean, median or maximum over them.

Each metric has one definition for the data as they are and for all resamples, so that its interval
is for the same number. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.intervals import Change, Interval
from cimtool.reference.bootstrap import (
    RESAMPLES,
    QueryCounts,
    Samples,
    counted_share,
    interval,
    resamples,
)
from cimtool.reference.measures import DIFFERENCES, RANKINGS, WAYS, RankingMetric, pooled
from cimtool.reference.metrics import ReferenceScores
from cimtool.reference.pair_draw import PairDraw

Metrics = dict[str, FloatArray]
"""Metrics by name, each with a value per resample [B]."""

MetricsOf = Callable[[Samples], Metrics]
"""A row of metrics in any sample."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows of the texts and of the videos whose queries count."""

    texts: IntArray
    videos: IntArray


@dataclass(frozen=True, eq=False)
class Queries:
    """Measurements of each query by name, for texts [n] and videos [m]; NaN if it is no query."""

    text: dict[str, FloatArray] = field(default_factory=dict)
    video: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Queries that have something right to find, by way; nothing if none is ranked."""
        sides = zip(WAYS, (self.text, self.video), strict=True)
        return {
            way: int(np.count_nonzero(~np.isnan(side["rank"])))
            for way, side in sides
            if "rank" in side
        }

    def merged(self, other: Queries) -> Queries:
        """Both together; if both have a name, the other's counts."""
        return Queries(self.text | other.text, self.video | other.video)

    def only(self, names: Sequence[str]) -> Queries:
        """The measurements of these names that are known, in this order."""
        sides = (self.text, self.video)
        return Queries(*({k: side[k] for k in names if k in side} for side in sides))

    def of(self, chosen: Selection) -> Queries:
        """The queries of a selection, each as it ranks in the whole gallery."""
        return Queries(
            {name: values[chosen.texts] for name, values in self.text.items()},
            {name: values[chosen.videos] for name, values in self.video.items()},
        )


def independent(queries: Queries, of: str, right: IntArray) -> dict[str, int]:
    """Queries with the measurement `of` by way; texts of one video, named in `right`, are one."""
    texts, videos = (~np.isnan(side[of]) for side in (queries.text, queries.video))
    counts = len(np.unique(right[texts])), int(np.count_nonzero(videos))
    return dict(zip(WAYS, counts, strict=True))


def differing(
    own: Queries, other: Queries, metric: RankingMetric, right: IntArray
) -> dict[str, int]:
    """Independent queries whose metric alone is not the same in two rows, by way."""
    found = {}
    for way, mine, theirs in ((WAYS[0], own.text, other.text), (WAYS[1], own.video, other.video)):
        one, two = mine[metric.of], theirs[metric.of]
        other_values = np.flatnonzero(~((one == two) | (np.isnan(one) & np.isnan(two))))
        changed = [i for i in other_values if _alone(metric, one[i]) != _alone(metric, two[i])]
        found[way] = len(np.unique(right[changed])) if way == WAYS[0] else len(changed)
    return found


LEAST_DIFFERING = 6
"""Independent queries that must differ for resamples to tell more than a sign.

If there is no difference, all of n differ in the same direction with chance 2^(1-n): 3% for 6.
"""


def widened(loss: Change, changed: int, count: int) -> Change:
    """A loss over `count` queries of which only those `changed` differ.

    If they are fewer than LEAST_DIFFERING, resamples of them tell little. Then the interval reaches
    as far from the loss as all queries that may differ could move it: the upper end of their share.
    """
    if changed >= LEAST_DIFFERING or count == 0:
        return loss
    most = counted_share(min(changed, count), count).high
    ends = max(loss.value - most, -1.0), min(loss.value + most, 1.0)
    return Change(loss.value, min(loss.low, ends[0]), max(loss.high, ends[1]))


def _alone(metric: RankingMetric, measured: float) -> float:
    """The metric of one query."""
    return float(metric.value(QueryCounts(np.ones((1, 1))), np.array([measured]))[0])


def share_queries(queries: Queries, right: IntArray) -> dict[str, int]:
    """The number of independent queries of each metric that is a mean of shares, by its name."""
    return {
        metric.keys[way]: count
        for metric in RANKINGS
        if metric.share and metric.one_number and metric.of in queries.text
        for way, count in independent(queries, metric.of, right).items()
    }


def compared(scores: Array, reference: ReferenceScores) -> Queries:
    """Differences of each query's scores from the reference's."""
    difference = scores - reference.scores
    text = {
        "logit_squares": np.einsum("nm,nm->n", difference, difference) / scores.shape[1],
        "bias": difference.mean(axis=1),
        "largest": np.maximum(difference.max(axis=1), -difference.min(axis=1)),
    }
    del difference  # as large as the scores
    of_both = {
        "centred_squares": reference.centred_squares(scores),
        "spread": reference.spread,
        "same_best": reference.same_best(scores),
    }
    text["spearman"] = reference.spearman(scores)
    return Queries(text).merged(both_sides(of_both))


def compared_on(drawn: PairDraw, scores: Array, reference: ReferenceScores) -> Queries:
    """The same estimated from the `drawn` pairs, without what takes all of them.

    Scores [n, m] of other pairs count for the best item alone.
    """
    difference = drawn.of(scores) - drawn.of(reference.scores)
    texts, videos = drawn.of_texts, drawn.of_videos
    text = {"logit_squares": texts.means(difference * difference), "bias": texts.means(difference)}
    of_both = {
        "centred_squares": (texts.variances(difference), videos.variances(difference)),
        "spread": reference.spread,
        "same_best": reference.same_best(scores),
    }
    return Queries(text).merged(both_sides(of_both))


def both_sides(found: Mapping[str, tuple[FloatArray, FloatArray]]) -> Queries:
    """Queries of measurements over texts and over videos."""
    text, video = ({name: one[side] for name, one in found.items()} for side in (0, 1))
    return Queries(text, video)


RANKINGS_BY_KEY = {key: metric for metric in RANKINGS for key in metric.keys.values()}
"""Metrics by the names of their values."""


def led(by_class: bool) -> tuple[RankingMetric, ...]:
    """All metrics of rankings; `by_class`, metrics of classes come first, otherwise last."""
    return tuple(sorted(RANKINGS, key=lambda one: one.by_class != by_class))


HIGHER_IS_BETTER = {
    *(key for key, metric in RANKINGS_BY_KEY.items() if not metric.lower_is_better),
    *(one.name for one in DIFFERENCES if not one.lower_is_better),
}
"""Names of metrics whose lowest value is the worst."""


def metrics(queries: Queries, samples: Samples) -> Metrics:
    """Every metric that the queries allow, in each resample, by its name in a report.

    RANKINGS are named by their keys (`r1_text_to_video`, ...), DIFFERENCES by their names.
    """
    found: Metrics = {}
    for way, values, draws in _ways(queries, samples):
        for metric in RANKINGS:
            if metric.of in values and way in metric.keys:
                name, own = metric.keys[way], values[metric.of]
                found[name] = samples.metric(name, own, partial(metric.value, draws, own))
    text, video = queries.text, queries.video
    for one in DIFFERENCES:
        if one.pooling is not None and one.of in text:
            both = samples.text, text[one.of], samples.video, video.get(one.of)
            found[one.name] = pooled(one.pooling, *both)
    return found


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Metrics without digits that are only rounding, for metrics with `decimals`."""
    return {
        name: RANKINGS_BY_KEY[name].rounded(value) if name in RANKINGS_BY_KEY else value
        for name, value in values.items()
    }


def _ways(
    queries: Queries, samples: Samples
) -> tuple[tuple[str, dict[str, FloatArray], QueryCounts], ...]:
    text, video = WAYS
    return (text, queries.text, samples.text), (video, queries.video, samples.video)


def once(queries: Queries) -> dict[str, float]:
    """The metrics of the data as they are."""
    sizes = [len(next(iter(side.values()), ())) for side in (queries.text, queries.video)]
    found = metrics(queries, Samples.once(*sizes))
    return {name: float(value[0]) for name, value in found.items()}


def relative_errors(values: Mapping[str, float]) -> dict[str, float]:
    """RMSEs among metrics in units of the reference's spread; infinite if it has none.

    The centred RMSE is of the worse direction, so its spread is the smaller of both.
    """
    found = {}
    for name, of, spreads in (
        ("relative_rmse", "logit_rmse", ("spread",)),
        ("relative_centred_rmse", "centred_rmse", ("spread", "video_spread")),
    ):
        if of in values:
            found[name] = relative(values[of], min(values[one] for one in spreads))
    return found


def relative(error: float, spread: float) -> float:
    """An error in units of a spread; without a spread infinite, or 0 if there is no error."""
    none = math.inf if error > 0 else 0.0
    return error / spread if spread > 0 else none


@dataclass(frozen=True)
class Uncertainty:
    """Metrics of one row, their intervals, and their losses from another row's, paired."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    losses: Mapping[str, Change]


def uncertainties(
    rows: Sequence[MetricsOf],
    reference: MetricsOf,
    right: IntArray,
    videos: int,
    seed: int,
    count: int = RESAMPLES,
    queries: Sequence[Queries] = (),
) -> list[Uncertainty]:
    """The uncertainty of each row's metrics; losses are the reference's metrics less the row's.

    `right` [n] names the video of each text; `count` resamples are drawn. If the rows are metrics
    of `queries`, a share of 0% or 100% has an interval too. A loss that no query has does not: the
    two rows may be the same.
    """
    drawn: list[list[tuple[Metrics, Metrics]]] = [[] for _ in rows]
    as_they_are = Samples.once(len(right), videos)
    for samples in chain([as_they_are], resamples(right, videos, seed, count)):
        best = reference(samples)
        for measured_in, row in zip(drawn, rows, strict=True):
            own = row(samples)
            measured_in.append((own, losses(best, own)))
    found = []
    shares = [share_queries(one, right) for one in queries] or [{} for _ in rows]
    for measured_in, counts in zip(drawn, shares, strict=True):
        measured, lost_in = zip(*measured_in, strict=True)
        known, lost = _changes(measured, counts), _changes(lost_in, {})
        values = {name: one.value for name, one in known.items()}
        ranges = {name: Interval(one.low, one.high) for name, one in known.items()}
        found.append(Uncertainty(values, ranges, lost | _worse_ways(lost)))
    return found


def _changes(blocks: Sequence[Metrics], shares: Mapping[str, int]) -> dict[str, Change]:
    """Each metric of the first block and its interval over the others.

    `shares` has the number of queries of each metric that is a share.
    """
    found = {}
    for name, (value,) in blocks[0].items():
        drawn = np.concatenate([block[name] for block in blocks[1:]])
        range_ = interval(drawn, shares.get(name))
        found[name] = Change(float(value), range_.low, range_.high)
    return found


def _worse_ways(lost: Mapping[str, Change]) -> dict[str, Change]:
    """The loss of each metric of RANKINGS in the way that loses most, by its name in LIMITS.

    The interval is that way's: the larger of two in every resample would be biased upwards.
    """
    found = {}
    for metric in RANKINGS:
        ways = [lost[key] for key in metric.keys.values() if key in lost]
        if ways:
            found[metric.loss] = max(ways, key=lambda one: _or_least(one.value))
    return found


def worse_losses(own: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The loss of each metric of RANKINGS that both rows have, in the way that loses most."""
    values = ({name: np.array(one) for name, one in row.items()} for row in (reference, own))
    lost = {name: float(value) for name, value in losses(*values).items()}
    changes = {name: Change(value, math.nan, math.nan) for name, value in lost.items()}
    return {name: one.value for name, one in _worse_ways(changes).items()}


def _or_least(value: float) -> float:
    """A value to compare by, NaN below all others: without a query there is no loss."""
    return -math.inf if math.isnan(value) else value


def losses(reference: Mapping[str, Array], own: Mapping[str, Array]) -> Metrics:
    """The loss of each metric of RANKINGS that both have: positive is worse, also for ranks."""
    both = {
        key: -1 if metric.lower_is_better else 1
        for key, metric in RANKINGS_BY_KEY.items()
        if key in reference and key in own
    }
    return {key: sign * (reference[key] - own[key]) for key, sign in both.items()}
