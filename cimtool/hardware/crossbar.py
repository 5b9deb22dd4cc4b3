"""The arrays of one layer: the codes of weights and inputs, the converters, the row groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import kind_of
from cimtool.base.named import Named
from cimtool.base.plugins import fault_of
from cimtool.base.typed_fields import made_of
from cimtool.hardware.converters import LOSSLESS, Converter, Law, law_of
from cimtool.hardware.input_codes import Cycle, InputCode, check_cycles
from cimtool.hardware.references import (
    REFERENCE_BITS,
    SCOPES,
    AdcReferenceKind,
    AdcReferences,
    ReferenceScope,
)
from cimtool.hardware.weight_codes import WeightCode

AdcOn = Literal["difference", "polarity"]
ShiftAdd = Literal["digital", "analog"]
OffsetSum = Literal["digital", "unit-column"]
UnusedRows = Literal["off", "driven"]

LEAK_BITS = 12
"""Binary places of column sums if erased cells conduct, in units of a digit."""


def leak_of(on_off_ratio: float | None, cell_bits: int) -> int:
    """Conductance of an erased cell in 2^-LEAK_BITS of a digit: the digits span g_min to g_max.

    Zero for a ratio of None (infinite), or one so large that the leak rounds to nothing.
    """
    if on_off_ratio is None:
        return 0
    digit = ((1 << cell_bits) - 1) / (on_off_ratio - 1)
    return int(np.floor(digit * (1 << LEAK_BITS) + 0.5))


FAMILIES: Mapping[str, type[Named]] = {
    "weights": WeightCode,
    "inputs": InputCode,
    "converter": Converter,
}
"""The fields of a crossbar whose values are classes by name.

The fields of these classes are integers, numbers, texts, or tuples of them, as a bundle writes them
and reads them back.
"""


@dataclass(frozen=True)
class RowTiling:
    """Rows of weights in an array, and which of them one conversion sums.

    `height` weights lie in one column of an array (None: all rows of the layer), `active` of them
    are summed in one conversion (None: all). Rows of an array without weights are off or driven
    with the code of zero.
    """

    height: int | None = None
    active: int | None = None
    unused: UnusedRows = "off"

    def groups(self, rows: int) -> tuple[slice, ...]:
        """The row groups of a layer with this many rows; none reaches over the end of an array."""
        height = rows if self.height is None else self.height
        active = height if self.active is None else self.active
        return tuple(
            slice(first, min(first + active, start + height, rows))
            for start in range(0, rows, height)
            for first in range(start, min(start + height, rows), active)
        )

    def idle(self, rows: int) -> IntArray:
        """Idle rows [groups] of a layer that are driven with the code of zero."""
        groups = self.groups(rows)
        if self.unused == "off" or self.height is None:
            return np.zeros(len(groups), np.int64)
        height = self.height
        active = height if self.active is None else self.active
        ends = [min(g.start + active, g.start - g.start % height + height) for g in groups]
        return np.array([end - g.stop for end, g in zip(ends, groups, strict=True)], np.int64)


@dataclass(frozen=True)
class Crossbar:
    """The arrays of one layer: its weights, inputs and converters in their codes.

    `adc_on`: the converter sees the difference of a pair of cells, or each polarity. `shift_add`:
    cycles are added before the converter (analog) or after it. `offset_sum`: where the sum of the
    inputs comes from that offset weights need. `references`: which steps and offsets of converters
    can be set. `leak` is the conductance of an erased cell in 2^-LEAK_BITS of a digit.
    """

    weights: WeightCode
    inputs: InputCode
    accumulator_bits: int
    converter: Converter = LOSSLESS
    tiling: RowTiling = RowTiling()
    adc_on: AdcOn = "difference"
    shift_add: ShiftAdd = "digital"
    offset_sum: OffsetSum = "digital"
    references: AdcReferenceKind = "fixed"
    leak: int = 0

    def __post_init__(self) -> None:
        for part in (getattr(self, name) for name in FAMILIES):
            for name in (one.name for one in fields(part)):
                value = getattr(part, name)
                plain = value if isinstance(value, tuple) else (value,)
                if not all(isinstance(one, int | float | str | None) for one in plain):
                    sentence = (
                        f"{type(part).__name__}.{name} is of type {kind_of(value)}; expected an "
                        "integer, a number, a text, or a tuple of them"
                    )
                    raise fault_of(type(part), sentence, TypeError)
        check_cycles(self.inputs)

    @property
    def columns_by_polarity(self) -> bool:
        """Each polarity of a pair is a column that is converted separately."""
        return self.weights.paired and self.adc_on == "polarity"

    @property
    def by_difference(self) -> bool:
        """Conversions are of the difference of a pair's cells."""
        return self.weights.paired and self.adc_on == "difference"

    @property
    def slices(self) -> int:
        """Conversions of a weight: one a slice, or two if each polarity is converted."""
        return self.weights.slices * (1 + self.columns_by_polarity)

    @property
    def unit_column(self) -> bool:
        """A column of ones, converted like the others, measures the inputs' sum."""
        return self.weights.is_offset and self.offset_sum == "unit-column"

    @property
    def no_references(self) -> tuple[None, ...]:
        """The references of a layer whose converters are lossless."""
        return (None,) * ((self.slices + self.unit_column) * self.reference_cycles)

    @property
    def reference_cycles(self) -> int:
        """The number of references of a slice: one for each cycle, or one for all."""
        return len(self.cycles) if self.scope.cycles else 1

    @property
    def scope(self) -> ReferenceScope:
        """The extent for which the converters' references are set."""
        return SCOPES[self.references]

    @cached_property
    def finest_references(self) -> AdcReferences:
        """References that round nothing: whole digits from zero."""
        finest = AdcReferences.from_zero(1 << self.reference_bits)
        if self.law is None or not self.scope.levels:
            return finest
        return finest.with_equal_levels(self.law)

    def reference_of(self, k: int, c: int) -> int:
        """The index, in a layer's references, of slice `k` in cycle `c`.

        The unit column, if there is one, counts as the slice after the last.
        """
        return k * self.reference_cycles + c % self.reference_cycles

    @property
    def column_leak(self) -> int:
        """The leak of each row in a column sum; 0 if an analog difference cancels it."""
        return 0 if self.by_difference or self.weights.reference_column else self.leak

    @property
    def fraction_bits(self) -> int:
        """Binary places of a column sum; 0 unless a leak makes fractions."""
        return LEAK_BITS if self.column_leak else 0

    @cached_property
    def cycles(self) -> tuple[Cycle, ...]:
        """The cycles that are converted: one if cycles are added in analog."""
        return (Cycle(0, None, 1),) if self.shift_add == "analog" else self.inputs.cycles

    @property
    def cycle_factors(self) -> IntArray:
        """The weights of the cycles' digits in the sum [cycles]."""
        return np.array([cycle.factor for cycle in self.cycles], np.int64)

    @property
    def digit_limits(self) -> tuple[int, int]:
        """Smallest and largest digit that a cycle drives."""
        ends = [self.inputs.digit_limits(cycle) for cycle in self.cycles]
        return min(lo for lo, _ in ends), max(hi for _, hi in ends)

    @property
    def cell_limits(self) -> tuple[int, int]:
        """Smallest and largest digit that the columns of one conversion hold."""
        lo, hi = self.weights.digit_limits
        return (0, max(-lo, hi)) if self.columns_by_polarity else (lo, hi)

    @property
    def signed_sums(self) -> bool:
        """A column sum can be negative, so that its converter needs a sign."""
        return self.cell_limits[0] < 0 or self.digit_limits[0] < 0

    @cached_property
    def law(self) -> Law | None:
        """The law of the column sums' converter; None if it is lossless."""
        return law_of(self.converter, self.signed_sums)

    @cached_property
    def reference_bits(self) -> int:
        """Binary places of a column sum's unit in which steps and offsets count."""
        return REFERENCE_BITS if self.scope.set and self.law is not None else 0

    @property
    def places(self) -> int:
        """Binary places of the values that are read of column sums, in units of a digit."""
        return self.fraction_bits + self.reference_bits

    def read(self, p: IntArray, references: AdcReferences | None, group: int) -> IntArray:
        """The values that the digital side adds for a row group's column sums [.., N].

        They have `places` binary places. If there are no references, they are the sums.
        """
        fine = p << self.reference_bits
        if references is None or self.law is None:
            return fine
        return references.read(self.law, fine, group)

    def digits(self, x: IntArray) -> IntArray:
        """Digits [cycles, n, K] int64 that drive each converted column sum for inputs [n, K]."""
        return self.inputs.digits(x, self.cycles)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, for a file."""
        values = asdict(self)
        for name in FAMILIES:
            values[name] = {"name": getattr(self, name).name, **values[name]}
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Crossbar:
        """Read what `to_json` returned.

        Raises CimError for a name that is no code's or converter's, TypeError or ValueError for a
        field that no crossbar has.
        """
        _require_small(values)
        fields = {name: value for name, value in values.items() if name not in FAMILIES}
        for name, family in FAMILIES.items():
            kind = family.named(values[name]["name"], name)
            own = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in values[name].items()
                if key != "name"
            }
            fields[name] = made_of(kind, own)
        return made_of(cls, fields | {"tiling": made_of(RowTiling, values["tiling"])})

    @cached_property
    def zero_digits(self) -> IntArray:
        """The digit [cycles] with which a row is driven whose input is zero."""
        return self.digits(np.zeros((1, 1), np.int64))[:, 0, 0]


WIDTHS = ("bits", "cell_bits", "dac_bits", "accumulator_bits")
MOST_BITS, LARGEST = 64, 1 << 20
"""Largest number that a field of a crossbar may have, so that all computed numbers stay small."""


def _require_small(values: Mapping[str, Any]) -> None:
    """Raise ValueError for a number that no array has, before tables are made of it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            _require_small(value)
        most = MOST_BITS if name in WIDTHS else LARGEST
        if isinstance(value, int) and not -1 <= value <= most:
            raise ValueError(f"{name} = {value:.6g}; expected at most {most}")
