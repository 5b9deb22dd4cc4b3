"""The numbers on the way through one layer, at the taps where a chip can be probed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, IntArray
from cimtool.hardware.mvm import CrossbarMvm


@dataclass(frozen=True)
class Taps:
    """The numbers of one layer for inputs [n, K]; sums count 2^-fraction_bits of a digit.

    `digits` [n, cycles, K] are driven; `sums` and `codes` [n, groups, cycles, columns] are those of
    every slice's N columns and then of the unit column, if there is one; codes of a lossless column
    are its sums. `shift_add` [n, groups, N] is what each row group adds to the layer's sum.
    """

    digits: IntArray
    sums: IntArray
    codes: IntArray
    shift_add: IntArray


def taps(op: CrossbarMvm, x: IntArray) -> Taps:
    """Compute the taps of a layer for integer inputs `x` [n, K]."""
    crossbar, stored, width = op.crossbar, op.stored, op.weight.shape[1]
    cells = stored.cells
    digits = crossbar.digits(x).transpose(1, 0, 2)
    idle = cells.leak * stored.idle_rows
    exact = np.float64 if sum_bits(op) < FLOAT_BITS else np.int64  # products in BLAS where exact
    driven = digits.astype(exact)
    packed = np.hstack([column.cells.digits for column in op.columns]).astype(exact)
    products = [(driven[:, :, group] @ packed[group]).astype(np.int64) for group in stored.groups]
    sums = np.stack(products, axis=1) + (idle[:, None] * crossbar.zero_digits)[None, :, :, None]
    codes, values = sums.copy(), sums.copy()
    columns = converted_columns(op)
    for column, step in columns:
        if step is not None and crossbar.law is not None:
            codes[..., column] = crossbar.law.codes(sums[..., column], step)
            values[..., column] = crossbar.law.values(codes[..., column], step)
    parts = [column for column, _ in columns]
    added = [_group_sum(op, digits, values[:, r], parts, r) for r in range(len(stored.groups))]
    shift_add = np.stack(added, axis=1).reshape(len(x), len(stored.groups), width)
    return Taps(digits, sums, codes, shift_add)


def converted_columns(op: CrossbarMvm) -> list[tuple[slice, int | None]]:
    """The columns of each slice in `Taps.codes`, then the unit column, and their steps."""
    columns = op.columns
    ends = accumulate((column.cells.digits.shape[1] for column in columns), initial=0)
    pairs = zip(pairwise(ends), columns, strict=True)
    return [(slice(start, end), column.step) for (start, end), column in pairs]


def _group_sum(
    op: CrossbarMvm, digits: IntArray, converted: IntArray, parts: Sequence[slice], r: int
) -> IntArray:
    """Shift-and-add [n, N] of row group r's sums `converted`, with its digital corrections.

    `parts` are the columns of each slice among them, and the unit column.
    """
    crossbar, stored = op.crossbar, op.stored
    driven = digits[:, :, stored.groups[r]].sum(axis=2, keepdims=True)
    idle = stored.idle_rows[r] * crossbar.zero_digits[None, :, None]
    leak = crossbar.column_leak * (driven + idle)
    values = [converted[..., part] for part in parts]
    row_sum = (values.pop() if crossbar.unit_column else driven) << crossbar.fraction_bits
    total: IntArray = np.zeros(values[0].shape[::2], np.int64)
    for held, value in zip(stored.slices, values, strict=True):
        p = value - leak
        p = np.where(held.flipped[r], crossbar.cell_maximum * row_sum - p, p)
        total += held.sign * _over_cycles(op, p << held.shift)
    return total - _over_cycles(op, row_sum * crossbar.weights.offset)


def _over_cycles(op: CrossbarMvm, values: IntArray) -> IntArray:
    """Add up [n, cycles, N] with the weight of each cycle."""
    total: IntArray = np.einsum("ncj,c->nj", values, op.crossbar.cycle_factors)
    return total


def layer_sum(op: CrossbarMvm, shift_add: IntArray) -> IntArray:
    """The layer's output [n, N] from what its row groups add."""
    fraction = op.crossbar.fraction_bits
    total: IntArray = shift_add.sum(axis=1) + (1 << fraction >> 1) >> fraction
    return total + op.bias - op.stored.correction


def worst_column(op: CrossbarMvm, lo: int, hi: int) -> IntArray:
    """The input [K] of lo..hi that makes the largest column sum of all that any input can make.

    Of all slices, columns, row groups and cycles; rows of other groups are zero.
    """
    values = np.arange(lo, hi + 1)
    best: tuple[int, Array] = (-1, np.zeros(len(op.weight), np.int64))
    for driven in op.crossbar.digits(values[:, None])[:, :, 0]:
        ends = driven.argmax(), driven.argmin()
        (most, x_most), (least, x_least) = ((int(driven[i]), values[i]) for i in ends)
        for column, group in product(op.stored.cells.slices, op.stored.groups):
            digits = column.digits[group].astype(np.int64)
            upward, downward = (limit(digits, 0).sum(axis=0) for limit in (np.maximum, np.minimum))
            sums = most * upward + least * downward
            j = int(sums.argmax())
            if sums[j] > best[0]:
                x = np.full(len(op.weight), min(max(0, lo), hi))
                x[group] = np.where(digits[:, j] > 0, x_most, x_least)
                best = int(sums[j]), x
    return best[1]


def sum_bits(op: CrossbarMvm) -> int:
    """Bits of two's complement that hold every column sum, whatever the inputs."""
    crossbar, stored = op.crossbar, op.stored
    largest = max(int(np.abs(edge).max()) for pair in stored.bounds for edge in pair)
    unit = max(map(abs, crossbar.digit_limits)) * len(op.weight) if crossbar.unit_column else 0
    return max(largest, unit).bit_length() + 1
