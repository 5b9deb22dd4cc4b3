"""The verdict: whether the compiled model is worth it, against three things that one could do.

These are its own float score, Monte Carlo with the samples asked for, and raw rows in 8 bits, which
cost no model. Retrieval is compared on the same queries; errors are compared by the K at which
Monte Carlo would err as much, because its mean square error falls as 1/K.

"Better" and "worse" hold for 95% of resampled queries. "As good as" says that the interval leaves
out a difference that matters; if it does not, the two are "not shown to differ".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray
from cimtool.base.intervals import Change, Interval
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, way_names
from cimtool.base.typed_fields import made_of
from cimtool.reference.bootstrap import Samples
from cimtool.reference.larger_gallery import best_listed, chance_of_a_rival, first_of
from cimtool.reference.measures import RANK, SURENESS
from cimtool.reference.metrics import RAW_INT8
from cimtool.reference.pairs import sureness
from cimtool.reference.queries import Metrics, Queries, metrics, once, uncertainties
from cimtool.reference.statistics import Gaussians, centred
from cimtool.reference.truth import Truth
from cimtool.report.formats import percent, percent_range
from cimtool.verification.drift import BaselineLoss, DriftTable, baseline_losses

Standing = Literal["better", "as good", "not shown", "worse"]
"""The compiled model beside another score; "not shown" to differ if the queries cannot tell."""

LEAST_QUERIES = 6
"""Independent queries that can show a difference.

The interval by resamples never leaves the range of the queries' values. With n of them, all are on
one side of their median with chance 2^(1-n), and the interval misses it. That is 6% for 5 queries
and 3% for 6, and 5% is the most that an interval at 95% may miss.
"""

FEW_QUERIES = 200
"""Queries below which R@1 means little: 1 point is 2 of them."""

MARGIN = 0.01
"""The loss of R@1 or mAP that "as good as" rules out: 1 point.

A smaller one hardly matters: training by another seed changes R@1 of the demo by more.
"""

FACTOR = 2
"""Monte Carlo is as good if its K of the same error is within this factor of the K asked for.

Its error falls as the square root of K, so the two errors differ by 1.4 times at most.
"""

NEAR_CHANCE = 0.9
"""The mean rank, as a share of that by chance, from which on ranks may be those of chance."""

WORST = 0.01
"""The share of texts with the largest errors whose part of the mean square error is told."""


@dataclass(frozen=True)
class SampledAlike:
    """The K at which Monte Carlo would err as much as the compiled model, with intervals.

    `centred` is by the error that can change a rank, `whole` by the whole score; both are infinite
    without an error. `samples` is the K that was asked for. Of the independent `queries`, texts of
    one video are one.
    """

    samples: int
    queries: int
    centred: Change
    whole: Change

    @property
    def standing(self) -> Standing:
        """The compiled model against that K, by the error that can change a rank."""
        return self._standing_of(self.centred)

    @property
    def standing_whole(self) -> Standing:
        """The same by the whole score."""
        return self._standing_of(self.whole)

    def _standing_of(self, found: Change) -> Standing:
        if self.queries < LEAST_QUERIES:
            return "not shown"
        if found.low > self.samples:
            return "better"
        if found.high < self.samples:
            return "worse"
        near = self.samples / FACTOR <= found.low and found.high <= self.samples * FACTOR
        return "as good" if near else "not shown"

    @property
    def has_error(self) -> bool:
        """False if the compiled model's scores are the exact ones."""
        return math.isfinite(self.whole.value)

    @property
    def words(self) -> str:
        """The standing, and that by the whole score where it is another."""
        said = _than(self.standing, f"Monte Carlo with K={self.samples}")
        if not self.has_error:
            return f"{said} (it has no error at all)"
        if self.standing_whole == self.standing:
            return said
        whole, _ = WORDS[self.standing_whole]
        return f"{said} where ranks are concerned ({whole} in the whole score)"


def standing_of(loss: Change, queries: int) -> Standing:
    """The standing of a model that loses so much over so many independent queries."""
    if queries < LEAST_QUERIES:
        return "not shown"
    if loss.low > 0:
        return "worse"
    if loss.high < 0:
        return "better"
    return "as good" if loss.high <= MARGIN else "not shown"


@dataclass(frozen=True)
class LargerGallery:
    """R@1 of texts among `items`, extrapolated from the data's gallery, with intervals.

    `gain` is the compiled model's R@1 less that of raw rows in 8 bits on the same texts; both are
    None for rows of two widths. `missed` is the largest error of the same method from half of the
    data's gallery to the whole one, which was measured, times the doublings from there to `items`;
    the intervals are wider by it. Of the independent `queries`, texts of one video are one.
    """

    items: int
    queries: int
    compiled: Change
    raw: Change | None
    gain: Change | None
    missed: float

    @property
    def sentence(self) -> str:
        """The R@1 of both, and the error of the method where it can be checked."""
        told = f"{_percent(self.compiled)} compiled"
        if self.raw is not None and self.gain is not None:
            gain = f"{100 * self.gain.value:+.1f} {percent_range(self.gain.low, self.gain.high)}"
            told += f" against {_percent(self.raw)} by raw rows in int8, {gain} points"
        return (
            f"Extrapolated to {self.items:,} items, R@1 text to video is {told}. The intervals "
            f"have {percent(self.missed)} points for the method: its error from half of the items "
            "here to all of them, once a doubling."
        )


def _percent(found: Change) -> str:
    return f"{percent(found.value)}% {percent_range(found.low, found.high)}"


@dataclass(frozen=True)
class Worth:
    """The compiled model against Monte Carlo, its float score and raw rows in 8 bits.

    What is not known is None: `sampled` without a and b or without an exact score, `of_raw` for
    rows of two widths, both losses if nothing is ranked, `larger` if it was not asked for.
    `raw_by_chance` says that raw rows rank no better than chance, as those of two encoders without
    a common space do. `variance` is the mean of a^2 vd, by which the variances of the items change
    the score; `worst_share` the part of the centred mean square error that the worst WORST of the
    texts have. If the float score is `broken`, nothing follows.
    """

    broken: bool
    sampled: SampledAlike | None
    of_float: BaselineLoss | None
    of_raw: BaselineLoss | None
    items: int
    variance: float | None
    worst_share: float | None
    larger: LargerGallery | None = None
    raw_by_chance: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Worth:
        """Read plain values by the names of the fields; TypeError or KeyError for others."""
        parts = dict(values)
        for name, (kind, changes) in PARTS.items():
            if (one := parts[name]) is not None:
                known = {key: made_of(Change, one[key]) for key in changes if one[key] is not None}
                parts[name] = made_of(kind, one | known)
        return made_of(cls, parts)

    @property
    def against_raw(self) -> Standing | None:
        """The standing against raw rows, in the larger gallery if one was asked for."""
        larger = self.larger
        if larger is not None and larger.gain is not None:
            return standing_of(larger.gain.reversed, larger.queries)
        return self.against_raw_here

    @property
    def against_raw_here(self) -> Standing | None:
        """The standing against raw rows among the items of the data."""
        return None if self.of_raw is None else standing_of(self.of_raw.loss, self.of_raw.queries)

    @property
    def gain(self) -> Change | None:
        """The gain of the compiled model over raw rows, among `ranked_items`.

        Of the larger gallery; but what is worse among the items of the data, and not known there,
        counts as worse. All is open with too few queries, and None if it is not known.
        """
        standing = self.against_raw
        larger = None if self.larger is None else self.larger.gain
        here = None if self.of_raw is None else self.of_raw.loss.reversed
        lost = standing == "not shown" and self.against_raw_here == "worse"
        found = here if larger is None or lost else larger
        if found is not None and self.few:
            return replace(found, low=-1.0, high=1.0)
        return found

    @property
    def ranked_items(self) -> int:
        """The items that the verdict is for: of the larger gallery if one was asked for."""
        return self.items if self.larger is None else self.larger.items

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The standings that are known: against raw rows, sampling, the float score."""
        found: list[Standing] = []
        if self.against_raw is not None:
            found.append(self.against_raw)
        if self.against_raw == "not shown" and self.against_raw_here == "worse":
            found.append("worse")
        if self.sampled is not None:
            found.append(self.sampled.standing)
        if self.of_float is not None:
            found.append(standing_of(self.of_float.loss, self.of_float.queries))
        return tuple(found)

    @property
    def few(self) -> str:
        """The sentence on too few queries; empty if there are enough."""
        ranked = [one for one in (self.of_float, self.of_raw) if one is not None]
        counts = [one.queries for one in (self.sampled, self.larger, *ranked) if one is not None]
        least = min(counts, default=LEAST_QUERIES)
        if least >= LEAST_QUERIES:
            return ""
        told = "1 query is" if least == 1 else f"{least} queries are"
        sampled = self.sampled is not None and self.sampled.queries >= LEAST_QUERIES
        of = f" of {ranked[0].metric}" if sampled and ranked else ""
        return f"{told} too few to be sure{of}."

    @property
    def tone(self) -> Literal["", "good", "bad"]:
        """Bad if it is worse than anything, good if it is better than something, else neither."""
        if self.broken or "worse" in self.standings:
            return "bad"
        if self.sampled is not None and self.sampled.standing_whole == "worse":
            return ""
        beats_raw = self.against_raw in (None, "better")
        return "good" if "better" in self.standings and beats_raw else ""

    @property
    def sentence(self) -> str:
        """The verdict in a line; unless raw rows are worse, they come first."""
        return self.about("The compiled model")

    def about(self, subject: str) -> str:
        """The same of a compiled model that is called `subject`."""
        if self.broken:
            return "No verdict: the float score is BROKEN, before any hardware."
        if not self.standings:
            return "No verdict: nothing is ranked, and the exact score is not known."
        said = []
        if self.sampled is not None:
            said.append(self.sampled.words)
        if self.of_float is not None:
            standing = standing_of(self.of_float.loss, self.of_float.queries)
            said.append(_than(standing, "its float score"))
        if self.against_raw is not None:
            at = len(said) if self.against_raw == "better" else 0
            said.insert(at, self._beside_raw(self.against_raw))
        verdict = f"{subject} is {', '.join(said)}."
        return f"{verdict} {self.few}" if self.few else verdict

    def _beside_raw(self, standing: Standing) -> str:
        """The standing against raw rows; if it is open in a larger gallery, that here too."""
        raw, here = "raw rows in int8", self.against_raw_here
        raw += " (which rank by chance)" * self.raw_by_chance
        if self.larger is None:
            return _than(standing, raw)
        if standing != "not shown" or here in (None, standing):
            return _than(standing, f"{raw} among {self.larger.items:,} items")
        first = _than(here, f"{raw} among {self.items:,} items")
        return f"{first} ({WORDS[standing][0]} among {self.larger.items:,})"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the variances of items, and on the error that few texts have."""
        said = []
        if self.variance is not None:
            how = "they matter" if self.variance >= 1 else "they change the score little"
            said.append(f"Variances of the items: a^2 vd is {self.variance:.3g} on average, {how}.")
        if self.worst_share is not None:
            said.append(
                f"The worst {WORST:.0%} of the texts have {self.worst_share:.0%} of the centred "
                "mean square error."
            )
        return tuple(said)


PARTS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "sampled": (SampledAlike, ("centred", "whole")),
    "of_float": (BaselineLoss, ("loss",)),
    "of_raw": (BaselineLoss, ("loss",)),
    "larger": (LargerGallery, ("compiled", "raw", "gain")),
}
"""The parts of a verdict, each with its figures that have an interval."""

WORDS: dict[Standing, tuple[str, str]] = {
    "better": ("better", "than"),
    "as good": ("as good", "as"),
    "not shown": ("not shown to differ", "from"),
    "worse": ("WORSE", "than"),
}


def _than(standing: Standing, other: str) -> str:
    return " ".join((*WORDS[standing], other))


def worth_of(
    table: DriftTable,
    surrogate: str,
    monte_carlo: tuple[str, int] | None,
    variance: float | None,
    seed: int,
    called: Modalities = TEXT_VIDEO,
) -> Worth:
    """Compare the table's last row with the rows of float score, Monte Carlo and raw rows.

    `monte_carlo` names its row and its K; None if the exact score is not known. The float score is
    taken to be sound. `called` names the modalities.
    """
    compiled = table.stages[-1]
    named = ((surrogate, compiled), (RAW_INT8, compiled))
    losses = baseline_losses(table, named, seed) if table.truth.ranks else ()
    found = {one.baseline: in_names(one, called) for one in losses}
    own, sampled = table.queries[-1], None
    if monte_carlo is not None:
        name, samples = monte_carlo
        other = table.queries_of(name)
        if other is not None and "centred_squares" in own.text:
            sampled = sampled_alike(own, other, samples, table.truth, seed)
    squares = own.text.get("centred_squares")
    return Worth(
        broken=False,
        sampled=sampled,
        of_float=found.get(surrogate),
        of_raw=found.get(RAW_INT8),
        items=table.truth.videos,
        variance=variance,
        worst_share=None if squares is None else worst_share(squares),
        raw_by_chance=by_chance(table.queries_of(RAW_INT8), table.truth),
    )


def by_chance(raw: Queries | None, truth: Truth) -> bool:
    """True if the best right items of texts rank no higher than by chance, or hardly.

    By chance the best of r right items has a rank of (n + 1) / (r + 1) among n on average. The mean
    over texts in units of this one is then NEAR_CHANCE at least, and not shown to be below 1 by
    three standard errors. Fewer than FEW_QUERIES cannot show it.
    """
    if raw is None or RANK not in raw.text or not truth.ranks:
        return False
    items = truth.videos - truth.leave_one_out
    ranks, right = raw.text[RANK], items - truth.rivals[0]
    known = ~np.isnan(ranks) & (right > 0)
    queries = len(np.unique(truth.text_to_video[known]))
    if queries < FEW_QUERIES:
        return False
    shares = ranks[known] * (right[known] + 1) / (items + 1)
    mean, error = shares.mean(), shares.std() / math.sqrt(queries)
    return bool(mean >= NEAR_CHANCE and mean + 3 * error >= 1)


def in_names(one: BaselineLoss, called: Modalities) -> BaselineLoss:
    """A loss whose way has the names of the modalities."""
    ways = dict(zip(way_names().values(), way_names(called).values(), strict=True))
    return replace(one, way=ways.get(one.way, ""))


NO_ERROR = 1e-6
"""The share of the error on all queries that is the least on a resample."""

ERRORS = {"centred": "centred_rmse", "whole": "logit_rmse"}


def sampled_alike(
    own: Queries, other: Queries, samples: int, truth: Truth, seed: int
) -> SampledAlike:
    """K of the same error on the same queries; `other` ones are of Monte Carlo with `samples`."""
    own, other = (one.only(("centred_squares", "logit_squares")) for one in (own, other))
    whole, of_sampling = once(own), once(other)

    def equal(drawn: Samples) -> Metrics:
        mine, sampled = metrics(own, drawn), metrics(other, drawn)
        # Without an error on the few queries of a resample, K would be infinite.
        return {
            name: samples * (sampled[error] / np.maximum(mine[error], NO_ERROR * whole[error])) ** 2
            for name, error in ERRORS.items()
            if whole[error] > 0
        }

    right = truth.text_to_video
    (found,) = uncertainties([equal], _nothing, right, truth.videos, seed)
    known: dict[str, Any] = {}
    for name, error in ERRORS.items():
        # Without an error no K has the same one, unless sampling has none either.
        value = found.metrics.get(name, math.inf if of_sampling[error] > 0 else float(samples))
        ends = found.intervals.get(name, Interval(value, value))
        known[name] = Change(value, ends.low, ends.high)
    return SampledAlike(samples, len(np.unique(right)), **known)


def in_larger_gallery(
    scores: FloatArray,
    raw: FloatArray | None,
    truth: Truth,
    items: int,
    seed: int,
    listed: BoolArray | None = None,
) -> LargerGallery:
    """Extrapolate R@1 by compiled `scores` and `raw` ones [n, m] to a gallery of `items`.

    With a shortlist a text is answered rightly if its best right item is `listed` [n, m] too: the
    list is the same share of both galleries, and the wrong items that it leaves out are none of
    the nearest.
    """
    videos = truth.videos
    known = {"compiled": scores} | ({} if raw is None else {"raw": raw})
    firsts: dict[str, FloatArray] = {}
    missed, doublings = 0.0, max(1.0, math.log2(items / videos))
    for name, one in known.items():
        firsts[name] = first_of(chance_of_a_rival(one, truth), items)
        half = first_of(chance_of_a_rival(one, truth, every=2), videos)
        best, rival = sureness(one, truth).text[SURENESS].T
        first = best > rival
        checked = ~np.isnan(half)
        # Without a wrong item in half of the gallery nothing was checked.
        off = abs(float((half - first)[checked].mean())) if checked.any() else 1.0
        missed = max(missed, off)
    missed *= doublings
    if listed is not None:
        firsts["compiled"] = firsts["compiled"] * best_listed(scores, listed, truth)
    if "raw" in firsts:
        firsts["gain"] = firsts["compiled"] - firsts["raw"]

    def means(drawn: Samples) -> Metrics:
        return {name: drawn.text.mean(values) for name, values in firsts.items()}

    (found,) = uncertainties([means], _nothing, truth.text_to_video, videos, seed)
    known_changes = {
        name: Change(
            found.metrics[name],
            max(found.intervals[name].low - missed, -1.0 if name == "gain" else 0.0),
            min(found.intervals[name].high + missed, 1.0),
        )
        for name in firsts
    }
    known_texts = truth.text_to_video[~np.isnan(firsts["compiled"])]
    return LargerGallery(
        items,
        len(np.unique(known_texts)),
        known_changes["compiled"],
        known_changes.get("raw"),
        known_changes.get("gain"),
        missed,
    )


def _nothing(_: Samples) -> Metrics:
    return {}


def worst_share(squares: FloatArray) -> float | None:
    """The part of the sum of `squares` [n] that the largest WORST of them have, at least one."""
    total = float(squares.sum())
    most = max(1, round(WORST * len(squares)))
    return float(np.sort(squares)[-most:].sum()) / total if total > 0 else None


def mean_variance(text: Gaussians, video: Gaussians, a: float) -> float:
    """The mean of a^2 vd over all pairs, from the moments of both sides.

    With s = s_t + s_v and delta = mu_t - mu_v, vd sums 2 s^2 + 4 delta^2 s over dimensions.
    """
    text, video = centred(text, video)
    found = 0.0
    for one, other in ((text, video), (video, text)):
        s, mean, square = one.s.mean(axis=0), other.mu.mean(axis=0), (other.mu**2).mean(axis=0)
        # delta^2 s of one side's s; the other side's is the other turn.
        near = (one.mu**2 * one.s).mean(axis=0) - 2 * (one.mu * one.s).mean(axis=0) * mean
        found += float((2 * (one.s**2).mean(axis=0) + 4 * (near + s * square)).sum())
    both = text.s.mean(axis=0) * video.s.mean(axis=0)
    return a * a * (found + 4 * float(both.sum()))
