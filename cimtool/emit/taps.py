"""The numbers on the way through one layer, at the taps where a chip can be probed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, IntArray
from cimtool.hardware.bounds import column_bounds
from cimtool.hardware.crossbar import (
    Slice,
    correction,
    encode_inputs,
    encode_weights,
    perfect_cells,
    zero_digits,
)
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
    crossbar, (rows, width) = op.crossbar, op.weight.shape
    cells = perfect_cells(op.weight, crossbar)
    conducts = np.hstack([column.digits for column in cells.slices])
    if crossbar.unit_column:
        conducts = np.hstack([conducts, np.ones((rows, 1), np.int64)])
    cycles, zeros = list(encode_inputs(x, crossbar)), zero_digits(crossbar)
    digits = np.stack([cycle.digits for cycle in cycles], axis=1)
    groups, idle = crossbar.groups(rows), cells.leak * crossbar.idle_rows(rows)
    exact = np.float64 if sum_bits(op) < FLOAT_BITS else np.int64  # products in BLAS where exact
    driven, packed = digits.astype(exact), conducts.astype(exact)
    products = [(driven[:, :, group] @ packed[group]).astype(np.int64) for group in groups]
    sums = np.stack(products, axis=1) + (idle[:, None] * zeros)[None, :, :, None]
    codes = sums.copy()
    for column, step in converted_columns(op):
        if step is not None:
            codes[..., column] = crossbar.converter.codes(sums[..., column], step)
    slices = encode_weights(op.weight, crossbar)
    added = [_group_sum(op, slices, digits, codes, r) for r in range(len(groups))]
    return Taps(digits, sums, codes, np.stack(added, axis=1).reshape(len(x), len(groups), width))


def converted_columns(op: CrossbarMvm) -> list[tuple[slice, int | None]]:
    """The columns of each slice in `Taps.codes`, then the unit column, and their steps."""
    width = op.weight.shape[1]
    columns = [(slice(k * width, (k + 1) * width), step) for k, step in enumerate(op.steps)]
    if op.crossbar.unit_column:
        end = width * len(columns)
        columns.append((slice(end, end + 1), op.unit_step))
    return columns


def _group_sum(
    op: CrossbarMvm, slices: tuple[Slice, ...], digits: IntArray, codes: IntArray, r: int
) -> IntArray:
    """Shift-and-add of one row group [n, N], with the digital corrections that belong to it."""
    crossbar, rows = op.crossbar, len(op.weight)
    fraction = crossbar.fraction_bits
    driven = digits[:, :, crossbar.groups(rows)[r]].sum(axis=2, keepdims=True)
    idle = crossbar.idle_rows(rows)[r] * zero_digits(crossbar)[None, :, None]
    leak = crossbar.column_leak * (driven + idle)
    columns = converted_columns(op)
    values = [codes[:, r, :, part] << (step or 0) for part, step in columns]
    row_sum = (values.pop() if crossbar.unit_column else driven) << fraction
    total: IntArray = np.zeros(values[0].shape[::2], np.int64)
    for stored, value in zip(slices, values, strict=True):
        p = value - leak
        p = np.where(stored.flipped[r], crossbar.cell_maximum * row_sum - p, p)
        total += stored.sign * _over_cycles(op, p << stored.shift)
    if crossbar.offset_weights:
        total -= _over_cycles(op, row_sum << crossbar.weight_bits - 1)
    return total


def _over_cycles(op: CrossbarMvm, values: IntArray) -> IntArray:
    """Add up [n, cycles, N] with the weight of each cycle."""
    zero = np.zeros((1, 1), np.int64)
    weights = [cycle.sign << cycle.shift for cycle in encode_inputs(zero, op.crossbar)]
    total: IntArray = np.einsum("ncj,c->nj", values, np.array(weights))
    return total


def layer_sum(op: CrossbarMvm, shift_add: IntArray) -> IntArray:
    """The layer's output [n, N] from what its row groups add."""
    crossbar = op.crossbar
    half = 1 << crossbar.fraction_bits >> 1
    total: IntArray = shift_add.sum(axis=1) + half >> crossbar.fraction_bits
    total = total + op.bias - correction(op.weight, crossbar)
    return total


def worst_column(op: CrossbarMvm, lo: int, hi: int) -> IntArray:
    """The input [K] of lo..hi that makes the largest column sum of all that any input can make.

    Of all slices, columns, row groups and cycles; rows of other groups are zero.
    """
    crossbar, rows = op.crossbar, len(op.weight)
    values = np.arange(lo, hi + 1)
    best: tuple[int, Array] = (-1, np.zeros(rows, np.int64))
    columns = perfect_cells(op.weight, crossbar).slices
    for cycle in encode_inputs(values[:, None], crossbar):
        ends = cycle.digits[:, 0].argmax(), cycle.digits[:, 0].argmin()
        (most, x_most), (least, x_least) = ((int(cycle.digits[i, 0]), values[i]) for i in ends)
        for column, group in product(columns, crossbar.groups(rows)):
            digits = column.digits[group]
            upward, downward = (limit(digits, 0).sum(axis=0) for limit in (np.maximum, np.minimum))
            sums = most * upward + least * downward
            j = int(sums.argmax())
            if sums[j] > best[0]:
                x = np.full(rows, min(max(0, lo), hi))
                x[group] = np.where(digits[:, j] > 0, x_most, x_least)
                best = int(sums[j]), x
    return best[1]


def sum_bits(op: CrossbarMvm) -> int:
    """Bits of two's complement that hold every column sum, whatever the inputs."""
    crossbar = op.crossbar
    bounds = [column_bounds(column, crossbar) for column in encode_weights(op.weight, crossbar)]
    largest = max(int(np.abs(edge).max()) for pair in bounds for edge in pair)
    unit = max(map(abs, crossbar.digit_limits)) * len(op.weight) if crossbar.unit_column else 0
    return max(largest, unit).bit_length() + 1
