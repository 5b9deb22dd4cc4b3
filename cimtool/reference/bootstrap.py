"""Intervals: of a metric over resampled queries, of a counted share, of a few figures.

The bootstrap draws queries with replacement; texts of one video are drawn together. The gallery
stays the same. All metrics of all stages use the same draws, so that the difference of two is
paired. A query whose value is NaN does not count in that metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.intervals import Change, Interval

RESAMPLES = 1000
LEVEL = 0.95
BLOCK_COUNTS = 1 << 18
"""Counts of queries that are held at a time: they stay in the cache while metrics are computed."""


def resampled_pairs(texts: int, videos: int) -> Callable[[Array], FloatArray]:
    """A function from values [n, m] of pairs to their means [RESAMPLES].

    In each resample texts and videos are drawn with replacement, the same for all values.
    """
    stream = Generator(Philox(key=0))
    of_text, of_video = (
        stream.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in (texts, videos)
    )

    def means(values: Array) -> FloatArray:
        drawn: FloatArray = ((of_text @ values) * of_video).sum(axis=1)
        return drawn

    return means


@dataclass(frozen=True, eq=False)
class QueryCounts:
    """The `counts` [B, n] of each query in each resample."""

    counts: FloatArray

    @classmethod
    def once(cls, queries: int) -> QueryCounts:
        """The sample in which every query occurs once: the data as they are."""
        return cls(np.ones((1, queries)))

    @cached_property
    def _sizes(self) -> FloatArray:
        """Number of queries in each resample, [B]."""
        found: FloatArray = self.counts.sum(axis=1)
        return found

    def mean(self, values: Array) -> FloatArray:
        """Mean of `values` [n] in each resample, [B]; NaN if no query is left."""
        known = ~np.isnan(values)
        total = self.counts @ np.where(known, values, 0.0)
        number = self._sizes if known.all() else self.counts @ known.astype(np.float64)
        found: FloatArray = np.divide(
            total, number, out=np.full(len(total), np.nan), where=number > 0
        )
        return found

    def median(self, values: Array) -> FloatArray:
        """Median of `values` [n] in each resample, [B]; NaN if no query is left."""
        order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]
        if not len(order):
            return np.full(len(self.counts), np.nan)
        below = np.cumsum(self.counts[:, order], axis=1)
        half = below[:, -1:] / 2
        last = len(order) - 1
        lower = np.minimum((below < half).sum(axis=1), last)
        upper = np.minimum((below <= half).sum(axis=1), last)
        ordered = values[order]
        middle: FloatArray = (ordered[lower] + ordered[upper]) / 2
        return np.where(half[:, 0] > 0, middle, np.nan)

    def largest(self, values: Array) -> FloatArray:
        """Largest of `values` [n] in each resample, [B]."""
        order = np.argsort(-values, kind="stable")
        found: FloatArray = values[order][(self.counts[:, order] > 0).argmax(axis=1)]
        return found


@dataclass(frozen=True, eq=False)
class Samples:
    """Resamples of both kinds of queries: texts, and videos for the way back.

    Rows that share measurements share the metrics of them.
    """

    text: QueryCounts
    video: QueryCounts
    _known: dict[tuple[str, int], tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def metric(
        self, name: str, values: FloatArray, compute: Callable[[], FloatArray]
    ) -> FloatArray:
        """The metric `name` [B] of these measurements, computed for the first row that has them."""
        place = name, id(values)  # the values are kept with it, so that no others get this id
        if place not in self._known:
            self._known[place] = values, compute()
        return self._known[place][1]

    @classmethod
    def once(cls, texts: int, videos: int) -> Samples:
        """The data as they are."""
        return cls(QueryCounts.once(texts), QueryCounts.once(videos))


def resamples(right: IntArray, videos: int, seed: int, count: int = RESAMPLES) -> Iterator[Samples]:
    """Yield `count` resamples in blocks; the size of a block does not change them.

    `right` [n] names the video of each text. Texts of one video are not independent queries. So
    the resamples of texts draw videos, each with all of its texts (a cluster bootstrap).
    """
    own, cluster = np.unique(right, return_inverse=True)
    block = max(1, BLOCK_COUNTS // max(len(right), videos, 1))
    streams = [Generator(Philox(key=np.array([seed, way], np.uint64))) for way in (0, 1)]
    for start in range(0, count, block):
        size = min(block, count - start)
        texts, back = (
            _counts(stream, size, n) for stream, n in zip(streams, (len(own), videos), strict=True)
        )
        yield Samples(QueryCounts(texts[:, cluster]), QueryCounts(back))


def _counts(stream: Generator, size: int, queries: int) -> FloatArray:
    drawn = stream.integers(queries, size=(size, queries))
    drawn += np.arange(size)[:, None] * queries
    counts = np.bincount(drawn.ravel(), minlength=size * queries)
    return counts.reshape(size, queries).astype(np.float64)


def interval(values: Array, queries: int | None = None) -> Interval:
    """The middle LEVEL of a metric's `values` over resamples, without NaN.

    With `queries`, the metric is a mean over so many of numbers from 0 to 1. If all are 0, or all
    are 1, every resample is the same. Then the ends are those of `counted_share`: the chance that
    a query has another number is at most the share that may hide from so many queries.
    """
    edge = 50 * (1 - LEVEL)
    known = values[~np.isnan(values)]
    if not len(known):
        return Interval(np.nan, np.nan)
    low, high = np.percentile(known, (edge, 100 - edge))
    if queries is not None and low == high and low in (0.0, 1.0):
        return counted_share(int(low) * queries, queries).interval
    return Interval(float(low), float(high))


def counted_share(count: int, of: int) -> Change:
    """The share `count / of` and its interval, whose coverage is at least LEVEL for any share.

    Clopper and Pearson 1934: the ends are quantiles of beta distributions.
    """
    from scipy.special import betaincinv  # slow to load, and every command imports this

    edge = (1 - LEVEL) / 2
    low = float(betaincinv(count, of - count + 1, edge)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - edge)) if count < of else 1.0
    return Change(count / of, low, high)


def chance_of_split(first: int, second: int) -> float:
    """The chance that discordant pairs split this unevenly or more, if both kinds are as likely.

    The exact conditional test of two shares on the same items: `first` items have only the first
    property, `second` only the second. It is McNemar's test, Psychometrika 12, 1947, with the
    binomial distribution in place of the normal. It keeps its level for every number of items.
    Fagerland, Lydersen and Laake, BMC Med. Res. Methodol. 13:91, 2013, compare less cautious tests.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(first, second), first + second, 0.5)))


def students(values: Sequence[float]) -> Change:
    """The mean and its interval at LEVEL by Student's t; the ends are NaN for fewer than two."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Change(mean, np.nan, np.nan)
    from scipy.special import stdtrit  # slow to load, and every command imports this

    half = float(stdtrit(count - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(count))
    return Change(mean, mean - half, mean + half)
