"""Bounds of column sums, proved from the cells, and of what conversions make of them."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law
from cimtool.hardware.crossbar import Crossbar

Bounds = tuple[IntArray, IntArray]
"""Smallest and largest column sum [groups, N] that any input can make."""


def column_bounds(conducts: IntArray, crossbar: Crossbar, idle: IntArray) -> Bounds:
    """The smallest and largest sum of each column over all inputs, as converters see them.

    `conducts` [K, N] are the cells. Bounds are in units of 2^-fraction_bits of a digit; idle rows
    add `idle` [groups, cycles].
    """
    lo, hi = crossbar.digit_limits
    groups = crossbar.tiling.groups(len(conducts))
    total = np.stack([conducts[group].sum(axis=0, dtype=np.int64) for group in groups])
    down = np.zeros_like(total)
    if conducts.min(initial=0) < 0:
        negative = np.minimum(conducts, 0)
        down = np.stack([negative[group].sum(axis=0, dtype=np.int64) for group in groups])
    up = total - down
    least, most = idle.min(axis=1)[:, None], idle.max(axis=1)[:, None]
    return up * lo + down * hi + least, up * hi + down * lo + most


def lossless(bounds: Bounds, crossbar: Crossbar) -> bool:
    """True if steps of 1 from zero are proved to change no sum within bounds."""
    law = crossbar.law
    if law is None:
        return True
    lo, hi = law.ends
    return law.exact_where_it_fits and bool(bounds[0].min() >= lo and bounds[1].max() <= hi)


def conversion_error(
    bounds: Bounds, law: Law, step: IntArray, offset: IntArray, places: int
) -> IntArray:
    """Largest |converted - exact| of any conversion [groups, N].

    In the unit in which `step` counts, 2^-places of the unit of `bounds`.
    """
    lo, hi = (end * step + offset for end in law.ends)
    down, up = (edge << places for edge in bounds)
    excess: IntArray = np.maximum(np.maximum(up - hi, lo - down), law.error(step))
    return excess
