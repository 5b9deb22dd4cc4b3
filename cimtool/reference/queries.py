"""Measurements of queries, and every metric as a mean, median or maximum over them.

One definition of each metric serves the data as they are and all their resamples, so that its
interval is of the same number. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.named import unknown
from cimtool.reference.bootstrap import (
    RESAMPLES,
    Change,
    Interval,
    QueryCounts,
    Samples,
    interval,
    resamples,
)
from cimtool.reference.metrics import ReferenceScores

WAY_NAMES = {"text_to_video": "text to video", "video_to_text": "video to text"}
WAYS = tuple(WAY_NAMES)
RECALLS = (1, 5, 10)
UNRANKED_LIMITS = ("logit_rmse", "top1_agreement_loss")
"""Limits of differences from the reference, which need nothing that is right."""

LIMITS = (*UNRANKED_LIMITS, "r1_loss", "r5_loss", "r10_loss")

Metrics = dict[str, FloatArray]
"""Metrics by name, each a value a resample [B]."""

Measured = Callable[[Samples], Metrics]
"""A row of metrics in any sample."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows of the texts and of the videos whose queries count."""

    texts: IntArray
    videos: IntArray


@dataclass(frozen=True, eq=False)
class Queries:
    """Measurements of each query by name, over texts [n] and videos [m]; NaN is no query."""

    text: dict[str, FloatArray] = field(default_factory=dict)
    video: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Queries that have something right to find, by way; nothing where none is ranked."""
        sides = zip(WAYS, (self.text, self.video), strict=True)
        return {
            way: int(np.count_nonzero(~np.isnan(side["rank"])))
            for way, side in sides
            if "rank" in side
        }

    def merged(self, other: Queries) -> Queries:
        """Both together; of a name in both, the other's."""
        return Queries(self.text | other.text, self.video | other.video)

    def of(self, chosen: Selection) -> Queries:
        """The queries of a selection, each as it ranks in the whole gallery."""
        return Queries(
            {name: values[chosen.texts] for name, values in self.text.items()},
            {name: values[chosen.videos] for name, values in self.video.items()},
        )


def compared(scores: Array, reference: ReferenceScores) -> Queries:
    """Differences of each query's scores from the reference's."""
    difference = scores - reference.scores
    mean = difference.mean(axis=1)
    squares = np.einsum("nm,nm->n", difference, difference) / scores.shape[1]
    largest = np.maximum(difference.max(axis=1), -difference.min(axis=1))
    del difference  # as large as the scores
    best = reference.same_best(scores)
    text = {
        "logit_squares": squares,
        "centred_squares": np.maximum(squares - mean * mean, 0.0),
        "bias": mean,
        "largest": largest,
        "spread": reference.spread,
        "same_best": best[0],
        "spearman": reference.spearman(scores),
    }
    return Queries(text, {"same_best": best[1]})


MEANS = ("bias", "spread", "spearman", "own_spread", "cosine_gap")
"""Metrics that are the mean of an array of their name over the texts."""

RMSES = {
    "logit_rmse": "logit_squares",
    "centred_rmse": "centred_squares",
    "float_rmse": "float_squares",
    "monte_carlo_rmse": "monte_carlo_squares",
    "step_rmse": "step_squares",
}
"""Metrics that are the root of the mean of an array over the texts."""

WORSE_WAYS = {"top1_agreement": "same_best", "float_top1": "float_best"}
"""Metrics that are the lower of the means over texts and over videos."""

RECALL_METRICS = tuple(f"r{k}_{way}" for way in WAYS for k in RECALLS)
RANK_METRICS = tuple(f"{kind}_rank_{way}" for way in WAYS for kind in ("median", "mean"))
PRECISION_METRICS = tuple(f"{kind}_{way}" for way in WAYS for kind in ("map", "map50"))

LOSS_METRICS = (*RECALL_METRICS, *RANK_METRICS, *PRECISION_METRICS, "cosine_gap")
"""Metrics that the reference has as well, so that a row can lose some of them."""

HIGHER_IS_BETTER = {
    *(*RECALL_METRICS, *PRECISION_METRICS, *WORSE_WAYS),
    *("spread", "spearman", "own_spread", "cosine_gap"),
}
"""Metrics of which the worst are the lowest."""


def metrics(queries: Queries, samples: Samples) -> Metrics:
    """Every metric that the queries allow, in each resample; the names are those of a report.

    `r1_text_to_video`, ... `median_rank_*`, `map_*`, `max_abs` (the largest difference), and those
    of MEANS and WORSE_WAYS, and RMSEs.
    """
    found: Metrics = {}
    for way, values, draws in _ways(queries, samples):
        if "rank" in values:
            rank = values["rank"]
            for k in RECALLS:
                found[f"r{k}_{way}"] = draws.mean(np.where(np.isnan(rank), np.nan, rank <= k))
            found[f"median_rank_{way}"] = draws.median(rank)
        if "precision" in values:
            found[f"map_{way}"] = draws.mean(values["precision"])
    own, text = queries.text, samples.text
    found |= {name: text.mean(own[name]) for name in MEANS if name in own}
    found |= {name: np.sqrt(text.mean(own[of])) for name, of in RMSES.items() if of in own}
    for name, of in WORSE_WAYS.items():
        if of in own:
            found[name] = np.minimum(text.mean(own[of]), samples.video.mean(queries.video[of]))
    if "largest" in own:
        found["max_abs"] = text.largest(own["largest"])
    return found


def ranking_metrics(queries: Queries, samples: Samples) -> Metrics:
    """Those of `metrics`, and what only an evaluation asks: `mean_rank_*` and `map50_*`."""
    found = metrics(queries, samples)
    for way, values, draws in _ways(queries, samples):
        found[f"mean_rank_{way}"] = draws.mean(values["rank"])
        if "precision50" in values:
            found[f"map50_{way}"] = draws.mean(values["precision50"])
    return found


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
    """RMSEs among metrics in units of the reference's spread; infinite where it has none."""
    found = {}
    for name, of in (("relative_rmse", "logit_rmse"), ("relative_centred_rmse", "centred_rmse")):
        if of in values:
            error, spread = values[of], values["spread"]
            none = math.inf if error > 0 else 0.0
            found[name] = error / spread if spread > 0 else none
    return found


def limit_metrics(own: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a limit can be put on, by their names in LIMITS, from two rows' metrics.

    Losses are fractions, the worse of both directions; negative where the scores do better. Those
    of recalls are missing where nothing is ranked.
    """
    lost = {
        f"r{k}_loss": max(reference[f"r{k}_{way}"] - own[f"r{k}_{way}"] for way in WAYS)
        for k in RECALLS
        if f"r{k}_{WAYS[0]}" in own
    }
    agreement = own["top1_agreement"]
    return {"logit_rmse": own["logit_rmse"], "top1_agreement_loss": 1 - agreement, **lost}


@dataclass(frozen=True)
class DriftLimit:
    """A metric of the compiled model, the most it may be, and what it is."""

    metric: str
    limit: float
    value: float

    @property
    def kept(self) -> bool:
        """True where the value is at most the limit; NaN is not."""
        return self.value <= self.limit

    def sentence(self) -> str:
        """The metric and its limit, for a message."""
        return f"{self.metric} is {self.value:.6g}; the limit is {self.limit:g}"


def check_metrics(argument: str, limits: Mapping[str, float]) -> None:
    """Raise CimError for an unknown metric, with the nearest, and for a limit that is no number."""
    for metric, limit in limits.items():
        if metric not in LIMITS:
            raise ArgumentError("{} {}", Argument(argument), unknown("metric", metric, LIMITS))
        if not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ArgumentError(
                "{} {}: {!r} is no finite number; expected one", Argument(argument), metric, limit
            )


@dataclass(frozen=True)
class Uncertainty:
    """Metrics of one row, their intervals, and their losses from another row's, paired."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    losses: Mapping[str, Change]


def uncertainties(
    rows: Sequence[Measured],
    reference: Measured,
    right: IntArray,
    videos: int,
    seed: int,
    count: int = RESAMPLES,
) -> list[Uncertainty]:
    """The uncertainty of each row's metrics; losses are the reference's metrics less its own.

    `right` [n] names the video of each text; `count` is how many resamples are drawn.
    """
    drawn: list[list[tuple[Metrics, Metrics]]] = [[] for _ in rows]
    as_they_are = Samples.once(len(right), videos)
    for samples in chain([as_they_are], resamples(right, videos, seed, count)):
        best = reference(samples)
        for blocks, row in zip(drawn, rows, strict=True):
            own = row(samples)
            blocks.append((own, losses(best, own)))
    found = []
    for blocks in drawn:
        known, lost = (_changes(side) for side in zip(*blocks, strict=True))
        values = {name: one.value for name, one in known.items()}
        ranges = {name: Interval(one.low, one.high) for name, one in known.items()}
        found.append(Uncertainty(values, ranges, lost | _worse_ways(lost)))
    return found


def _changes(blocks: Sequence[Metrics]) -> dict[str, Change]:
    """Each metric of the first block and its interval over the others."""
    found = {}
    for name, (value,) in blocks[0].items():
        range_ = interval(np.concatenate([block[name] for block in blocks[1:]]))
        found[name] = Change(float(value), range_.low, range_.high)
    return found


def _worse_ways(lost: Mapping[str, Change]) -> dict[str, Change]:
    """The loss of each recall in the direction that loses most, by its name in LIMITS.

    The interval is that direction's: the larger of two in every resample would be biased upwards.
    """
    found = {}
    for k in RECALLS:
        ways = [lost[f"r{k}_{way}"] for way in WAYS if f"r{k}_{way}" in lost]
        if ways:
            found[f"r{k}_loss"] = max(ways, key=lambda one: one.value)
    return found


def losses(reference: Mapping[str, Array], own: Mapping[str, Array]) -> Metrics:
    """The loss of each metric that both have: positive is worse, of ranks too."""
    both = [name for name in LOSS_METRICS if name in reference and name in own]
    signs = {name: -1 if name in RANK_METRICS else 1 for name in both}
    return {name: signs[name] * (reference[name] - own[name]) for name in both}
