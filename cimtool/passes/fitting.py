"""What conversions err at each of several steps: the numbers that converters are fitted by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit, map_rows
from cimtool.hardware.bounds import column_bounds, lossless, unit_lossless
from cimtool.hardware.converter import transfer_shifts
from cimtool.hardware.crossbar import (
    encode_inputs,
    encode_weights,
    input_cycles,
    perfect,
    unit_cells,
    zero_digits,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.format import ROUNDINGS
from cimtool.simulation.kernels.portable import product_kind

CANDIDATES = 8
"""So many steps are tried, down from one whose codes reach beyond every sum that was seen."""

_ROUNDING_CODE = {name: code for code, name in enumerate(ROUNDINGS)}


@dataclass(frozen=True)
class Candidates:
    """Steps `first`, `first + 1`, .. of one converted column, and what they err at the output.

    `errors` [steps, rows, N] are whole numbers of 2^-fraction_bits of the layer's unit.
    """

    first: int
    errors: IntArray


class Sums:
    """Exact column sums of a layer for inputs `x` [n, K], a row group at a time."""

    def __init__(self, op: CrossbarMvm, x: IntArray):
        self.op, crossbar = op, op.crossbar
        rows = len(op.weight)
        self.groups = crossbar.groups(rows)
        self.digits = np.stack([cycle.digits for cycle in encode_inputs(x, crossbar)])
        self.counts = np.array([sign << shift for shift, _, sign in input_cycles(crossbar)])
        leak = crossbar.column_leak * crossbar.idle_rows(rows)
        self.idle = leak[:, None] * zero_digits(crossbar)

    def of_slice(self, conducts: IntArray, bound: int) -> Iterator[Array]:
        """Column sums [cycles, n, N] of every group for cells that conduct so much [K, N]."""
        kind = product_kind(bound)
        digits, packed = self.digits.astype(kind), conducts.astype(kind)
        for group, idle in zip(self.groups, self.idle, strict=True):
            driven = np.ascontiguousarray(digits[:, :, group])
            product = np.matmul(driven.reshape(-1, driven.shape[2]), packed[group])
            sums = product.reshape(*driven.shape[:2], -1)
            yield sums + idle[:, None, None].astype(kind) if idle.any() else sums


def slice_candidates(op: CrossbarMvm, x: IntArray) -> Iterator[Candidates | None]:
    """What each slice's candidates err for inputs `x` [n, K]; None where provably lossless."""
    crossbar, sums = op.crossbar, Sums(op, x)
    for stored in encode_weights(op.weight, crossbar):
        if lossless(stored, crossbar):
            yield None
            continue
        bound = max(int(np.abs(edge).max()) for edge in column_bounds(stored, crossbar))
        conducts = perfect(stored, crossbar).digits
        seen = max(int(np.abs(part).max()) for part in sums.of_slice(conducts, bound))
        steps = _steps(op, seen)
        errors = np.zeros((len(steps), len(x), op.weight.shape[1]), np.int64)
        for part, flipped in zip(sums.of_slice(conducts, bound), stored.flipped, strict=True):
            factor = np.where(flipped, -stored.sign, stored.sign) << stored.shift
            _add_errors(op, part, bound, sums.counts, factor, steps, errors)
        yield Candidates(steps[0], errors)


def unit_candidates(op: CrossbarMvm, x: IntArray) -> Candidates | None:
    """What the unit column's candidates err; None where there is none, or it is lossless."""
    crossbar, rows = op.crossbar, len(op.weight)
    if not crossbar.unit_column or unit_lossless(rows, crossbar):
        return None
    ones, sums = unit_cells(rows, crossbar), Sums(op, x)
    bound = max(int(np.abs(edge).max()) for edge in column_bounds(ones, crossbar))
    parts = [part.astype(np.int64) for part in sums.of_slice(ones.digits, bound)]
    steps = _steps(op, max(int(np.abs(part).max()) for part in parts))
    errors = np.zeros((len(steps), len(x), op.weight.shape[1]), np.int64)
    for part, factor in zip(parts, op.row_sum_factors, strict=True):
        for k, step in enumerate(steps):
            off = (crossbar.converter.codes(part, step) << step) - part
            errors[k] += np.tensordot(sums.counts, off, 1) * factor
    return Candidates(steps[0], errors)


def _steps(op: CrossbarMvm, seen: int) -> range:
    """The candidates for sums of at most `seen`."""
    top = op.crossbar.adc_limits[1]
    last = max(1, seen.bit_length() - top.bit_length() + 1)
    return range(max(0, last + 1 - CANDIDATES), last + 1)


def _add_errors(
    op: CrossbarMvm,
    sums: Array,
    bound: int,
    counts: IntArray,
    factor: IntArray,
    steps: range,
    errors: IntArray,
) -> None:
    """Add what a row group errs, its cycles counted `counts` and its columns `factor` [N] times."""
    converter = op.crossbar.converter
    lo, hi = converter.limits
    reach = bound + (max(hi, -lo) << steps[-1])
    kind = np.int32 if reach * int(np.abs(counts).sum()) < 1 << 30 else np.int64
    first, table = converter.table if converter.transfer is not None else (0, np.zeros(0, np.int64))
    shifts = np.array([transfer_shifts(step) for step in steps])
    rounding = -1 if converter.rounding is None else _ROUNDING_CODE[converter.rounding]

    def part(index: slice) -> None:
        rows, block = sums[:, index], errors[:, index]
        row = np.zeros(sums.shape[2], kind)
        if rounding < 0:
            _table_errors(rows, counts, factor, steps[0], shifts, first, table, row, block)
        else:
            _errors(rows, counts, factor, steps[0], lo, hi, rounding, row, block)

    map_rows(part, sums.shape[1], sums.shape[1])


@jit
def _errors(  # type: ignore[no-untyped-def]
    sums, counts, factor, first, lo, hi, rounding, row, errors
):
    cycles, rows, width = sums.shape
    integer = row.dtype.type
    lo, hi = integer(lo), integer(hi)
    for i in range(rows):
        for k in range(errors.shape[0]):
            step = integer(first + k)
            half = integer((1 << (first + k)) >> 1) if rounding < 2 else integer(0)
            even = rounding == 1 and step > 0
            row[:] = 0
            for c in range(cycles):
                column = sums[c, i]
                count = integer(counts[c])
                for j in range(width):
                    p = integer(column[j])
                    code = integer(integer(p + half) >> step)
                    if even and integer(code << step) == integer(p + half):
                        code = integer(code & integer(-2))
                    code = min(max(code, lo), hi)
                    row[j] += integer(integer(code << step) - p) * count
            for j in range(width):
                errors[k, i, j] += factor[j] * row[j]


@jit
def _table_errors(  # type: ignore[no-untyped-def]
    sums, counts, factor, first, shifts, low, table, row, errors
):
    cycles, rows, width = sums.shape
    integer = row.dtype.type
    last = len(table) - 1
    for i in range(rows):
        for k in range(errors.shape[0]):
            step = integer(first + k)
            row[:] = 0
            for c in range(cycles):
                column = sums[c, i]
                count = integer(counts[c])
                for j in range(width):
                    p = np.int64(column[j])
                    entry = ((p << shifts[k, 0]) >> shifts[k, 1]) - low
                    code = integer(table[min(max(entry, 0), last)])
                    row[j] += integer(integer(code << step) - integer(p)) * count
            for j in range(width):
                errors[k, i, j] += factor[j] * row[j]
