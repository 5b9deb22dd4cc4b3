"""References of converters: the step and the offset with which the columns of a slice convert.

A converter of full scale has one step, from zero, with which its codes cover all sums of an array.
One whose references are fixed counts steps of 2^e of a column sum's unit from zero. Where
references can be set, the step S and the offset O are whole numbers of 2^-REFERENCE_BITS of that
unit, S for a slice and O for each physical column or for the slice, set when weights are loaded,
once for all cycles or for each of them:

    code = clip(round((p - O) / S), lo, hi)          value = code S + O

Where thresholds can be set, a slice has levels in place of equal steps, one table of thresholds t
and one of values v, whole numbers of S:

    code = lo + (number of t_j <= (p - O) / S)       value = v[code - lo] S + O
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Literal

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law, StaircaseLaw, UniformLaw

AdcReferenceKind = Literal["full-scale", "fixed", "slice", "column", "cycle", "levels"]
"""The references that can be set:

    full-scale  none: the codes cover whatever an array can sum
    fixed       a step of 2^e per slice
    slice       a step and an offset per slice
    column      a step per slice, an offset per column
    cycle       for each cycle a step per slice and an offset per column
    levels      levels per slice, an offset per column
"""


@dataclass(frozen=True)
class ReferenceScope:
    """The extent for which the references of a kind are set.

    `set`: steps are no powers of two, or there are offsets; `columns`: each column has an offset;
    `cycles`: each cycle has references; `levels`: a slice has levels in place of equal steps;
    `chosen`: steps are those that are best for a slice, not that of the full scale.
    """

    set: bool = True
    columns: bool = False
    cycles: bool = False
    levels: bool = False
    chosen: bool = True

    def within(self, other: ReferenceScope) -> bool:
        """The other sets all that this one does."""
        return all(
            not mine or theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)
        )


SCOPES: dict[AdcReferenceKind, ReferenceScope] = {
    "full-scale": ReferenceScope(chosen=False),
    "fixed": ReferenceScope(set=False),
    "slice": ReferenceScope(),
    "column": ReferenceScope(columns=True),
    "cycle": ReferenceScope(columns=True, cycles=True),
    "levels": ReferenceScope(columns=True, levels=True),
}
"""The references that each kind can set."""

REFERENCE_BITS = 2
"""Binary places of a sum's unit in which references that can be set count."""

LEVEL_SPAN_BITS = 6
"""Levels of 2^bits codes lie within 2^(bits + LEVEL_SPAN_BITS) steps."""


@dataclass(frozen=True, eq=False)
class AdcReferences:
    """The step S > 0, and the offsets O [groups, N], of the columns of one slice in its cycles.

    Either extent of the offsets is 1 if all are alike. `levels`, if there are some, count in
    whole steps.
    """

    step: int
    offset: IntArray
    levels: StaircaseLaw | None = None

    @classmethod
    def from_zero(cls, step: int) -> AdcReferences:
        """Steps that count from zero."""
        return cls(step, np.zeros((1, 1), np.int64))

    @property
    def counts_from_zero(self) -> bool:
        """No column has an offset."""
        return not self.offset.any()

    def of_group(self, group: int) -> IntArray:
        """The offsets [N], or [1], of a row group's columns."""
        row: IntArray = self.offset[min(group, len(self.offset) - 1)]
        return row

    def among(self, columns: slice) -> AdcReferences:
        """The references of some columns in the first row group."""
        first = self.offset[:1]
        return replace(self, offset=first if first.shape[1] == 1 else first[:, columns])

    def finer(self, places: int) -> AdcReferences:
        """The same references in units that are `places` binary places finer."""
        return replace(self, step=self.step << places, offset=self.offset << places)

    def law(self, law: Law) -> Law:
        """The law of these columns: their levels if they have some, else the converter's `law`."""
        return self.levels or law

    @property
    def width(self) -> int:
        """The step, or the mean distance of two levels."""
        if self.levels is None:
            return self.step
        lo, hi = self.levels.ends
        return max((hi - lo) * self.step // len(self.levels.thresholds), 1)

    def unclipped(self, law: Law) -> tuple[int, int]:
        """The lowest and the highest sum, less its offset, that counts as not clipped.

        The first and the last code count as wide as the mean code.
        """
        if self.levels is None:
            return law.unclipped(self.step)
        half, (lo, hi) = self.width >> 1, self.levels.ends
        return lo * self.step - half, hi * self.step + self.width - half - 1

    def read(self, law: Law, p: IntArray, group: int) -> IntArray:
        """The values of column sums [.., N] of a row group, after conversion and read-back."""
        offset, law = self.of_group(group), self.law(law)
        return law.values(law.codes(p - offset, self.step), self.step) + offset

    def with_equal_levels(self, law: Law) -> AdcReferences:
        """The same conversions by levels, in 1/8 of a step or finer; ties go up unless floored."""
        half = 0 if isinstance(law, UniformLaw) and not law.half else self.step >> 1
        # A power of two that divides the step and half of it.
        unit = min((self.step & -self.step) >> 1, 1 << self.step.bit_length() >> 4) or 1
        values = np.arange(law.lo, law.hi + 1) * self.step
        levels = StaircaseLaw(law.lo, (values[1:] - half) // unit, values // unit, places=0)
        return AdcReferences(unit, self.offset, levels)

    def check(self, law: Law, scope: ReferenceScope) -> None:
        """Raise ValueError for references that are none of a converter of this law."""
        if self.step < 1:
            raise ValueError(f"converter step {self.step}: must be at least 1")
        if (self.levels is not None) != scope.levels:
            raise ValueError(f"converter levels: {'missing' if scope.levels else 'not expected'}")
        if self.levels is None:
            return
        codes, most = law.hi + 1 - law.lo, 1 << (law.hi - law.lo).bit_length() + LEVEL_SPAN_BITS
        for numbers in (self.levels.thresholds, self.levels.levels):
            if not (isinstance(numbers, np.ndarray) and numbers.ndim == 1 and numbers.dtype == int):
                raise ValueError("converter levels: expected whole numbers in a row")
        thresholds, levels = self.levels.thresholds, self.levels.levels
        if len(thresholds) != codes - 1 or len(levels) != codes:
            raise ValueError(
                f"converter levels: {len(thresholds)} thresholds and {len(levels)} values; "
                f"{codes} codes have {codes - 1} and {codes}"
            )
        for name, numbers in (("thresholds", thresholds), ("values", levels)):
            if (numbers[1:] <= numbers[:-1]).any():
                raise ValueError(f"converter levels: {name} must rise")
            if numbers.size and max(int(numbers[-1]), -int(numbers[0])) >= most:
                raise ValueError(f"converter levels: {name} must lie within {most} steps")
