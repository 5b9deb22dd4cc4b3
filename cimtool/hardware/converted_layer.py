"""A layer as its arrays hold it and its converters read it: what every backend is made from.

Nothing here depends on which code or which converter a target names. A new weight code is a class
in `weight_codes.py`: its digits, shifts, signs and flags arrive here as `Cells`. A new converter is
a class in `converters.py`, whose law is one of two kinds: equal steps, or a staircase, which is any
law whose codes rise with the sum (thresholds in 1/16 step, levels in whole steps). Only a third
kind of law would change backends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.bounds import Bounds, column_bounds
from cimtool.hardware.converters import Law
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.weight_codes import Slice, plain


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a layer's arrays: conductances in whole numbers of 2^-fraction_bits of a digit.

    `slices[k].digits` [K, N] of the perfect array are its digits plus `leak`, the conductance of an
    erased cell; on a die they are the conductances of its devices. The digital side takes `leak`
    off for each row.
    """

    crossbar: Crossbar
    slices: tuple[Slice, ...]
    fraction_bits: int
    leak: int

    @property
    def finer(self) -> int:
        """Binary places of the cells in addition to those of the contract."""
        return self.fraction_bits - self.crossbar.fraction_bits

    @property
    def places(self) -> int:
        """Binary places of the values that are read of these cells' sums, in units of a digit."""
        return self.fraction_bits + self.crossbar.reference_bits

    @property
    def digits(self) -> tuple[IntArray, ...]:
        """The digits [K, N] of each slice of the perfect array, without the leak."""
        if not self.leak:
            return tuple(one.digits for one in self.slices)
        held = (one.digits.astype(np.int64) - self.leak for one in self.slices)
        return tuple(one >> self.fraction_bits for one in held)

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """The row groups."""
        return self.crossbar.tiling.groups(len(self.slices[0].digits))

    @property
    def heights(self) -> IntArray:
        """Rows [groups] of the row groups."""
        return np.array([group.stop - group.start for group in self.groups], np.int64)

    @cached_property
    def idle_rows(self) -> IntArray:
        """Idle rows [groups] that are driven with the code of zero."""
        return self.crossbar.tiling.idle(len(self.slices[0].digits))

    @property
    def idle_sums(self) -> IntArray:
        """Parts [groups, cycles] of every column sum that idle rows add."""
        return self.leak * self.idle_rows[:, None] * self.crossbar.zero_digits

    @property
    def counts(self) -> IntArray:
        """The factors [groups, slices, N] with which values of column sums count in outputs."""
        return np.stack([one.counts for one in self.slices], axis=1).astype(np.int64)

    @cached_property
    def row_sum_factors(self) -> IntArray:
        """Factors [groups, N] with which the sum of a group's encoded inputs joins each output.

        For complements, which count the sum less their digits, and to take off what cells hold
        beyond the weights.
        """
        code = self.crossbar.weights
        terms = [s.flipped * (s.worth * code.complement) for s in self.slices]
        return np.asarray(np.sum(terms, axis=0), np.int64) - code.offset

    @cached_property
    def unit(self) -> Slice:
        """The unit column: a slice of one column whose cells all hold 1."""
        return plain(np.ones((len(self.slices[0].digits), 1), np.int64), self.groups, 0)

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """The proved bounds of the sums of every slice, and last of the unit column, if any."""
        kinds = (*self.slices, *[self.unit] * self.crossbar.unit_column)
        return tuple(column_bounds(one.digits, self.crossbar, self.idle_sums) for one in kinds)


@dataclass(frozen=True, eq=False)
class ConvertedColumns:
    """Columns that are converted alike: the N of one slice, or the one unit column.

    `cycles` are the cycles that share these references: all, or one if each cycle has its own. Sums
    lie within `bounds` and become values by `law` at a `step` [groups, columns] from `offset`
    [groups, columns] on, both in 2^-places of a digit; a lossless conversion has no law and a step
    of 0. A value of a row group counts `factors` [groups, N] times in each output, times the factor
    of its cycle. `drive` is the sum of the cycles' absolute factors.
    """

    cells: Slice
    factors: IntArray
    bounds: Bounds
    cycles: range
    drive: int
    law: Law | None
    step: IntArray
    offset: IntArray

    @property
    def reach(self) -> int:
        """The largest magnitude of a sum that is proved."""
        return max(int(np.abs(edge).max()) for edge in self.bounds)

    def codes(self, sums: IntArray, group: int) -> IntArray:
        """The codes of sums [.., columns] of a row group, in 2^-places of a digit."""
        assert self.law is not None
        return self.law.codes(sums - self.offset[group], self.step[group])

    @property
    def one_step(self) -> int | None:
        """The step of all columns; None if they have different ones."""
        first = int(self.step[0, 0])
        return first if (self.step == first).all() else None

    @property
    def exponent(self) -> int:
        """The logarithm of one step that is a power of two; -1 for others."""
        step = self.one_step
        return -1 if step is None or step & step - 1 else step.bit_length() - 1


@dataclass(frozen=True, eq=False)
class ConvertedLayer:
    """Cells, the `references` of their converters, and the `bias` [N] that is added digitally.

    There are references for each slice and last for the unit column, if there is one; each for all
    cycles, or for each cycle in turn (`Crossbar.reference_of`). They count in the cells' `places`.
    None is lossless. Inputs [n, K] become outputs [n, N] by

        sum   = digits of a cycle . cells of a row group + idle_sums
        value = law's value of (sum << reference_bits) - offset, at the step, + offset
        total = sum over groups, columns, cycles of value * factors * the cycle's factor
                + sum over groups of (row sum of inputs + lift) * row_factors + start
        out   = (total + half >> places) + bias

    `law` holds limits and rounding, or thresholds and levels (`converters.py`); digits of a cycle
    are `crossbar.digits`, cut by its `shift` and `mask` from inputs + lift.
    """

    cells: Cells
    references: tuple[AdcReferences | None, ...]
    bias: IntArray

    @property
    def crossbar(self) -> Crossbar:
        """The codes and the converters of the arrays."""
        return self.cells.crossbar

    @cached_property
    def columns(self) -> tuple[ConvertedColumns, ...]:
        """The columns of each slice, and of the unit column: as many as `references`."""
        cells, crossbar, every = self.cells, self.crossbar, range(len(self.crossbar.cycles))
        kinds = list(zip(cells.slices, cells.counts.swapaxes(0, 1), strict=True))
        if crossbar.unit_column:
            kinds.append((cells.unit, cells.row_sum_factors << cells.fraction_bits))
        alike = [every] if crossbar.reference_cycles == 1 else [range(c, c + 1) for c in every]
        found = []
        for k, (held, factors) in enumerate(kinds):
            shape = len(factors), held.digits.shape[1]
            for cycles in alike:
                drive = sum(1 << crossbar.cycles[c].shift for c in cycles)
                law, step, offset = None, *np.zeros((2, 1, 1), np.int64)
                one = self.references[crossbar.reference_of(k, cycles[0])]
                if one is not None and crossbar.law is not None:
                    law, step, offset = one.law(crossbar.law), one.step, one.offset
                step, offset = (np.broadcast_to(part, shape) for part in (step, offset))
                parts = held, factors, cells.bounds[k], cycles, drive, law, step, offset
                found.append(ConvertedColumns(*parts))
        return tuple(found)

    @property
    def of_slices(self) -> tuple[ConvertedColumns, ...]:
        """The columns without the unit column's."""
        return self.columns[: self.crossbar.reference_of(len(self.cells.slices), 0)]

    @cached_property
    def row_factors(self) -> IntArray:
        """Factors [groups, N] with which the sum of a group's encoded inputs joins the total.

        They take off leaks, and add `Cells.row_sum_factors` unless a unit column does.
        """
        if self.crossbar.unit_column:
            return self._leaked
        return self._leaked + (self.cells.row_sum_factors << self.cells.places)

    @property
    def starts(self) -> IntArray:
        """The addition [groups, N] of each row group before any sum: less what idle rows leak."""
        starts: IntArray = self.crossbar.inputs.lift * self.cells.idle_rows[:, None] * self._leaked
        return starts

    @property
    def start(self) -> IntArray:
        """The total [N] before any sum."""
        start: IntArray = self.starts.sum(axis=0)
        return start

    @property
    def _leaked(self) -> IntArray:
        leak = self.cells.leak << self.crossbar.reference_bits
        found: IntArray = -leak * self.cells.counts.sum(axis=1)
        return found

    def corner(self, columns: int) -> ConvertedLayer:
        """The first row group and columns: a layer by which kernels are checked."""
        cells, some = self.cells, slice(0, columns)
        slices = tuple(
            replace(s, digits=s.digits[cells.groups[0], some], flipped=s.flipped[:1, some])
            for s in cells.slices
        )
        references = (None if one is None else one.among(some) for one in self.references)
        return ConvertedLayer(replace(cells, slices=slices), tuple(references), self.bias[some])
