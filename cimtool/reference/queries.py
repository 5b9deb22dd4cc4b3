"""A score matrix query by query, and every figure as a mean, median or maximum over its queries.

One definition of each figure serves the data as they are and all their resamples, so that its
interval is of the very same number. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.reference.bootstrap import (
    RESAMPLES,
    Change,
    Interval,
    Samples,
    interval,
    intervals,
    resamples,
)
from cimtool.reference.metrics import (
    Recall,
    ReferenceScores,
    Retrieval,
    ScoreDrift,
    best_ranks,
    ranks,
)

WAY_NAMES = {"text_to_video": "text to video", "video_to_text": "video to text"}
WAYS = tuple(WAY_NAMES)
RECALLS = (1, 5, 10)
FEW_BEST = 50
"""The best items that mAP@50 looks at."""

LIMITS = ("logit_rmse", "top1_agreement_loss", "r1_loss", "r5_loss", "r10_loss")

Figures = dict[str, FloatArray]
"""Figures by name, each a value a resample [B]."""

Measured = Callable[[Samples], Figures]
"""A row of figures, whatever the sample."""


@dataclass(frozen=True, eq=False)
class Queries:
    """What each query got: arrays by name, over texts [n] and over videos [m]; NaN is no query."""

    text: dict[str, FloatArray] = field(default_factory=dict)
    video: dict[str, FloatArray] = field(default_factory=dict)

    def merged(self, other: Queries) -> Queries:
        """Both together; of a name in both, the other's."""
        return Queries(self.text | other.text, self.video | other.video)


def retrieved(scores: Array, text_to_video: IntArray) -> Queries:
    """The rank of each query's right item; videos that are right for no text are no queries."""
    return Queries(
        {"rank": ranks(scores, text_to_video).astype(np.float64)},
        {"rank": best_ranks(scores, text_to_video)},
    )


def compared(scores: Array, reference: ReferenceScores) -> Queries:
    """How far each query's scores are from the reference's."""
    difference = scores - reference.scores
    mean = difference.mean(axis=1)
    squares = np.einsum("nm,nm->n", difference, difference) / scores.shape[1]
    largest = np.maximum(difference.max(axis=1), -difference.min(axis=1))
    del difference  # as large as the scores
    best = reference.same_best(scores)
    text = {
        "squares": squares,
        "centred": np.maximum(squares - mean * mean, 0.0),
        "mean": mean,
        "largest": largest,
        "spread": reference.spread,
        "same_best": best[0],
        "spearman": reference.spearman(scores),
    }
    return Queries(text, {"same_best": best[1]})


def figures(queries: Queries, samples: Samples) -> Figures:
    """Every figure that the queries allow, in each resample; the names are those of a report.

    `r1_text_to_video`, ... `median_rank_*`, `map_*`, `cosine_gap`, the fields of `ScoreDrift`, and
    of named other matrices `<name>_rmse` and `<name>_top1`.
    """
    found: Figures = {}
    sides = (queries.text, samples.text), (queries.video, samples.video)
    for way, (values, draws) in zip(WAYS, sides, strict=True):
        if "rank" in values:
            rank = values["rank"]
            for k in RECALLS:
                found[f"r{k}_{way}"] = draws.mean(_at_most(rank, k))
            found[f"median_rank_{way}"] = draws.median(rank)
        if "precision" in values:
            found[f"map_{way}"] = draws.mean(values["precision"])
    if "squares" in queries.text:
        found |= _drift(queries, samples)
    text = samples.text
    for name, own in queries.text.items():
        if name.endswith("_squares"):
            found[name.replace("_squares", "_rmse")] = np.sqrt(text.mean(own))
        elif name.endswith("_best") and name != "same_best":
            found[name.replace("_best", "_top1")] = _worse(queries, samples, name)
    if "own_spread" in queries.text:
        found["own_spread"] = text.mean(queries.text["own_spread"])
    if "gap" in queries.text:
        found["cosine_gap"] = text.mean(queries.text["gap"])
    return found


def ranking_figures(queries: Queries, samples: Samples) -> Figures:
    """What `figures` has, and what only an evaluation asks: `mean_rank_*` and `map50_*`."""
    found = figures(queries, samples)
    sides = (queries.text, samples.text), (queries.video, samples.video)
    for way, (values, draws) in zip(WAYS, sides, strict=True):
        found[f"mean_rank_{way}"] = draws.mean(values["rank"])
        if "precision50" in values:
            found[f"map50_{way}"] = draws.mean(values["precision50"])
    return found


def _at_most(rank: FloatArray, k: int) -> FloatArray:
    return np.where(np.isnan(rank), np.nan, rank <= k)


def _drift(queries: Queries, samples: Samples) -> Figures:
    values, draws = queries.text, samples.text
    return {
        "logit_rmse": np.sqrt(draws.mean(values["squares"])),
        "centred_rmse": np.sqrt(draws.mean(values["centred"])),
        "bias": draws.mean(values["mean"]),
        "max_abs": draws.largest(values["largest"]),
        "spread": draws.mean(values["spread"]),
        "top1_agreement": _worse(queries, samples, "same_best"),
        "spearman": draws.mean(values["spearman"]),
    }


def _worse(queries: Queries, samples: Samples, name: str) -> FloatArray:
    found: FloatArray = np.minimum(
        samples.text.mean(queries.text[name]), samples.video.mean(queries.video[name])
    )
    return found


def once(queries: Queries) -> dict[str, float]:
    """The figures of the data as they are."""
    sizes = [len(next(iter(side.values()), ())) for side in (queries.text, queries.video)]
    found = figures(queries, Samples.once(*sizes))
    return {name: float(value[0]) for name, value in found.items()}


def drift_of(values: Mapping[str, float]) -> ScoreDrift:
    """The drift among figures."""
    return ScoreDrift(**{name: values[name] for name in ScoreDrift.__dataclass_fields__})


def retrieval_of(values: Mapping[str, float], queries: Queries) -> Retrieval:
    """The retrieval among figures; `queries` say how many there are."""
    ways = []
    for way, side in zip(WAYS, (queries.text, queries.video), strict=True):
        r1, r5, r10 = (values[f"r{k}_{way}"] for k in RECALLS)
        count = int(np.count_nonzero(~np.isnan(side["rank"])))
        ways.append(Recall(r1, r5, r10, values[f"median_rank_{way}"], count))
    return Retrieval(*ways)


def retrieval(scores: Array, text_to_video: IntArray) -> Retrieval:
    """Return R@1/5/10 and median ranks of `scores` [n, m]; `text_to_video` [n] is what is right."""
    queries = retrieved(scores, text_to_video)
    return retrieval_of(once(queries), queries)


def drift(scores: Array, reference: Array) -> ScoreDrift:
    """Compare `scores` with `reference`, both [n, m], in float64."""
    return drift_of(once(compared(scores.astype(np.float64), ReferenceScores(reference))))


def limit_metrics(own: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a limit can be put on, by their names in LIMITS, from two rows' figures.

    Losses are fractions, the worse of both directions; negative where the scores do better.
    """
    lost = {
        f"r{k}_loss": max(reference[f"r{k}_{way}"] - own[f"r{k}_{way}"] for way in WAYS)
        for k in RECALLS
    }
    drifted = {
        "logit_rmse": own["logit_rmse"],
        "top1_agreement_loss": 1 - own["top1_agreement"],
    }
    return drifted | lost


@dataclass(frozen=True)
class Uncertainty:
    """Intervals of one row's figures, and how they differ from another row's, paired."""

    intervals: Mapping[str, Interval]
    losses: Mapping[str, Change]


LOSS_FIGURES = (
    *(f"r{k}_{way}" for way in WAYS for k in RECALLS),
    *(f"{kind}_rank_{way}" for way in WAYS for kind in ("median", "mean")),
    *(f"{kind}_{way}" for way in WAYS for kind in ("map", "map50")),
    "cosine_gap",
)
"""Figures that the reference has as well, so that a row can lose some of them."""


def uncertainties(
    rows: Sequence[Measured],
    reference: Measured,
    right: IntArray,
    videos: int,
    seed: int,
    count: int = RESAMPLES,
) -> list[Uncertainty]:
    """The uncertainty of each row's figures; losses are the reference's figures less its own.

    `right` [n] names the video of each text; `count` is how many resamples are drawn.
    """
    parts: list[dict[str, list[FloatArray]]] = [{} for _ in rows]
    changes: list[dict[str, list[FloatArray]]] = [{} for _ in rows]
    for samples in resamples(right, videos, seed, count):
        best = reference(samples)
        for part, change, row in zip(parts, changes, rows, strict=True):
            own = row(samples)
            _append(part, own.items())
            _append(change, losses(best, own).items())
    once_each = Samples.once(len(right), videos)
    best = reference(once_each)
    found = []
    for part, change, row in zip(parts, changes, rows, strict=True):
        lost = {
            name: _change(float(value[0]), change[name])
            for name, value in losses(best, row(once_each)).items()
        }
        found.append(Uncertainty(intervals(part), lost | _worse_ways(lost)))
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


def losses(reference: Mapping[str, Array], own: Mapping[str, Array]) -> Figures:
    """What is lost of each figure that both have: positive is worse, of ranks too."""
    both = [name for name in LOSS_FIGURES if name in reference and name in own]
    signs = {name: -1 if "_rank_" in name else 1 for name in both}
    return {name: signs[name] * (reference[name] - own[name]) for name in both}


def _append(into: dict[str, list[FloatArray]], items: Iterable[tuple[str, FloatArray]]) -> None:
    for name, values in items:
        into.setdefault(name, []).append(values)


def _change(value: float, blocks: Sequence[FloatArray]) -> Change:
    found = interval(np.concatenate(blocks))
    return Change(value, found.low, found.high)
