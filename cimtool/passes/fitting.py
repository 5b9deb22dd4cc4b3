"""Errors of conversions at each of several steps: the numbers that converters are fitted by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit, map_rows
from cimtool.hardware.bounds import lossless
from cimtool.hardware.converters import Law, StaircaseLaw, threshold_shifts
from cimtool.hardware.mvm import ConvertedColumns, CrossbarMvm
from cimtool.simulation.kernels.products import product_kind

TRIED_STEPS = 8
"""Steps that are tried, down from one whose codes reach beyond every sum that was seen."""


@dataclass(frozen=True)
class StepErrors:
    """Errors at a layer's output of one converted column at the steps `first`, `first + 1`, ...

    `errors` [steps, rows, N] are whole numbers of 2^-fraction_bits of the layer's unit.
    """

    first: int
    errors: IntArray


class GroupSums:
    """Exact column sums of a layer for inputs `x` [n, K], a row group at a time."""

    def __init__(self, op: CrossbarMvm, x: IntArray):
        crossbar, stored = op.crossbar, op.stored
        self.groups = stored.groups
        self.digits = crossbar.digits(x)
        self.counts = crossbar.cycle_factors
        leak = crossbar.column_leak * stored.cells.idle_rows
        self.idle = leak[:, None] * crossbar.zero_digits

    def of_slice(self, conducts: IntArray, bound: int) -> Iterator[Array]:
        """Column sums [cycles, n, N] of every group for cells that conduct so much [K, N]."""
        kind = product_kind(bound)
        digits, packed = self.digits.astype(kind), conducts.astype(kind)
        for group, idle in zip(self.groups, self.idle, strict=True):
            driven = np.ascontiguousarray(digits[:, :, group])
            product = np.matmul(driven.reshape(-1, driven.shape[2]), packed[group])
            sums = product.reshape(*driven.shape[:2], -1)
            yield sums + idle[:, None, None].astype(kind) if idle.any() else sums


def column_errors(op: CrossbarMvm, x: IntArray) -> Iterator[StepErrors | None]:
    """Errors of each slice at the tried steps, and last of the unit column, for inputs `x` [n, K].

    None where a column is provably lossless, or there is no unit column.
    """
    sums = GroupSums(op, x)
    for column in op.columns:
        yield _step_errors(op, sums, column)
    if not op.crossbar.unit_column:
        yield None


def _step_errors(op: CrossbarMvm, sums: GroupSums, column: ConvertedColumns) -> StepErrors | None:
    """Errors of columns at the tried steps; None where they are provably lossless."""
    conducts, bounds = column.cells.digits, column.bounds
    law = op.crossbar.law
    if law is None or lossless(bounds, op.crossbar):
        return None
    bound = max(int(np.abs(edge).max()) for edge in bounds)
    seen = max(int(np.abs(part).max()) for part in sums.of_slice(conducts, bound))
    steps = _steps(law, seen)
    errors = np.zeros((len(steps), sums.digits.shape[1], op.stored.shape[1]), np.int64)
    for part, factor in zip(sums.of_slice(conducts, bound), column.factors, strict=True):
        if part.shape[2] == len(factor):
            _add_errors(law, part, bound, sums.counts, factor, steps, errors)
        else:  # one column, which all others share
            own = np.zeros((*errors.shape[:2], 1), np.int64)
            _add_errors(law, part, bound, sums.counts, np.ones(1, np.int64), steps, own)
            errors += own * factor
    return StepErrors(steps[0], errors)


def _steps(law: Law, seen: int) -> range:
    """The steps to try for sums of at most `seen`."""
    last = max(1, seen.bit_length() - law.ends[1].bit_length() + 1)
    return range(max(0, last + 1 - TRIED_STEPS), last + 1)


def _add_errors(
    law: Law,
    sums: Array,
    bound: int,
    counts: IntArray,
    factor: IntArray,
    steps: range,
    errors: IntArray,
) -> None:
    """Add the errors of a row group, cycles counted `counts` and columns `factor` [N] times."""
    lo, hi = law.ends
    reach = bound + (max(hi, -lo) << steps[-1])
    kind = np.int32 if reach * int(np.abs(counts).sum()) < 1 << 30 else np.int64
    shifts = np.array([threshold_shifts(step) for step in steps])
    low, table, half, to_even = 0, np.zeros(0, np.int64), False, False
    if isinstance(law, StaircaseLaw):
        low, table = law.table
    else:
        half, to_even = law.half, law.to_even

    def part(index: slice) -> None:
        rows, block = sums[:, index], errors[:, index]
        row = np.zeros(sums.shape[2], kind)
        rounding = lo, hi, half, to_even
        _errors(rows, counts, factor, steps[0], rounding, shifts, low, table, row, block)

    map_rows(part, sums.shape[1], sums.shape[1])


@jit
def _errors(  # type: ignore[no-untyped-def]
    sums, counts, factor, first, rounding, shifts, low, table, row, errors
):
    """Add to `errors` [steps, rows, N]: by `table` where it has entries, else by rounding."""
    cycles, rows, width = sums.shape
    integer = row.dtype.type
    lo, hi, last = integer(rounding[0]), integer(rounding[1]), len(table) - 1
    for i in range(rows):
        for k in range(errors.shape[0]):
            step = integer(first + k)
            half = integer((1 << (first + k)) >> 1) if rounding[2] else integer(0)
            even = rounding[3] and step > 0
            row[:] = 0
            for c in range(cycles):
                column = sums[c, i]
                count = integer(counts[c])
                if last >= 0:
                    for j in range(width):
                        entry = ((np.int64(column[j]) << shifts[k, 0]) >> shifts[k, 1]) - low
                        code = integer(table[min(max(entry, 0), last)])
                        row[j] += integer(integer(code << step) - integer(column[j])) * count
                else:
                    for j in range(width):
                        p = integer(column[j])
                        code = integer(integer(p + half) >> step)
                        if even and integer(code << step) == integer(p + half):
                            code = integer(code & integer(-2))
                        code = min(max(code, lo), hi)
                        row[j] += integer(integer(code << step) - p) * count
            for j in range(width):
                errors[k, i, j] += factor[j] * row[j]
