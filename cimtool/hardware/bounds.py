"""Bounds of column sums, proved from the cells, and of what conversions make of them."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import AdcReferences

Bounds = tuple[IntArray, IntArray]
"""Smallest and largest column sum [groups, N] that any input can make."""


def column_bounds(conducts: IntArray, crossbar: Crossbar) -> Bounds:
    """Bounds of the sums of columns [K, N] that conduct so much, as converters see them.

    In units of 2^-fraction_bits of a digit.
    """
    height = len(conducts)
    lo, hi = crossbar.digit_limits
    groups = crossbar.tiling.groups(height)
    total = np.stack([conducts[group].sum(axis=0, dtype=np.int64) for group in groups])
    down = np.zeros_like(total)
    if conducts.min(initial=0) < 0:
        negative = np.minimum(conducts, 0)
        down = np.stack([negative[group].sum(axis=0, dtype=np.int64) for group in groups])
    up = total - down
    idle = crossbar.column_leak * crossbar.tiling.idle(height)[:, None]
    zero = crossbar.zero_digits
    return up * lo + down * hi + idle * zero.min(), up * hi + down * lo + idle * zero.max()


def lossless(bounds: Bounds, crossbar: Crossbar) -> bool:
    """True where steps of 1 from zero are proved to change no sum within bounds."""
    law = crossbar.law
    if law is None:
        return True
    lo, hi = law.ends
    return law.exact_where_it_fits and bool(bounds[0].min() >= lo and bounds[1].max() <= hi)


def conversion_error(bounds: Bounds, law: Law, references: AdcReferences, places: int) -> IntArray:
    """Largest |converted - exact| of any conversion [groups, N], in the units of references.

    These are `places` binary places finer than those of the bounds.
    """
    step, law = references.step, references.law(law)
    lo, hi = (end * step + references.offset for end in law.ends)
    down, up = (edge << places for edge in bounds)
    excess: IntArray = np.maximum(np.maximum(up - hi, lo - down), law.error(step))
    return excess
