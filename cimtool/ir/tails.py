"""Tails: how far the numbers of a value reach beyond the rows that were seen.

Above a high threshold the excesses of nearly any distribution have a generalised Pareto form
(Pickands 1975), whose shape says how much heavier than an exponential the tail is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray

HALVINGS = 64
"""Halvings of the interval in which a limit lies."""

LARGEST_SHAPE = 0.4
"""From 1/2 on the expected square of an excess is infinite."""

LEAST_SHAPE = -1.0
"""That of numbers that are uniform up to an end."""

SPREAD_OF_SHAPES = 0.2
"""The spread of shapes around 0, that of an exponential, as supposed before any row is seen."""


@dataclass(frozen=True, eq=False)
class Tails:
    """Of each channel, `P(|x| > l) = share (1 + shape (l - threshold) / scale)^(-1 / shape)`.

    It holds above the threshold, where `scale = (1 - shape) excess`; with shape 0 it is
    `share exp(-(l - threshold) / excess)`. `threshold` and `excess` (the mean excess over it) are
    [channels]. Channels have one shape, of at least 0: one by itself has too few numbers to tell.
    """

    share: float
    threshold: FloatArray
    excess: FloatArray
    shape: float = 0.0

    def clipped(self, limit: FloatArray) -> FloatArray:
        """The expected squared error [channels] of numbers that are clipped to +-`limit`.

        Below the threshold `v - l` errs `(threshold - l)` more, of a share that the exponential is
        continued to, at most of all: a channel whose numbers are all alike loses that difference.
        """
        excess = np.where(self.excess > 0, self.excess, 1.0)
        beyond, growth = self._beyond(np.maximum(limit, self.threshold), excess)
        below = np.maximum(self.threshold - limit, 0.0)
        wider = np.exp(np.minimum(below / excess, -np.log(self.share)))
        mean = self.excess * growth
        squares = np.square(below) + 2 * below * mean
        squares += 2 * np.square(mean) * (1 - self.shape) / (1 - 2 * self.shape)
        return np.asarray(self.share * wider * beyond * squares)

    def limits(self, largest: int) -> FloatArray:
        """The limit [channels] of least expected error, in steps of `limit / largest`.

        Rounding errs `limit^2 / (12 largest^2)`; its sum with `clipped` is least where
        `limit / (12 largest^2)` is the expected part of a number beyond the limit. That falls with
        the limit, so the place is found by halving. No limit is below the threshold, under which
        nothing is known.
        """
        steps = 12 * largest**2
        excess = np.where(self.excess > 0, self.excess, 1.0)
        low, high = self.threshold, np.maximum(self.threshold, steps * self.share * excess)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            beyond, growth = self._beyond(middle, excess)
            too_low = middle < steps * self.share * beyond * excess * growth
            low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
        return np.where(self.excess > 0, high, self.threshold)

    def _beyond(self, limit: FloatArray, excess: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The share of the tail beyond a limit, and the mean excess over it by that at the start.

        Both are [channels], for limits of at least the threshold.
        """
        reached = (limit - self.threshold) / excess
        if self.shape == 0:
            return np.exp(-reached), np.ones(reached.shape)
        grown = self.shape * reached / (1 - self.shape)
        return np.exp(-np.log1p(grown) / self.shape), 1 + grown


def tails_of(largest: FloatArray, count: int, shape: float = 0.0) -> Tails:
    """Tails from the `largest` magnitudes [k, channels] of `count` numbers a channel."""
    threshold, above = largest.min(axis=0), len(largest) - 1
    excess = (largest - threshold).sum(axis=0) / max(above, 1)
    return Tails(len(largest) / count, threshold, excess, shape)


def shape_of(largest: FloatArray, of_rows: FloatArray) -> float:
    """The shape of the tails of channels: their own, or heavier if whole rows are.

    `largest` [k, channels] are the largest magnitudes of each channel, `of_rows` [r] the largest
    sizes of rows. A row that is far out in many channels counts once among sizes, and many times
    among magnitudes, which are no independent numbers. r rows know a shape to about `1 / sqrt(r)`
    (Hosking and Wallis 1987), so the rows' is drawn towards the channels', and both towards 0. That
    each channel's mean excess is known from k numbers makes an exponential one of shape `1 / k`.
    A tail that seems to end is taken for an exponential: parts of a row that clip together add up
    in a layer, which costs more than the steps that a shorter range saves.
    """
    own, whole = _shape(largest), _shape(of_rows[:, None])
    weight = len(of_rows) / (len(of_rows) + SPREAD_OF_SHAPES**-2)
    shape = weight * (own + weight * max(whole - own, 0)) + 1 / len(largest)
    return min(max(shape, 0.0), LARGEST_SHAPE)


def _shape(largest: FloatArray) -> float:
    """The shape of the excesses over the least of each column [k, n], by L-moments (Hosking 1990).

    In units of its mean, the second L-moment, half of the mean difference between two numbers, is
    `1 / (2 - shape)` of a generalised Pareto distribution. Columns without excess are left out, and
    those that reach down to 0: a ReLU that is nearly always 0 has zeros among its largest numbers,
    and next to them any other looks far out.
    """
    threshold = largest.min(axis=0)
    excess = np.sort(largest, axis=0)[1:] - threshold
    excess = excess[:, (threshold > 0) & excess.any(axis=0)]
    count = len(excess)
    if count < 2 or excess.size == 0:
        return 0.0
    weights = (2 * np.arange(count) - count + 1) / (count * (count - 1))
    # No matrix product, whose last bits depend on the number of threads.
    seconds = (weights[:, None] * excess).sum(axis=0) / excess.mean(axis=0)
    second = float(seconds.mean())
    return 2 - 1 / max(second, 1 / (2 - LEAST_SHAPE))
