"""Conversions on every CPU: column sums by the floating-point BLAS, then one pass over them.

Products in floating point are exact while every partial sum stays below 2^24 (float32) or 2^53
(float64); the bound is proved from the formats.
"""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.compiled import jit
from cimtool.hardware.bounds import column_bounds
from cimtool.hardware.converter import TRANSFER_BITS
from cimtool.hardware.crossbar import (
    Slice,
    correction,
    encode_inputs,
    encode_weights,
    input_cycles,
    zero_digits,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.format import ROUNDINGS
from cimtool.ir.types import Type, combine, exact

SUMS_IN_CACHE = 1 << 19
"""So many column sums are made before they are converted: they stay in a core's cache."""

TABLE = len(ROUNDINGS)
"""The rounding of a converter that has a transfer table."""


def product_kind(bound: int) -> type[np.float32] | type[np.float64] | type[np.int64]:
    """The fastest number in which sums of so large magnitude are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def absolute_bound(a: Type, b: tuple[Array, Array], width: int) -> int:
    """Largest sum of |a_i * b_i| over `width` terms: no partial sum in any order exceeds it."""
    lo, hi = combine(np.multiply, (a.lo, a.hi), b)
    terms = np.broadcast_to(exact(np.asarray(np.maximum(-lo, hi))), (width,))
    return int(terms.sum())


class Converted:
    """A layer with converters: slices lie along N of a product, cycles along M."""

    def __init__(self, op: CrossbarMvm):
        self.op = op
        crossbar = self.crossbar = op.crossbar
        slices = encode_weights(op.weight, crossbar)
        self.groups = crossbar.groups(len(op.weight))
        bound = max(int(np.abs(edge).max()) for s in slices for edge in column_bounds(s, crossbar))
        kind = product_kind(bound)
        self.packed = [np.hstack([s.digits[g] for s in slices]).astype(kind) for g in self.groups]
        self.cycles = input_cycles(crossbar)
        per_row = len(self.cycles) * self.packed[0].shape[1]
        self.height = max(1, SUMS_IN_CACHE // per_row)
        self.idle = crossbar.idle_rows(len(op.weight))
        self.zero = zero_digits(crossbar)
        self._constants(slices)

    def _constants(self, slices: tuple[Slice, ...]) -> None:
        op, crossbar = self.op, self.crossbar
        self.offset = op.bias - correction(op.weight, crossbar)
        self.steps = np.array([-1 if s is None else s for s in op.steps], np.int64)
        self.counts = np.array([sign << shift for shift, _, sign in self.cycles], np.int64)
        flips = np.stack([np.where(s.flipped, -s.sign, s.sign) for s in slices], axis=1)
        shifts = np.array([s.shift for s in slices])
        self.scale = flips.astype(np.int64) << shifts[None, :, None]
        lo, hi = (0, 0) if crossbar.adc_bits is None else crossbar.adc_limits
        table = crossbar.transfer is not None
        rounding = TABLE if table else list(ROUNDINGS).index(crossbar.rounding or "floor")
        self.converter = (lo, hi, rounding)
        self.edges = crossbar.converter.thresholds if table else np.zeros(0, np.int64)

    def __call__(self, x: Array) -> Array:
        """The layer's outputs int64 [rows, N]."""
        x = x.astype(np.int64)
        total = np.zeros((len(x), self.offset.size), np.int64)
        for start in range(0, len(x), self.height):
            block = slice(start, start + self.height)
            self._add(x[block], total[block])
        fraction = self.crossbar.fraction_bits
        return (total + (1 << fraction >> 1) >> fraction) + self.offset

    def _add(self, x: Array, total: Array) -> None:
        crossbar, fraction = self.crossbar, self.crossbar.fraction_bits
        digits = np.stack([cycle.digits for cycle in encode_inputs(x, crossbar)])
        for r, group in enumerate(self.groups):
            driven = np.ascontiguousarray(digits[:, :, group])
            summed = driven.sum(axis=2)
            packed = self.packed[r]
            sums = np.matmul(driven.reshape(-1, driven.shape[2]).astype(packed.dtype), packed)
            sums = sums.reshape(*driven.shape[:2], len(self.steps), self.offset.size)
            leak = crossbar.column_leak * (summed + (self.idle[r] * self.zero)[:, None])
            _convert(
                sums, leak, fraction, self.scale[r], self.counts, self.steps, *self.converter,
                self.edges, total,
            )  # fmt: skip
            if self.op.unit_step is not None:
                step = self.op.unit_step
                summed = crossbar.converter.codes(summed, step) << step
            weighted = (self.counts @ summed) << fraction
            total += weighted[:, None] * self.op.row_sum_factors[r]


@jit
def _convert(  # type: ignore[no-untyped-def]
    sums, leaks, fraction, scale, counts, steps, lo, hi, rounding, edges, total
):
    """Add the converted `sums` [cycles, rows, slices, N] to `total` [rows, N]."""
    cycles, rows, slices, width = sums.shape
    for i in range(rows):
        for k in range(slices):
            step = steps[k]
            half = (1 << step) >> 1 if step > 0 and rounding < 2 else 0
            for c in range(cycles):
                column, leak = sums[c, i, k], leaks[c, i]
                if step < 0:
                    for j in range(width):
                        p = np.int64(column[j]) << fraction
                        total[i, j] += p * scale[k, j] * counts[c]
                elif rounding == TABLE:
                    for j in range(width):
                        p = (np.int64(column[j]) << fraction) + leak
                        code = lo + steps_below(edges, p << TRANSFER_BITS, step)
                        total[i, j] += ((code << step) - leak) * scale[k, j] * counts[c]
                else:
                    even = 1 if rounding == 1 and step > 0 else 0
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
