"""References of converters: the step and the offset with which the columns of a slice convert.

A converter of full scale has one step, from zero, with which its codes cover all sums of an array.
One whose references are fixed counts steps of 2^e of a column sum's unit from zero. Where
references can be set, the step S and the offset O are whole numbers of 2^-REFERENCE_BITS of that
unit, each for a slice or for each physical column, set when weights are loaded, once for all cycles
or for each of them:

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

AdcReferenceKind = Literal["full-scale", "fixed", "slice", "column", "gain", "cycle", "levels"]
"""The references that can be set:

    full-scale  none: the codes cover whatever an array can sum
    fixed       a step of 2^e per slice
    slice       a step and an offset per slice
    column      a step per slice, an offset per column
    gain        a step and an offset per column
    cycle       for each cycle a step per slice and an offset per column
    levels      levels per slice, an offset per column
"""


@dataclass(frozen=True)
class ReferenceScope:
    """The extent for which the references of a kind are set.

    `set`: steps are no powers of two, or there are offsets; `columns`: each column has an offset;
    `gains`: and a step; `cycles`: each cycle has references; `levels`: a slice has levels in place
    of equal steps; `chosen`: steps are those that are best for a slice, not that of the full scale.
    """

    set: bool = True
    columns: bool = False
    gains: bool = False
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
    "gain": ReferenceScope(columns=True, gains=True),
    "cycle": ReferenceScope(columns=True, cycles=True),
    "levels": ReferenceScope(columns=True, levels=True),
}
"""The references that each kind can set."""

REFERENCE_BITS = 2
"""Binary places of a sum's unit in which references that can be set count."""

LEVEL_SPAN_BITS = 6
"""Levels of 2^bits codes lie within 2^(bits + LEVEL_SPAN_BITS) steps."""


def exponents(steps: IntArray) -> IntArray:
    """The logarithms of steps that are powers of two; -1 for others, and for 0."""
    powers = (steps > 0) & (steps & steps - 1 == 0)
    _, above = np.frexp(np.where(powers, steps, 0))
    return np.where(powers, above.astype(np.int64) - 1, -1)


@dataclass(frozen=True, eq=False)
class AdcReferences:
    """The steps S > 0 and the offsets O [groups, N] of the columns of one slice in its cycles.

    Either extent of both is 1 if all are alike. `levels`, if there are some, count in whole steps,
    which then are alike.
    """

    step: IntArray
    offset: IntArray
    levels: StaircaseLaw | None = None

    @classmethod
    def from_zero(cls, step: int) -> AdcReferences:
        """Steps that are alike and count from zero."""
        return cls.alike(step, np.zeros((1, 1), np.int64))

    @classmethod
    def alike(
        cls, step: int, offset: IntArray, levels: StaircaseLaw | None = None
    ) -> AdcReferences:
        """One step for all columns, and their offsets [groups, N]."""
        return cls(np.full((1, 1), step, np.int64), offset, levels)

    @property
    def counts_from_zero(self) -> bool:
        """No column has an offset."""
        return not self.offset.any()

    def of_group(self, group: int) -> tuple[IntArray, IntArray]:
        """The steps and the offsets of a row group's columns, [N] or [1] each."""
        step, offset = (part[min(group, len(part) - 1)] for part in (self.step, self.offset))
        return step, offset

    def among(self, columns: slice) -> AdcReferences:
        """The references of some columns in the first row group."""
        firsts = self.step[:1], self.offset[:1]
        step, offset = (one if one.shape[1] == 1 else one[:, columns] for one in firsts)
        return replace(self, step=step, offset=offset)

    def finer(self, places: int) -> AdcReferences:
        """The same references in units that are `places` binary places finer."""
        return replace(self, step=self.step << places, offset=self.offset << places)

    def law(self, law: Law) -> Law:
        """The law of these columns: their levels if they have some, else the converter's `law`."""
        return self.levels or law

    @property
    def width(self) -> IntArray:
        """The steps, or the mean distance of two levels; as many as there are steps."""
        if self.levels is None:
            return self.step
        lo, hi = self.levels.ends
        return np.maximum((hi - lo) * self.step // len(self.levels.thresholds), 1)

    def unclipped(self, law: Law) -> tuple[IntArray, IntArray]:
        """The lowest and the highest sum, less its offset, that counts as not clipped.

        One for each step. The first and the last code count as wide as the mean code.
        """
        if self.levels is None:
            return law.unclipped(self.step)
        half, (lo, hi) = self.width >> 1, self.levels.ends
        return lo * self.step - half, hi * self.step + self.width - half - 1

    def read(self, law: Law, p: IntArray, group: int) -> IntArray:
        """The values of column sums [.., N] of a row group, after conversion and read-back."""
        (step, offset), law = self.of_group(group), self.law(law)
        return law.values(law.codes(p - offset, step), step) + offset

    def with_equal_levels(self, law: Law) -> AdcReferences:
        """The same conversions by levels, in 1/8 of a step or finer; ties go up unless floored."""
        step = int(self.step[0, 0])
        half = 0 if isinstance(law, UniformLaw) and not law.half else step >> 1
        # A power of two that divides the step and half of it.
        unit = min((step & -step) >> 1, 1 << step.bit_length() >> 4) or 1
        values = np.arange(law.lo, law.hi + 1) * step
        levels = StaircaseLaw(law.lo, (values[1:] - half) // unit, values // unit, places=0)
        return AdcReferences.alike(unit, self.offset, levels)

    def check(self, law: Law, scope: ReferenceScope) -> None:
        """Raise ValueError for references that are none of a converter of this law."""
        for part in (self.step, self.offset):
            if not (isinstance(part, np.ndarray) and part.ndim == 2 and part.dtype == np.int64):
                raise ValueError("converter steps and offsets: expected whole numbers [groups, N]")
        if self.step.min() < 1:
            raise ValueError(f"converter step {self.step.min()}: must be at least 1")
        if self.step.size > 1 and not scope.gains:
            raise ValueError(f"{self.step.size} converter steps: expected one for all columns")
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
