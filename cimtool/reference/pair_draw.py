"""A stratified sample of pairs, and means over all pairs of each query that it estimates.

Right pairs and the nearest wrong pairs of each text and each video are all in it. They decide
ranks. Of the other pairs each text draws as many, and each video is drawn about as often. A query's
mean over all of its pairs is estimated with the weights of its strata: a pair that is surely drawn
stands for itself, a pair drawn from the others for their number over the number drawn (Horvitz and
Thompson, J. Am. Stat. Assoc. 47, 1952, after stratification by query). So means and variances are
unbiased, and resampled queries show their error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray, blocks
from cimtool.reference.truth import Truth

PAIRS = 1 << 16
"""Pairs of a sample; up to so many are all measured."""

OF_QUERY = 16
"""Pairs of a sample for each text and each video, if these are more than PAIRS."""

RIGHT, NEAR = 1 / 8, 3 / 8
"""Shares of a sample: right pairs are all in it if they are at most this share of it, and the
nearest wrong pairs of either side are at most the second."""

AT_ONCE = 1 << 20
"""Pairs that are ranked at a time, to bound the memory."""


@dataclass(frozen=True, eq=False)
class Strata:
    """The pairs of a sample as queries of one side have them.

    `queries` [P] has the query of each pair, `sure` [P] is true if it was not left to chance.
    """

    queries: IntArray
    sure: BoolArray
    count: int  # queries
    items: int  # pairs of a query

    @cached_property
    def _drawn(self) -> FloatArray:
        """Pairs of each query that were drawn by chance."""
        return np.bincount(self.queries[~self.sure], minlength=self.count).astype(np.float64)

    @cached_property
    def _others(self) -> FloatArray:
        """Pairs of each query that could have been drawn."""
        sure = np.bincount(self.queries[self.sure], minlength=self.count)
        return (self.items - sure).astype(np.float64)

    @cached_property
    def stands_for(self) -> FloatArray:
        """The number of its query's pairs that each pair stands for, [P]."""
        each = self._others / np.maximum(self._drawn, 1)
        return np.where(self.sure, 1.0, each[self.queries])

    def means(self, values: FloatArray) -> FloatArray:
        """Estimate each query's mean over all pairs from `values` [P]; NaN if none was drawn."""
        sums = np.bincount(self.queries, self.stands_for * values, self.count)
        return np.where((self._drawn > 0) | (self._others == 0), sums / self.items, np.nan)

    def variances(self, values: FloatArray) -> FloatArray:
        """Estimate each query's variance over all pairs from `values` [P].

        The square of an estimated mean is too large by the variance of the estimate, which is
        taken off. NaN if one pair or none was drawn of several.
        """
        chance = self.queries[~self.sure], values[~self.sure]
        drawn, others = self._drawn, self._others
        mean = np.bincount(*chance, self.count) / np.maximum(drawn, 1)
        rest = chance[1] - mean[chance[0]]
        spread = np.bincount(chance[0], rest * rest, self.count) / np.maximum(drawn - 1, 1)
        unseen = 1 - drawn / np.maximum(others, 1)
        of_mean = (others / self.items) ** 2 * spread / np.maximum(drawn, 1) * unseen
        found = self.means(values * values) - self.means(values) ** 2 + of_mean
        return np.where((drawn > 1) | (drawn == others), np.maximum(found, 0.0), np.nan)


@dataclass(frozen=True, eq=False)
class PairDraw:
    """A sample of the pairs of `shape` [n, m]: the rows of `texts` [P] and `videos` [P].

    Pairs are in the order of texts, then of videos.
    """

    texts: IntArray
    videos: IntArray
    sure: BoolArray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def of_texts(self) -> Strata:
        """The pairs by text."""
        return Strata(self.texts, self.sure, *self.shape)

    @cached_property
    def of_videos(self) -> Strata:
        """The pairs by video."""
        return Strata(self.videos, self.sure, *self.shape[::-1])

    @cached_property
    def stands_for(self) -> FloatArray:
        """The number of its text's pairs that each pair stands for, [n, m]; 0 if not drawn."""
        found = np.zeros(self.shape)
        found[self.texts, self.videos] = self.of_texts.stands_for
        return found

    def of(self, scores: Array) -> Array:
        """The scores [P] of its pairs, of all scores [n, m]."""
        found: Array = scores[self.texts, self.videos]
        return found


def draw_pairs(scores: Array, truth: Truth, seed: int, most: int = PAIRS) -> PairDraw | None:
    """Draw about `most` pairs of `scores` [n, m], by which the nearest pairs are found.

    At least OF_QUERY for each text and video are drawn; None if these are all pairs. The sample
    follows from scores, right pairs and `seed` alone.
    """
    n, m = scores.shape
    most = max(most, OF_QUERY * (n + m))
    if n * m <= most:
        return None
    right = np.concatenate([truth.right_pairs(rows) for rows in blocks(n, AT_ONCE // m)])
    few = np.count_nonzero(right) <= RIGHT * most
    sure = right.copy() if few else np.zeros((n, m), bool)
    near = int(NEAR * most / max(n, m))
    for rows in blocks(n, AT_ONCE // m):
        hidden = truth.itself(rows) | (right[rows] & few)
        sure[rows] |= _nearest(np.where(hidden, -np.inf, scores[rows]), near)
    own = truth.itself()
    for columns in blocks(m, AT_ONCE // n):
        hidden = own[:, columns] | (right[:, columns] & few)
        some = np.where(hidden, -np.inf, scores[:, columns])
        sure[:, columns] |= _nearest(np.ascontiguousarray(some.T), near).T
    each = min(m, (most - np.count_nonzero(sure)) // n)
    stream = Generator(Philox(key=seed))
    # Permutations one after the other: each video is drawn as often as the others, or once more.
    videos = np.concatenate([stream.permutation(m) for _ in range(-(-n * each // m))])
    chosen = sure.copy()
    chosen[np.repeat(np.arange(n), each), videos[: n * each]] = True
    texts, columns_of = np.nonzero(chosen)
    return PairDraw(texts, columns_of, sure[texts, columns_of], (n, m))


def _nearest(scores: FloatArray, count: int) -> BoolArray:
    """True for the `count` highest scores of each row of [q, m], the first if several are equal."""
    count = min(count, scores.shape[1])
    lowest = np.partition(scores, scores.shape[1] - count, axis=1)[:, -count, None]
    above, equal = scores > lowest, scores == lowest
    left = count - np.count_nonzero(above, axis=1)[:, None]
    found: BoolArray = above | (equal & (np.cumsum(equal, axis=1) <= left))
    return found & (scores > -np.inf)
