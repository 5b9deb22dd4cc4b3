"""Converters of column sums: a formula, the thresholds measured on one, or none.

A converter yields a law. At a step S the law turns a column sum p into a code, and a code into the
value that the digital side adds:

    uniform      code = clip(round(p / S), lo, hi)          value = code S
    staircase    code = lo + (number of t_j <= p / S)       value = level[code - lo] S

Every backend and pass reads the law's data and never asks for a converter's name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self, get_args

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError, kind_of
from cimtool.base.named import Named
from cimtool.base.plugins import fault_of
from cimtool.base.toml_files import name_of, value_text
from cimtool.ir.format import Rounding, adc, adc_limits

THRESHOLD_BITS = 4
"""Binary places of a step in which thresholds are kept: 1/16 of it."""


@dataclass(frozen=True)
class UniformLaw:
    """Codes `lo` to `hi` of equal steps, rounded by a formula."""

    lo: int
    hi: int
    rounding: Rounding

    exact_where_it_fits: ClassVar[bool] = True
    """Step 1 changes no sum that lies within the codes."""

    @property
    def half(self) -> bool:
        """Half a step is added before the division rounds down."""
        return self.rounding != "floor"

    @property
    def to_even(self) -> bool:
        """A tie goes to the even code."""
        return self.rounding == "half-even"

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the largest value, in steps."""
        return self.lo, self.hi

    def codes(self, p: IntArray, step: Array | int) -> IntArray:
        """Convert column sums to codes."""
        return adc(p, step, self.lo, self.hi, self.rounding)

    def values(self, codes: IntArray, step: Array | int) -> IntArray:
        """The values of codes, in the units of the column sums."""
        return codes * step

    def error(self, step: IntArray) -> IntArray:
        """Largest |value - sum| within the range of the codes, in units of the column sum."""
        return step >> 1 if self.half else step - 1

    def unclipped(self, step: IntArray) -> tuple[IntArray, IntArray]:
        """The lowest and the highest sum that is rounded and not clipped."""
        half = step >> 1 if self.half else 0
        ties = (step % 2 == 0) & self.to_even
        lowest = self.lo * step - half + (ties & (self.lo % 2 == 1))
        highest = (self.hi + 1) * step - half - 1 + (ties & (self.hi % 2 == 0))
        return lowest, highest


@dataclass(frozen=True, eq=False)
class StaircaseLaw:
    """A code for each interval between rising `thresholds` [n], in 2^-places of a step.

    `levels` [n + 1] are what the codes stand for, in steps; the lowest code is `lo`.
    """

    lo: int
    thresholds: IntArray
    levels: IntArray
    places: int = THRESHOLD_BITS

    exact_where_it_fits: ClassVar[bool] = False

    @property
    def hi(self) -> int:
        """The largest code."""
        return self.lo + len(self.thresholds)

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the largest value, in steps."""
        return int(self.levels[0]), int(self.levels[-1])

    @cached_property
    def table(self) -> tuple[int, IntArray]:
        """The law as a table: its first entry in 2^-places of a step, and the level of each entry.

        Whole steps; sums before it have the first level, sums behind it the last.
        """
        whole = 1 << self.places
        first = (int(self.thresholds[0]) - 1) // whole * whole
        last = -(-int(self.thresholds[-1]) // whole) * whole
        entries = np.arange(first, last + 1)
        return first, self.values(self.codes(entries, whole), 1)

    def codes(self, p: IntArray, step: Array | int) -> IntArray:
        """Convert column sums to codes."""
        # A threshold t is reached if t * step <= p << places, for whole numbers.
        fine = (p << self.places) // np.asarray(step, np.int64)
        above: IntArray = np.searchsorted(self.thresholds, fine, side="right")
        return self.lo + above

    def values(self, codes: IntArray, step: Array | int) -> IntArray:
        """The values of codes, in the units of the column sums."""
        return self.levels[codes - self.lo] * step

    def error(self, step: IntArray) -> IntArray:
        """Largest |value - sum| within the range of the codes, in units of the column sum."""
        below, above = (part << self.places for part in (self.levels[:-1], self.levels[1:]))
        off = np.maximum(self.thresholds - below, above - self.thresholds)
        return int(off.max()) * step + (1 << self.places) - 1 >> self.places

    def unclipped(self, step: IntArray) -> tuple[IntArray, IntArray]:
        """The lowest and the highest sum that is taken not to be clipped.

        There is a last threshold but no end: the last level is taken to be as wide as one step,
        half of it on each side.
        """
        half, (lo, hi) = step >> 1, self.ends
        return lo * step - half, (hi + 1) * step - half - 1


Law = UniformLaw | StaircaseLaw


class ConverterKeys(Protocol):
    """The keys of a converter beside its bits (`hardware/keys.py`)."""

    rounding: Rounding | None
    transfer: tuple[float, ...] | None
    adc_parameters: dict[str, int | float | str] | None


@dataclass(frozen=True)
class Converter(Named):
    """Base of the converters: `bits` of a code, None if nothing is converted.

    Fields are integers, numbers, texts, or tuples of them; a law may hold arrays.
    """

    bits: int | None

    reads: ClassVar[tuple[str, ...]] = ()
    """The keys, of `rounding` and `transfer`, that decide its law."""

    @classmethod
    def parameters(cls) -> list[str]:
        """Names that `adc_parameters` may have: all fields but the bits and the keys in `reads`."""
        return [one.name for one in fields(cls) if one.name not in ("bits", *cls.reads)]

    @classmethod
    @abstractmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        """The converter of this many bits that the keys of a layer describe.

        Raises ValueError, which names a key and its value, if they describe none.
        """

    @abstractmethod
    def law(self, signed: bool) -> Law | None:
        """The law for sums that may be negative (`signed`) or not; None if it is lossless."""


@dataclass(frozen=True)
class Lossless(Converter, name="lossless"):
    """No converter model: the digital side gets the sums as they are."""

    bits: int | None = None

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        raise ValueError(
            f'adc_kind = "lossless" with adc_bits = {bits}: expected adc_bits = "lossless" with it'
        )

    def law(self, signed: bool) -> None:
        return None


LOSSLESS = Lossless()


@dataclass(frozen=True)
class Formula(Converter, name="formula"):
    """An ideal converter: equal steps, codes from -2^(bits-1) if signed, else from 0."""

    bits: int
    rounding: Rounding

    reads: ClassVar[tuple[str, ...]] = ("rounding",)

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        if keys.rounding is None:
            raise ValueError('adc_kind = "formula": expected rounding with it')
        return cls(bits, keys.rounding)

    def law(self, signed: bool) -> UniformLaw:
        return UniformLaw(*adc_limits(self.bits, signed), self.rounding)


@dataclass(frozen=True)
class Measured(Converter, name="measured"):
    """A measured converter: its 2^bits - 1 `transfer` thresholds in 1/16 of a code.

    They count from the lowest code, so that one table serves signed and unsigned sums.
    """

    bits: int
    transfer: tuple[int, ...]

    reads: ClassVar[tuple[str, ...]] = ("transfer",)

    @classmethod
    def of(cls, bits: int, keys: ConverterKeys) -> Self:
        given, count = keys.transfer, (1 << bits) - 1
        if given is None:
            raise ValueError('adc_kind = "measured": expected transfer with it')
        if len(given) != count:
            raise ValueError(
                f"transfer has {len(given)} thresholds: adc bits = {bits} needs {count}, one "
                "between neighbouring codes"
            )
        thresholds = measured_thresholds(given)
        for index, (one, after) in enumerate(pairwise(thresholds)):
            if after < one:
                raise ValueError(
                    f"transfer falls from {given[index]} to {given[index + 1]} at threshold "
                    f"{index + 1}: thresholds must not fall"
                )
        return cls(bits, thresholds)

    def law(self, signed: bool) -> StaircaseLaw:
        lo, hi = adc_limits(self.bits, signed)
        thresholds = np.array(self.transfer, np.int64) + (lo << THRESHOLD_BITS)
        return StaircaseLaw(lo, thresholds, np.arange(lo, hi + 1))


def law_of(converter: Converter, signed: bool) -> Law | None:
    """The law of a converter for signed or unsigned sums, checked.

    Raises CimError naming the plug-in of a converter whose law is none, ValueError for one of
    cimtool.
    """
    law = converter.law(signed)
    if wrong := _wrong_law(law):
        raise fault_of(type(converter), f"{type(converter).__name__}.law is {wrong}", ValueError)
    return law


def _wrong_law(law: object) -> str | None:
    if law is None:
        return None
    if isinstance(law, UniformLaw):
        if law.lo <= law.hi and law.rounding in get_args(Rounding):
            return None
        return f"{law}; expected lo of at most hi and one of {', '.join(get_args(Rounding))}"
    if not isinstance(law, StaircaseLaw):
        return f"of type {kind_of(law)}; expected UniformLaw, StaircaseLaw or None"
    for name in ("thresholds", "levels"):
        values = np.asarray(getattr(law, name))
        if values.ndim != 1 or not values.size or values.dtype.kind not in "iu":
            form = f"{list(values.shape)} of {values.dtype}"
            return f"a StaircaseLaw with {name} {form}; expected integers [n]"
        if (np.diff(values.astype(np.int64)) < 0).any():
            return f"a StaircaseLaw whose {name} fall; expected rising ones"
    if not 0 <= law.places <= THRESHOLD_BITS:
        return f"a StaircaseLaw with places {law.places}; expected 0 to {THRESHOLD_BITS}"
    thresholds, levels = len(law.thresholds), len(law.levels)
    if levels != thresholds + 1:
        return (
            f"a StaircaseLaw with {thresholds} thresholds and {levels} levels; expected "
            f"{thresholds + 1} levels, one more"
        )
    return None


def measured_thresholds(transfer: Sequence[float]) -> tuple[int, ...]:
    """Round thresholds in codes to the 1/16 of a code in which the contract counts them."""
    return tuple(int(np.floor(t * (1 << THRESHOLD_BITS) + 0.5)) for t in transfer)


def check_given(kind: str | None, given: Mapping[str, Any]) -> None:
    """Refuse keys of a table [adc] or of settings that have no effect on a converter of `kind`.

    Raises CimError.
    """
    for key in ("kind", "parameters"):
        value = given.get(key)
        if given.get("bits") == "lossless" and value not in (None, "lossless"):
            raise CimError(f'{key} = {value_text(value)}: expected none with bits = "lossless"')
    for key in ("rounding", "transfer"):
        value = given.get(key)
        if kind and value is not None and key not in Converter.named(kind, "converter").reads:
            readers = (f'"{name}"' for name, one in Converter.family.items() if key in one.reads)
            raise CimError(
                f"{key} = {value_text(value)}: expected adc_kind = {' or '.join(readers)} with it; "
                f'a converter of adc_kind = "{kind}" has no {key}'
            )


ConverterKind = name_of(Converter)
"""The name of a converter, in a validated table."""
