"""Conversions on every CPU: column sums by the floating-point BLAS, then one pass over them.

Products in floating point are exact while every partial sum stays below 2^24 (float32) or 2^53
(float64); the bound is proved from the formats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.compiled import jit
from cimtool.hardware.converters import THRESHOLD_BITS, Law, StaircaseLaw
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.types import Type, combine, exact_bounds

SUMS_IN_CACHE = 1 << 19
"""So many column sums are made before they are converted: they stay in a core's cache."""


def product_kind(bound: int) -> type[np.float32] | type[np.float64] | type[np.int64]:
    """The fastest number in which sums of so large magnitude are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def absolute_bound(a: Type, b: tuple[Array, Array], width: int) -> int:
    """Largest sum of |a_i * b_i| over `width` terms: no partial sum in any order exceeds it."""
    lo, hi = combine(np.multiply, (a.lo, a.hi), b)
    terms = np.broadcast_to(exact_bounds(np.maximum(-lo, hi)), (width,))
    return int(terms.sum())


class Formula(NamedTuple):
    """A converter's law for compiled code: thresholds and levels where it is a staircase.

    Otherwise they are empty, and codes are clip((p + half - even + ((p >> e) & even)) >> e).
    """

    lo: int
    hi: int
    half: bool
    to_even: bool
    thresholds: Array
    levels: Array


def formula_of(law: Law | None) -> Formula:
    """The law of a converter, or of none, for compiled code."""
    none = np.zeros(0, np.int64)
    if law is None:
        return Formula(0, 0, False, False, none, none)
    if isinstance(law, StaircaseLaw):
        return Formula(law.lo, law.hi, False, False, law.thresholds, law.levels)
    return Formula(law.lo, law.hi, law.half, law.to_even, none, none)


class Converted:
    """A layer with converters: slices lie along N of a product, cycles along M."""

    def __init__(self, op: CrossbarMvm):
        self.op = op
        crossbar, stored = op.crossbar, op.stored
        bound = max(int(np.abs(edge).max()) for pair in stored.bounds for edge in pair)
        kind = product_kind(bound)
        slices = stored.slices
        self.packed = [np.hstack([s.digits[g] for s in slices]).astype(kind) for g in stored.groups]
        per_row = len(crossbar.cycles) * self.packed[0].shape[1]
        self.height = max(1, SUMS_IN_CACHE // per_row)
        self.offset = op.bias - stored.correction
        self.steps = np.array([-1 if s is None else s for s in op.steps], np.int64)
        signs = np.stack([s.signs for s in slices], axis=1).astype(np.int64)
        self.scale = signs << np.array([s.shift for s in slices])[None, :, None]
        self.formula = formula_of(crossbar.law)

    def __call__(self, x: Array) -> Array:
        """The layer's outputs int64 [rows, N]."""
        total = np.zeros((len(x), self.offset.size), np.int64)
        for start in range(0, len(x), self.height):
            block = slice(start, start + self.height)
            self._add(x[block], total[block])
        fraction = self.op.crossbar.fraction_bits
        return (total + (1 << fraction >> 1) >> fraction) + self.offset

    def _add(self, x: Array, total: Array) -> None:
        crossbar, stored = self.op.crossbar, self.op.stored
        fraction, factors = crossbar.fraction_bits, crossbar.cycle_factors
        digits = crossbar.digits(x)
        for r, group in enumerate(stored.groups):
            driven = np.ascontiguousarray(digits[:, :, group])
            summed = driven.sum(axis=2)
            packed = self.packed[r]
            sums = np.matmul(driven.reshape(-1, driven.shape[2]).astype(packed.dtype), packed)
            sums = sums.reshape(*driven.shape[:2], len(self.steps), self.offset.size)
            idle = (stored.idle_rows[r] * crossbar.zero_digits)[:, None]
            leak = crossbar.column_leak * (summed + idle)
            _convert(
                sums, leak, fraction, self.scale[r], factors, self.steps, self.formula, total
            )  # fmt: skip
            if self.op.unit_step is not None:
                summed = crossbar.read(summed, self.op.unit_step)
            weighted = (factors @ summed) << fraction
            total += weighted[:, None] * stored.row_sum_factors[r]


@jit
def _convert(  # type: ignore[no-untyped-def]
    sums, leaks, fraction, scale, counts, steps, formula, total
):
    """Add the converted `sums` [cycles, rows, slices, N] to `total` [rows, N]."""
    cycles, rows, slices, width = sums.shape
    lo, hi, levels = formula.lo, formula.hi, formula.levels
    for i in range(rows):
        for k in range(slices):
            step = steps[k]
            half = (1 << step) >> 1 if step > 0 and formula.half else 0
            even = 1 if formula.to_even and step > 0 else 0
            for c in range(cycles):
                column, leak = sums[c, i, k], leaks[c, i]
                if step < 0:
                    for j in range(width):
                        p = np.int64(column[j]) << fraction
                        total[i, j] += p * scale[k, j] * counts[c]
                elif len(levels):
                    for j in range(width):
                        p = (np.int64(column[j]) << fraction) + leak
                        level = levels[steps_below(formula.thresholds, p << THRESHOLD_BITS, step)]
                        total[i, j] += ((level << step) - leak) * scale[k, j] * counts[c]
                else:
                    for j in range(width):
                        p = (np.int64(column[j]) << fraction) + leak
                        code = (p + half - even + ((p >> step) & even)) >> step
                        code = min(max(code, lo), hi)
                        total[i, j] += ((code << step) - leak) * scale[k, j] * counts[c]


@jit
def steps_below(edges, p, step):  # type: ignore[no-untyped-def]
    """How many of the rising thresholds, in steps of 2^step, are not above `p`."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) >> 1
        if (edges[middle] << step) <= p:
            low = middle + 1
        else:
            high = middle
    return low
