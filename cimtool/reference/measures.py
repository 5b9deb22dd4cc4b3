"""All metrics: names, measurements of a query, directions, and names in tables.

A new metric is a `RankingMetric` in RANKINGS, or a `DifferenceMetric` in DIFFERENCES. Metrics of
selective retrieval and of probabilities measure the pairs of a query (`reference/pairs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.base.errors import CimError
from cimtool.base.modality_names import way_names
from cimtool.reference.bootstrap import QueryCounts
from cimtool.reference.metrics import RANKED, average_precision, discounted_gain, unit_rows
from cimtool.reference.selective import COVERAGE, answer_area, risk_area, selective_recall
from cimtool.reference.truth import Classes, Truth, alike_counts, alike_sums

WAYS = tuple(way_names())

Hits = tuple[IntArray, IntArray | None]
"""Positions of the right items of a query, best first, and their grades if they have any."""

Pooled = Callable[[QueryCounts, FloatArray], FloatArray]
"""One number per resample, from a measurement of each query."""


@dataclass(frozen=True)
class Metric:
    """A metric that is made from one measurement per query, named in `of`.

    `label` names it in sentences and `heading`, which may have lines, in tables; `essential`
    metrics stay in a narrow table. `share` metrics are shown in percent.
    """

    name: str
    label: str
    of: str
    help: str = ""
    lower_is_better: bool = False
    share: bool = False
    heading: str = ""
    essential: bool = True

    def rounded(self, value: float) -> float:
        """The value without digits that are only rounding."""
        return value


@dataclass(frozen=True)
class RankingMetric(Metric):
    """A metric of rankings; ties count against the right item.

    With `by_class`, all items of the query's class are right if classes are known. A query is
    measured by the rank of its best right item, by `of_hits` of all its right items, by `of_means`
    of both modalities' means, or by its pairs (`reference/pairs.py`). With `texts_only` each pair
    counts once, with its text; with `of_logit` the score must be the logit of a matching
    probability. Values have `decimals`: smaller digits are rounding in float64. `signed` metrics
    may be below 0. Reports keep measurements of queries that are `one_number`.
    """

    value: Pooled = QueryCounts.mean
    by_class: bool = False
    of_hits: Callable[[Hits], float] | None = None
    of_means: Callable[[Truth, Array, Array], FloatArray | None] | None = None
    texts_only: bool = False
    of_logit: bool = False
    one_number: bool = True
    decimals: int | None = None
    signed: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """The names of its values by way."""
        if self.texts_only:
            return {WAYS[0]: self.name}
        return {way: f"{self.name}_{way}" for way in WAYS}

    @property
    def loss(self) -> str:
        """The name of its loss in the worse way."""
        return f"{self.name}_loss"

    def labelled(self, way: str) -> str:
        """The label, with words for a way if the metric has ways."""
        return self.label if self.texts_only else f"{self.label} {way}"

    def rounded(self, value: float) -> float:
        """The value at its `decimals`; adding 0.0 makes a -0.0 a 0.0."""
        return value if self.decimals is None else round(value, self.decimals) + 0.0


Pooling = Literal[
    "text mean", "video mean", "text root", "text largest", "worse mean", "worse root"
]
"""The way that queries give one number: mean, its root, or largest; the worse of both sides."""


@dataclass(frozen=True)
class DifferenceMetric(Metric):
    """A metric of how scores differ from other scores, or of their spread.

    Without a `pooling` it is derived. `limit` is the name of its loss, if it can have a limit: an
    error is its own loss, a share loses 1 - share.
    """

    pooling: Pooling | None = None
    limit: str = ""

    def lost(self, value: float) -> float:
        """The value that a limit applies to."""
        return value if self.lower_is_better else 1 - value


def pooled(
    how: Pooling, text: QueryCounts, own: FloatArray, video: QueryCounts, other: FloatArray | None
) -> FloatArray:
    """One number per resample [B] from a measurement over texts, and over videos if known."""
    if how == "text largest":
        return text.largest(own)
    mean = text.mean(own)
    if other is not None and how == "video mean":
        mean = video.mean(other)
    elif other is not None and how == "worse mean":
        mean = np.minimum(mean, video.mean(other))
    elif other is not None and how == "worse root":
        mean = np.maximum(mean, video.mean(other))
    root: FloatArray = np.sqrt(mean) if how in ("text root", "worse root") else mean
    return root


RECALLS = (1, 5, 10)
RANK = "rank"
"""The measurement of a query: the rank of its best right item, from 1."""


def recall_at(k: int) -> RankingMetric:
    """The share of queries whose rank is at most k."""

    def within(draws: QueryCounts, rank: FloatArray) -> FloatArray:
        return draws.mean(np.where(np.isnan(rank), np.nan, rank <= k))

    said = f"a right item is among the {k} best, ties against it"
    return RankingMetric(f"r{k}", f"R@{k}", RANK, said, share=True, essential=k != 5, value=within)


RANKS = (
    *map(recall_at, RECALLS),
    RankingMetric(
        "median_rank", "median rank", RANK, "of the best right item", lower_is_better=True,
        essential=False, value=QueryCounts.median,
    ),
    RankingMetric(
        "mean_rank", "mean rank", RANK, "of the best right item", lower_is_better=True,
        essential=False,
    ),
)  # fmt: skip


PRECISIONS = (
    RankingMetric(
        "map", "mAP", "precision", "over the whole ranking", share=True, by_class=True,
        of_hits=lambda hits: average_precision(hits[0]),
    ),
    RankingMetric(
        "map_r", "mAP@R", "precision_r", "over the best R of R right items", share=True,
        by_class=True, essential=False,
        of_hits=lambda hits: average_precision(hits[0], len(hits[0])),
    ),
    RankingMetric(
        "map50", "mAP@50", "precision50", "over the 50 best", share=True, by_class=True,
        essential=False, of_hits=lambda hits: average_precision(hits[0], 50),
    ),
    RankingMetric(
        "ndcg10", "nDCG@10", "ndcg10", "over the 10 best", share=True, by_class=True,
        essential=False, of_hits=lambda hits: discounted_gain(hits[0], 10, hits[1]),
    ),
)  # fmt: skip


SURENESS = "sureness"
"""The measurement of a query [2]: its best score, and that of its best wrong item.

A query that is known to have no right item has the second alone.
"""


SELECTIVE = (
    RankingMetric(
        "aurc", "AURC", SURENESS,
        "share of wrong answers, averaged over coverages from the surest query to all",
        lower_is_better=True, share=True, essential=False, value=risk_area, one_number=False,
    ),
    RankingMetric(
        "r1_sure", f"R@1 at {COVERAGE:.0%}", SURENESS,
        f"R@1 among the {COVERAGE:.0%} of queries with the highest best score", share=True,
        essential=False, value=selective_recall,
        one_number=False,
    ),
    RankingMetric(
        "answer_auroc", "answer AUROC", SURENESS,
        "chance that the best score is higher with the right items than without", share=True,
        essential=False, value=answer_area, one_number=False,
    ),
)  # fmt: skip


RELIABILITY = "reliability"
"""The measurement of a text [bins, 3]: weight of its pairs, predicted and observed probability."""


def calibration_error(draws: QueryCounts, reliability: FloatArray) -> FloatArray:
    """The root mean square calibration error [B] from `reliability` [n, bins, 3].

    In each bin it is the difference of the mean predicted probability and the share of right pairs.
    The variance of that ratio of sums over texts is taken off its square (Kumar, Liang and Ma,
    NeurIPS 2019, with texts in place of independent pairs); below 0 counts as 0.
    """
    known = ~np.isnan(reliability[:, 0, 0])
    counts, (weight, predicted, observed) = draws.counts[:, known], reliability[known].T
    gaps, weight, number = (predicted - observed).T, weight.T, counts.sum(axis=1)
    found = np.full(len(counts), np.nan)
    drawn = number > 0
    if not known.any() or not drawn.any():
        return found
    counts, number = counts[drawn], number[drawn]
    of_bin = counts @ weight
    of_bin = np.where(of_bin > 0, of_bin, 1.0)
    mean = counts @ gaps / of_bin
    # Weighted by counts, so that resamples, which scatter twice as much, lose as much.
    squares = counts**2
    own = squares @ weight**2
    spread = squares @ gaps**2 - 2 * mean * (squares @ (gaps * weight)) + mean**2 * own
    # As n / (n - 1) for n texts of equal weight; one text alone has no spread.
    spread /= (1 - own / of_bin**2).clip(min=0.5)
    least = of_bin * mean**2 - spread / of_bin
    found[drawn] = np.sqrt((least.sum(axis=1) / number).clip(min=0))
    return found


HALF = "right and wrong pairs of a query count half each"

PROBABILITIES = (
    RankingMetric(
        "nll", "log loss", "nll", f"mean -ln of the probability of what is so; {HALF}",
        lower_is_better=True, heading="log\nloss", essential=False, texts_only=True, of_logit=True,
    ),
    RankingMetric(
        "brier", "Brier score", "brier", f"mean square error of the probability; {HALF}",
        lower_is_better=True, heading="Brier", essential=False, texts_only=True, of_logit=True,
    ),
    RankingMetric(
        "calibration_error", "calibration error", RELIABILITY,
        "root mean square difference of predicted and observed probability over bins of equal "
        f"weight, without what chance adds; {HALF}", lower_is_better=True, share=True,
        heading="calibr.\nerror", essential=False, value=calibration_error, texts_only=True,
        of_logit=True, one_number=False,
    ),
)  # fmt: skip


GAP_DECIMALS = 12
"""Decimals of cosine gaps: smaller digits are rounding in float64, and no gap must read 0."""


def gaps_of(truth: Truth, text: Array, video: Array) -> FloatArray | None:
    """The cosine gap of each text from means [n, d] and [m, d]; None without wrong pairs."""
    if truth.judged is not None:
        pairs = truth.judged.text, truth.judged.video
        return judged_cosine_gaps(text, video, pairs, truth.leave_one_out)
    if truth.leave_one_out:
        return None if truth.labels is None else class_cosine_gaps(text, video, truth.labels[0])
    return cosine_gaps(text, video, truth.text_to_video) if truth.videos > 1 else None


COSINE_GAP = RankingMetric(
    "cosine_gap", "cosine gap", "cosine_gap", "of right pairs less that of wrong ones",
    heading="cosine\ngap", essential=False, of_means=gaps_of, texts_only=True,
    decimals=GAP_DECIMALS, signed=True,
)  # fmt: skip


def cosine_gaps(text: Array, video: Array, text_to_video: IntArray) -> FloatArray:
    """For each text [n], its cosine with its right video less its mean cosine with the others.

    `text` is [n, d], `video` [m, d], and `text_to_video` [n] names each text's video. A row of
    zeros has cosine 0 with all. Raises CimError if no pair is wrong.
    """
    if len(video) < 2:
        raise CimError(f"the cosine gap needs wrong pairs; there is {len(video)} video, not 2")
    t, v = unit_rows(text), unit_rows(video)
    right = (t * v[text_to_video]).sum(axis=1)
    gaps: FloatArray = right - (t @ v.sum(axis=0) - right) / (len(v) - 1)
    return gaps


def class_cosine_gaps(text: Array, video: Array, labels: Classes) -> FloatArray:
    """For each item [n], its mean cosine with others of its class less its mean with the rest.

    `text` and `video` [n, d] are the same items as queries and as candidates; an item is not
    compared with itself. NaN for an item alone in its class, or if its class has all items.
    """
    t, v = unit_rows(text), unit_rows(video)
    near = np.einsum("nd,nd->n", t, alike_sums(labels, v))
    others = alike_counts(labels)
    rest = len(labels) - 1 - others
    right = (near - (t * v).sum(axis=1)) / np.where(others > 0, others, np.nan)
    gaps: FloatArray = right - (t @ v.sum(axis=0) - near) / np.where(rest > 0, rest, np.nan)
    return gaps


def judged_cosine_gaps(
    text: Array, video: Array, pairs: tuple[IntArray, IntArray], alone: bool
) -> FloatArray:
    """For each text [n], its mean cosine with its right videos less its mean with all others.

    `pairs` are the rows of text and video of each right pair. With `alone`, row i of both is one
    item, which is not compared with itself. NaN for a text without right or without wrong videos.
    """
    t, v = unit_rows(text), unit_rows(video)
    near = np.zeros(len(t))
    for part in blocks(len(pairs[0]), RANKED // t.shape[1]):
        texts, videos = (one[part] for one in pairs)
        np.add.at(near, texts, np.einsum("pd,pd->p", t[texts], v[videos]))
    right = np.bincount(pairs[0], minlength=len(t))
    itself = np.einsum("nd,nd->n", t, v) if alone else 0.0
    wrong = len(v) - alone - right
    rest = t @ v.sum(axis=0) - itself - near
    of_right = near / np.where(right > 0, right, np.nan)
    gaps: FloatArray = of_right - rest / np.where(wrong > 0, wrong, np.nan)
    return gaps


DIFFERENCES = (
    DifferenceMetric(
        "centred_rmse", "centred logit RMSE", "centred_squares",
        "difference from {reference} without each query's mean difference, which changes no "
        "rank: root mean square, the worse way; ± is its own error",
        lower_is_better=True, heading="centred\nRMSE", pooling="worse root", limit="centred_rmse",
    ),
    DifferenceMetric(
        "relative_centred_rmse", "centred RMSE of spread", "",
        "the same as a share of the spread within a query", lower_is_better=True, share=True,
        heading="% of\nspread",
    ),
    DifferenceMetric(
        "step_centred_rmse", "step", "step_centred_squares",
        "centred RMSE against the row before; * is the largest", lower_is_better=True,
        heading="step", pooling="worse root",
    ),
    DifferenceMetric(
        "float_centred_rmse", "centred vs float", "float_centred_squares",
        "centred RMSE against the float {surrogate}", lower_is_better=True, heading="vs\nfloat",
        pooling="worse root",
    ),
    DifferenceMetric(
        "logit_rmse", "logit RMSE", "logit_squares", "with the mean differences of queries",
        lower_is_better=True, heading="RMSE", pooling="text root", limit="logit_rmse",
    ),
    DifferenceMetric(
        "bias", "bias", "bias", "mean difference", lower_is_better=True, heading="bias",
        essential=False, pooling="text mean",
    ),
    DifferenceMetric(
        "max_abs", "largest difference", "largest", "largest difference", lower_is_better=True,
        heading="max", essential=False, pooling="text largest",
    ),
    DifferenceMetric(
        "monte_carlo_rmse", "RMSE from Monte Carlo", "monte_carlo_squares",
        "from Monte Carlo, with its scatter", lower_is_better=True, heading="RMSE\nvs MC",
        essential=False, pooling="text root",
    ),
    DifferenceMetric(
        "top1_agreement", "top-1 agreement", "same_best",
        "queries with the reference's best item, the worse way", share=True, heading="top-1\n%",
        pooling="worse mean", limit="top1_agreement_loss",
    ),
    DifferenceMetric(
        "float_top1", "top-1 agreement with float", "float_best",
        "the same of the float {surrogate}", share=True, heading="float\ntop-1", essential=False,
        pooling="worse mean",
    ),
    DifferenceMetric(
        "spearman", "rank correlation", "spearman", "Spearman's, mean over queries",
        heading="rank\ncorr.", essential=False, pooling="text mean",
    ),
    DifferenceMetric(
        "float_rmse", "RMSE from float", "float_squares", lower_is_better=True, pooling="text root"
    ),
    DifferenceMetric(
        "step_rmse", "RMSE of the step", "step_squares", lower_is_better=True, pooling="text root"
    ),
    DifferenceMetric("spread", "spread of the reference", "spread", pooling="text mean"),
    DifferenceMetric("video_spread", "the same of a video", "spread", pooling="video mean"),
    DifferenceMetric("own_spread", "spread of the scores", "own_spread", pooling="text mean"),
    DifferenceMetric("own_video_spread", "the same of a video", "own_spread", pooling="video mean"),
)  # fmt: skip


RANKINGS: tuple[RankingMetric, ...] = (
    *RANKS, *PRECISIONS, *SELECTIVE, COSINE_GAP, *PROBABILITIES
)  # fmt: skip
"""The metrics of rankings in every table, limit and budget, metrics of pairs first."""
