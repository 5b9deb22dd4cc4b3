"""Bounds of column sums, proved from the cells, and of what conversions make of them."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import REFERENCE_BITS

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


def full_scale(law: Law, crossbar: Crossbar, rows: int) -> int:
    """The step with which the codes of a converter cover all sums that an array can make.

    In 2^-(fraction_bits + REFERENCE_BITS) of a digit, and at least a digit. All rows that are
    summed in one conversion are driven and hold what conducts most; a layer of `rows` fills them
    if the array has no height of its own. A column that holds complements has half of that.
    """
    tiling = crossbar.tiling
    height = tiling.height or rows
    summed = min(tiling.active or height, height)
    (low_cell, high_cell), (lo, hi) = crossbar.cell_limits, crossbar.digit_limits
    up = summed * max(high_cell, 0) << crossbar.fraction_bits
    if crossbar.weights.complements:
        up = -(-up // 2)
    up += summed * crossbar.column_leak
    down = summed * min(low_cell, 0) << crossbar.fraction_bits
    least, most = up * lo + down * hi, up * hi + down * lo
    steps = [1 << crossbar.fraction_bits + REFERENCE_BITS]
    for end, code in zip((least, most), law.ends, strict=True):
        if code:
            steps.append(-(-(abs(end) << REFERENCE_BITS) // abs(code)))
    return max(steps)


def lossless(bounds: Bounds, crossbar: Crossbar, rows: int) -> bool:
    """True if steps of 1 from zero are proved to change no sum within bounds, and can be had.

    `rows` are those of the layer.
    """
    law = crossbar.law
    if law is None:
        return True
    if not crossbar.scope.chosen and full_scale(law, crossbar, rows) > 1 << REFERENCE_BITS:
        return False
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
