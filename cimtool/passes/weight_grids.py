"""The integers that a weight code holds: whole numbers, or elements times shared powers of two.

In a code whose rows share exponents, a column's unit and the exponents of its blocks are those with
which rounding each weight to the nearest number errs least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.hardware.weight_codes import MOST_EXPONENT, WeightCode

UNIT_SHARES = (1.0, 0.75, 0.875, 1.125, 1.25, 1.5, 1.75)
"""Shares of the unit that just reaches a column's largest weight, to try in its place.

Exponents go by factors of 2: an octave of units aligns the blocks of a column in every way.
"""


@dataclass(frozen=True)
class WeightGrid:
    """Whole weights: `steps` [K, N] (or [1, 1]) times elements up to `limit`.

    An element has `precision` significant bits: larger ones are multiples of a power of two.
    """

    steps: FloatArray
    limit: int
    precision: int

    @property
    def shared(self) -> bool:
        """True if rows share exponents."""
        return len(self.steps) > 1

    def taken(self, rows: IntArray, columns: IntArray | None = None) -> WeightGrid:
        """The grid of weights in another order of rows, and of columns."""
        if not self.shared:
            return self
        steps = self.steps[rows] if columns is None else self.steps[np.ix_(rows, columns)]
        return WeightGrid(steps, self.limit, self.precision)

    def nearest(self, target: FloatArray) -> FloatArray:
        """The numbers of the grid that are nearest to `target` [K, N], halves up."""
        element = np.clip(target / self.steps, -self.limit, self.limit)
        if self.limit < 1 << self.precision:  # no element is so large that it loses a bit
            element += 0.5
            return np.asarray(np.floor(element, out=element) * self.steps)
        unit = np.ldexp(1.0, np.maximum(np.frexp(element)[1] - self.precision, 0))
        return np.asarray(np.floor(element / unit + 0.5) * unit * self.steps)


def weight_grid(
    effective: FloatArray, code: WeightCode, scale: FloatArray, least: FloatArray
) -> tuple[FloatArray, WeightGrid]:
    """The units [N] of the columns of real weights [K, N], none below `least`, and the grid.

    `scale` [N] are the units with which the largest integer reaches each column's largest weight.
    """
    if code.shared_rows is None:
        return scale, WeightGrid(np.ones((1, 1)), code.largest, code.precision)
    element = code.largest >> MOST_EXPONENT
    grids = [
        WeightGrid(np.full((1, 1), 2.0**e), element, code.precision)
        for e in range(MOST_EXPONENT + 1)
    ]
    best, units, steps = np.full(len(scale), np.inf), scale, np.ones(effective.shape)
    for share in UNIT_SHARES:
        unit = np.maximum(scale * share, least)
        errors = np.stack([_block_errors(effective / unit, grid, code) for grid in grids])
        error = errors.min(axis=0).sum(axis=0) * np.square(unit)
        exponents = np.repeat(errors.argmin(axis=0), code.shared_rows, axis=0)[: len(steps)]
        better = error < best
        best, units = np.where(better, error, best), np.where(better, unit, units)
        steps = np.where(better, np.ldexp(1.0, exponents), steps)
    return units, WeightGrid(steps, element, code.precision)


def weight_gain(target: FloatArray, weight: IntArray) -> FloatArray:
    """The factors [N] by which whole weights are too small, on average: `sum t^2 / sum t w`.

    Units and exponents of least error make weights smaller, and a score of distances would count
    that in each pair.
    """
    squares, products = np.square(target).sum(axis=0), (target * weight).sum(axis=0)
    factor = np.divide(squares, products, where=products > 0, out=np.ones(len(squares)))
    # The last bits of a CPU's sums must not count.
    return np.asarray(np.clip(np.rint(factor * GAIN_STEPS) / GAIN_STEPS, 0.5, 2.0))


GAIN_STEPS = 4096
"""Steps to 1 that a gain is rounded to."""


def _block_errors(target: FloatArray, grid: WeightGrid, code: WeightCode) -> FloatArray:
    """Squared errors [blocks, N] of rounding `target` to a grid, summed over shared rows."""
    error = np.square(target - grid.nearest(target))
    return np.add.reduceat(error, np.arange(0, len(error), code.shared_rows), axis=0)
