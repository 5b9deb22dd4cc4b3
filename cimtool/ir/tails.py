"""Tails: how far the numbers of a value reach beyond the rows that were seen.

Above a high threshold the excesses of nearly any distribution have a generalised Pareto form
(Pickands 1975). We take its exponential member, whose end is open, for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray

NEWTON_STEPS = 8
"""Each doubles the correct digits of `y` in `y + log(y) = c`, from a first guess above it."""


@dataclass(frozen=True, eq=False)
class Tails:
    """Of each channel, `P(|x| > l) = share exp(-(l - threshold) / excess)` above its threshold.

    `threshold` and `excess` (the mean excess over it) are [channels].
    """

    share: float
    threshold: FloatArray
    excess: FloatArray

    def clipped(self, limit: FloatArray) -> FloatArray:
        """The expected squared error [channels] of numbers that are clipped to +-`limit`.

        Below the threshold `v - l` errs `(threshold - l)` more, of a share that the exponential is
        continued to, at most of all: a channel whose numbers are all alike loses that difference.
        """
        excess = np.where(self.excess > 0, self.excess, 1.0)
        beyond = (limit - self.threshold) / excess
        share = np.minimum(self.share * np.exp(-np.maximum(beyond, np.log(self.share))), 1.0)
        below = np.maximum(self.threshold - limit, 0.0)
        squares = np.square(below) + 2 * below * self.excess + 2 * np.square(self.excess)
        return np.asarray(share * squares)

    def limits(self, largest: int) -> FloatArray:
        """The limit [channels] of least expected error, in steps of `limit / largest`.

        Rounding errs `limit^2 / (12 largest^2)`; its sum with `clipped` is least where
        `y + log(y) = log(12 largest^2 share) + threshold / excess` for `y = limit / excess`. No
        limit is below the threshold, under which nothing is known.
        """
        live = self.excess > 0
        excess = np.where(live, self.excess, 1.0)
        right = np.log(12 * largest**2 * self.share) + self.threshold / excess
        y = np.where(right > 1, right, np.exp(np.minimum(right, 1)))
        for _ in range(NEWTON_STEPS):
            y = y * (1 + right - np.log(y)) / (1 + y)
        return np.where(live, np.maximum(y * excess, self.threshold), self.threshold)


def tails_of(largest: FloatArray, count: int) -> Tails:
    """Tails from the `largest` magnitudes [k, channels] of `count` numbers a channel."""
    threshold, above = largest.min(axis=0), len(largest) - 1
    excess = (largest - threshold).sum(axis=0) / max(above, 1)
    return Tails(len(largest) / count, threshold, excess)
