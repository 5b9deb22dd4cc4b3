"""Levels of converters whose thresholds can be set, by the method of Lloyd and Max.

Started from equal steps, thresholds move to the middle between two values and values to the mean
of the sums of their code, in turns, each sum weighted by the square of what it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.references import AdcReferences

ROUNDS = 100
"""Turns after which levels that still move are left where they are."""

WeightedSums = Callable[[AdcReferences], Iterable[tuple[IntArray, FloatArray]]]
"""Column sums less their offsets at some references, in parts, and the weight of each."""


@dataclass(frozen=True)
class Histogram:
    """Weights [B] of sums by whole steps from `first` on, and the same times the sum."""

    first: int
    weights: FloatArray
    moments: FloatArray

    @classmethod
    def of(cls, start: AdcReferences, law: StaircaseLaw, sums: WeightedSums) -> Histogram:
        """The sums about the range of equal levels, three times as long; others at its ends."""
        lowest, highest = int(law.thresholds[0]), int(law.thresholds[-1])
        span = max(highest - lowest, len(law.levels))
        first, count = lowest - span, highest - lowest + 2 * span
        weights, moments = np.zeros(count), np.zeros(count)
        for fine, weight in sums(start):
            place = np.clip(fine // start.step - first, 0, count - 1).ravel()
            held = np.clip(fine, first * start.step, (first + count) * start.step).ravel()
            weights += np.bincount(place, weight.ravel(), count)
            moments += np.bincount(place, weight.ravel() * held, count)
        return cls(first, weights, moments)

    @property
    def count(self) -> int:
        """The number of whole steps that it holds."""
        return len(self.weights)

    def moved(
        self, edges: IntArray, values: FloatArray, step: int
    ) -> tuple[float, IntArray, FloatArray]:
        """(gain, edges, values) where both stay, for `edges` of codes to start from.

        The gain is what of the sums' squares the values take off; values of codes without sums stay
        as they are.
        """
        below = np.concatenate([[0.0], np.cumsum(self.weights)])
        moments = np.concatenate([[0.0], np.cumsum(self.moments)])
        gain = 0.0
        for _ in range(ROUNDS):
            ends = np.concatenate([[0], edges, [self.count]])
            weight, moment = np.diff(below[ends]), np.diff(moments[ends])
            mean = moment / np.where(weight > 0, weight, 1)
            values = np.maximum.accumulate(np.where(weight > 0, mean, values))
            gain = float((mean * moment).sum())
            middle = np.ceil((values[1:] + values[:-1]) / (2 * step)).astype(np.int64)
            moved = _rising(middle - self.first, self.count)
            if np.array_equal(moved, edges):
                break
            edges = moved
        return gain, edges, values


def fitted_levels(start: AdcReferences, sums: WeightedSums) -> AdcReferences:
    """References with the levels of `start`, equal ones, moved to where the sums are.

    The better of two: started from equal steps, and from codes as dense as the cube root of the
    weights is, which many codes are best at.
    """
    law = start.levels
    assert law is not None
    seen = Histogram.of(start, law, sums)
    roots = np.cbrt(seen.weights)
    above = np.cumsum(roots)
    parts = np.arange(1, len(law.levels)) * (above[-1] / len(law.levels))
    starts = law.thresholds - seen.first, np.searchsorted(above - roots / 2, parts)
    values = law.levels.astype(np.float64) * start.step
    tried = [seen.moved(_rising(edges, seen.count), values, start.step) for edges in starts]
    _, edges, values = max(tried, key=lambda one: one[0])
    levels = np.rint(values / start.step).astype(np.int64) - seen.first
    found = _rising(levels, seen.count + 1) + seen.first
    made = StaircaseLaw(law.lo, edges + seen.first, found, places=0)
    return AdcReferences(start.step, start.offset, made)


def _rising(numbers: IntArray, end: int) -> IntArray:
    """Whole numbers from 0 to below `end`, each at least one above the one before."""
    place = np.arange(len(numbers))
    raised = np.maximum.accumulate(np.maximum(numbers, 0) - place)
    return np.minimum(raised, end - len(numbers)) + place
