"""What column sums can come to, proved from the stored cells; what conversions make of it."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.crossbar import Crossbar, Slice, perfect, unit_cells, zero_digits


def column_bounds(cells: Slice, crossbar: Crossbar) -> tuple[IntArray, IntArray]:
    """Smallest and largest column sum [groups, N] that any input can make, from stored cells.

    In units of 2^-fraction_bits of a digit, as converters see them.
    """
    height = cells.digits.shape[0]
    lo, hi = crossbar.digit_limits
    conducts, groups = perfect(cells, crossbar).digits, crossbar.groups(height)
    total = np.stack([conducts[group].sum(axis=0) for group in groups])
    down = np.zeros_like(total)
    if conducts.min(initial=0) < 0:
        negative = np.minimum(conducts, 0)
        down = np.stack([negative[group].sum(axis=0) for group in groups])
    up = total - down
    idle = crossbar.column_leak * crossbar.idle_rows(height)[:, None]
    zero = zero_digits(crossbar)
    return up * lo + down * hi + idle * zero.min(), up * hi + down * lo + idle * zero.max()


def lossless(cells: Slice, crossbar: Crossbar) -> bool:
    """Whether no column sum of a slice can be clipped at step 1, proved column by column."""
    if crossbar.adc_bits is None:
        return True
    return crossbar.transfer is None and _fits(column_bounds(cells, crossbar), crossbar)


def unit_lossless(rows: int, crossbar: Crossbar) -> bool:
    """Whether the unit column of a layer with so many rows can never be clipped at step 1."""
    return lossless(unit_cells(rows, crossbar), crossbar)


def _fits(bounds: tuple[IntArray, IntArray], crossbar: Crossbar) -> bool:
    lo, hi = crossbar.adc_limits
    return bool(bounds[0].min() >= lo and bounds[1].max() <= hi)


def conversion_error(cells: Slice, crossbar: Crossbar, step: int) -> IntArray:
    """Largest |converted - exact| of any conversion [groups, N], in units of the column sum."""
    lo, hi = crossbar.adc_limits
    down, up = column_bounds(cells, crossbar)
    excess = np.maximum(up - (hi << step), (lo << step) - down)
    return np.maximum(excess, crossbar.converter.error(step))


def converted_bounds(
    cells: Slice, crossbar: Crossbar, step: int | None
) -> tuple[IntArray, IntArray]:
    """Smallest and largest value [groups, N] that a column's conversions can stand for."""
    down, up = column_bounds(cells, crossbar)
    if step is None:
        return down, up
    lo, hi = (crossbar.converter.codes(edge, step) << step for edge in (down, up))
    return lo, hi
