"""Ranges and errors of the values of a graph of real numbers, on calibration rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cimtool.base.arrays import Array, FloatArray

REACHES = np.arange(-10, 33) / 4
"""log2 of the value of a format's largest code, in units of a channel's largest magnitude: below 0
values are clipped."""


@dataclass(frozen=True, eq=False)
class Range:
    """The bounds of a value, per channel or scalars."""

    lo: Array
    hi: Array

    @property
    def top(self) -> FloatArray:
        """The largest magnitude within the bounds."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))


@dataclass(frozen=True, eq=False)
class StoringErrors:
    """Mean square errors [steps, channels] of storing a value, at every step of REACHES."""

    tops: FloatArray
    errors: FloatArray

    def at(self, largest: FloatArray) -> FloatArray:
        """The errors [channels] where the largest code stands for `largest`, between steps."""
        live = self.tops > 0
        reach = np.log2(np.where(live, largest / np.where(live, self.tops, 1.0), 1.0))
        place = np.clip((reach - REACHES[0]) / (REACHES[1] - REACHES[0]), 0, len(REACHES) - 1)
        below = np.minimum(place.astype(np.int64), len(REACHES) - 2)
        channels = np.arange(len(self.tops))
        near, far = self.errors[below, channels], self.errors[below + 1, channels]
        errors: FloatArray = near + (place - below) * (far - near)
        return errors


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one graph; empty where it was not calibrated.

    `ranges` and `mean_squares` are by value, `squared_norms` (of what rows are divided by) by the
    node that normalises, `storing_errors` by value and the bits that it is stored in.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    mean_squares: Mapping[str, FloatArray] = field(default_factory=dict)
    squared_norms: Mapping[str, Range] = field(default_factory=dict)
    storing_errors: Mapping[tuple[str, int], StoringErrors] = field(default_factory=dict)


UNCALIBRATED = Calibration()
