"""Published figures: each with its source, and the conditions under which it holds.

Figures of different conditions (mode, voltage, activity, precision) are never combined. Figures
that were measured together share an operating point, which they name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from cimtool.base.arrays import IntArray
from cimtool.base.named import unknown
from cimtool.base.toml_files import SourceText, TomlTable
from cimtool.hardware.references import ReferenceScope

Scope = Literal["array", "macro", "core", "chip"]
Status = Literal["confirmed", "derived", "unconfirmed", "assumed"]
PointBits = Annotated[int, Field(ge=1, le=16)]
Volts = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Quantities = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]

# Fixed, so that figures of one quantity can be compared and a misspelt one is found.
UNITS = {
    "throughput": "TOPS",
    "efficiency": "TOPS/W",
    "density": "TOPS/mm2",
    "mvm_latency": "ns",
    "mvm_energy": "nJ",
    "mac_energy": "pJ",
    "clock": "MHz",
    "drive_clocks": "1",
    "read_latency": "ns",
    "column_energy": "pJ",
    "adc_energy": "pJ",
    "adc_area": "um2",
    "adc_rate": "GS/s",
    "adc_count": "1",
    "shift_add_energy": "pJ",
    "write_energy": "pJ",
    "write_latency": "ns",
    "write_pulses": "1",
    "endurance": "1",
    "area": "mm2",
    "search_energy": "pJ",
    "search_cell_energy": "fJ",
    "search_latency": "ns",
}
WHOLE = ("throughput", "efficiency", "density", "mvm_latency", "mvm_energy", "mac_energy")
"""Quantities of whole products: they mean nothing without the bits of inputs and weights."""

CONDITIONS = ("mode", "voltage", "activity")


class OperatingPoint(TomlTable):
    """Conditions under which figures were taken together; bits are those of one product.

    `adc_bits` are those of the converter, where they are not the target's own. `derived_from` names
    the figures at this point from which its bits were found.
    """

    name: str
    precision: str
    input_bits: PointBits
    weight_bits: PointBits
    adc_bits: PointBits | None = None
    mode: str | None = None
    voltage: Volts | None = None
    activity: str | None = None
    derived_from: Quantities | None = None

    def conditions(self) -> str:
        """The conditions for a reader."""
        voltage = None if self.voltage is None else f"{self.voltage:g} V"
        return ", ".join(filter(None, (self.precision, self.mode, self.activity, voltage)))


class Sourced(TomlTable):
    """A number with its origin, and the interval within which its sources lie."""

    value: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    source: SourceText
    status: Status

    @property
    def is_known(self) -> bool:
        """True if it was read in its source, or follows from such figures."""
        return self.status in ("confirmed", "derived")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.interval
        if not low <= self.value <= high:
            raise ValueError(
                f"low = {low:g}, high = {high:g}: must enclose the value, {self.value:g}"
            )
        return self

    @property
    def interval(self) -> tuple[float, float]:
        """Lowest and highest value; the value itself if nothing else is given."""
        low = self.value if self.low is None else self.low
        return low, self.value if self.high is None else self.high


DigitRange = Annotated[
    tuple[
        Annotated[float, Field(allow_inf_nan=False)], Annotated[float, Field(allow_inf_nan=False)]
    ],
    Field(strict=False),
]
"""The least and the largest value, in digits."""

SETTABLE = ("slice", "column", "cycle")
"""For how much there may be a reference, from the most on."""


class SettableReference(TomlTable):
    """A reference of a target's converters that a source says can be set: one for `each`.

    `settings` is the number of its values, and `range` their range, in digits of a column sum or in
    the words of the source; either is left out if no source gives it. If these are numbers, fitted
    steps and offsets are limited to these values: steps in equal ratios and offsets evenly from one
    end of the range to the other. Without such a range a layer has at most this many steps.
    """

    reference: Literal["step", "offset", "levels"]
    each: Literal["slice", "column", "cycle"]
    settings: Annotated[int, Field(ge=2)] | None = None
    range: str | DigitRange | None = None
    source: SourceText
    status: Status

    @field_validator("reference", mode="before")
    @classmethod
    def _named(cls, reference: object) -> object:
        if reference == "gain":
            raise ValueError('"gain": a gain is a step; expected "step" with each = "column"')
        return reference

    @model_validator(mode="after")
    def _bound(self) -> Self:
        bounds = self.bounds
        if self.reference == "levels" and (bounds or self.settings):
            raise ValueError("only steps and offsets have settings and a range in digits")
        alone = self.reference == "offset" or self.each == "column"
        if alone and self.settings and not bounds:
            raise ValueError(f"settings = {self.settings}: expected range = [low, high] with it")
        low, high = bounds or (1.0, 2.0)
        if not low < high or (self.reference == "step" and low <= 0):
            least = " above 0" if self.reference == "step" else ""
            raise ValueError(f"range = [{low:g}, {high:g}]: expected two rising numbers{least}")
        return self

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range in digits, if it is known."""
        return None if isinstance(self.range, str) else self.range

    def nearest(self, values: IntArray, digit: int) -> IntArray:
        """The values that can be set that are nearest to these, in units of which a digit has some.

        Raises ValueError if a range has no whole unit.
        """
        if self.bounds is None:
            return values
        low, high = (end * digit for end in self.bounds)
        positive = self.reference == "step"
        least, most = max(math.ceil(low), 1 if positive else math.ceil(low)), math.floor(high)
        if least > most:
            raise ValueError(f"range = {list(self.bounds)}: holds no multiple of 1/{digit} digit")
        held = np.clip(values, least, most)
        if self.settings is None:
            return held
        parts = np.arange(self.settings) / (self.settings - 1)
        every = low * (high / low) ** parts if positive else low + (high - low) * parts
        whole = np.unique(np.clip(np.rint(every).astype(np.int64), least, most))
        above = np.minimum(np.searchsorted(whole, held), len(whole) - 1)
        upper, lower = whole[above], whole[np.maximum(above - 1, 0)]
        return np.where(held - lower <= upper - held, lower, upper)

    def serves(self, scope: ReferenceScope) -> bool:
        """There are as many as references of this scope have."""
        columns = scope.columns if self.reference == "offset" else scope.gains
        fewest = "cycle" if scope.cycles else "column" if columns else "slice"
        return SETTABLE.index(self.each) >= SETTABLE.index(fewest)

    def text(self) -> str:
        """The reference for a reader."""
        count = None if self.settings is None else f"{self.settings} settings"
        bounds = self.bounds and f"{self.bounds[0]:g} to {self.bounds[1]:g} digits"
        said = self.range if isinstance(self.range, str) else bounds
        return ", ".join(filter(None, (f"one for each {self.each}", count, said)))


class Retrieval(TomlTable):
    """A published search of stored embeddings of `megabytes` (2^20 bytes) by one query.

    Before its `input_bits` products each stored bit takes `load_cycles`, in which it is sensed.
    """

    name: str
    megabytes: float = Field(gt=0, allow_inf_nan=False)
    input_bits: PointBits
    load_cycles: Annotated[int, Field(ge=0)]
    latency: float = Field(gt=0, allow_inf_nan=False, title="Latency of a query, in us.")
    energy: float = Field(gt=0, allow_inf_nan=False, title="Energy of a query, in uJ.")
    source: SourceText
    status: Status


class Figure(Sourced):
    """One published or derived figure with its source; `at` names its operating point.

    Without `at` it holds at every point, unless it states conditions of its own. `derived_from`
    names the quantities of the figures beside it that it was solved from.
    """

    quantity: str
    unit: str
    scope: Scope
    at: str | None = None
    precision: str | None = None
    mode: str | None = None
    voltage: Volts | None = None
    activity: str | None = None
    derived_from: Quantities | None = None

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.derived_from and self.status != "derived":
            raise ValueError(
                f'derived_from with status = "{self.status}": expected status = "derived"'
            )
        if self.quantity not in UNITS:
            raise ValueError(str(unknown("quantity", self.quantity, UNITS)))
        unit = UNITS[self.quantity]
        if self.unit != unit:
            raise ValueError(f'unit = "{self.unit}": {self.quantity} is given in "{unit}"')
        if self.quantity in WHOLE and self.at is None:
            raise ValueError(
                f"at is missing: {self.quantity} means nothing without the operating point "
                "(precision and bits) that it was taken at"
            )
        return self

    def text(self) -> str:
        """Value and unit for a reader."""
        return f"{self.value:g}" if self.unit == "1" else f"{self.value:g} {self.unit}"


def check_conditions(points: Sequence[OperatingPoint], figures: Sequence[Figure]) -> None:
    """Raise ValueError if figures of different conditions would be combined."""
    names = [point.name for point in points]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'operating_points: "{name}" is given twice')
    for position, figure in enumerate(figures):
        if figure.at is not None and figure.at not in names:
            error = unknown("operating point", figure.at, names)
            raise ValueError(f"figures[{position}].at: {error}")
        joined = points if figure.at is None else [p for p in points if p.name == figure.at]
        for point in joined:
            for condition in _contradictions(figure, point):
                raise ValueError(
                    f"figures[{position}] ({figure.quantity}) was taken at {condition} = "
                    f'{_quoted(getattr(figure, condition))}, and operating point "{point.name}" is '
                    f"at {_quoted(getattr(point, condition))}: figures of different conditions are "
                    "not combined; name its point (at = NAME)"
                )
        if figure.quantity == "drive_clocks" and "clock" not in holding(figures, figure.at):
            raise ValueError(
                f"figures[{position}] (drive_clocks): expected the clock at the same point with it"
            )
    _check_pairs(figures)
    _check_origins(points, figures)


def holding(figures: Sequence[Figure], point: str | None) -> dict[str, Figure]:
    """The figures that hold at a point, by quantity, the first of each."""
    found: dict[str, Figure] = {}
    for one in figures:
        if one.at in (None, point):
            found.setdefault(one.quantity, one)
    return found


def _check_origins(points: Sequence[OperatingPoint], figures: Sequence[Figure]) -> None:
    """Refuse an origin that is no figure at the same point, or a figure derived from itself."""
    said: list[tuple[str, str, str | None, Quantities | None]] = [
        (f"operating_points[{i}]", "", p.name, p.derived_from) for i, p in enumerate(points)
    ]
    said += [(f"figures[{i}]", f.quantity, f.at, f.derived_from) for i, f in enumerate(figures)]
    for where, quantity, at, derived_from in said:
        known = holding(figures, at)
        for origin in derived_from or ():
            if origin not in known:
                raise ValueError(f"{where}.derived_from: {unknown('figure', origin, known)}")
            if quantity and quantity in (origin, *origins(origin, known)):
                raise ValueError(f"{where}.derived_from: {quantity} would be derived from itself")


def origins(quantity: str, known: Mapping[str, Figure]) -> set[str]:
    """The quantities that a figure was derived from, and those that they were derived from."""
    found: set[str] = set()
    ahead = [quantity]
    while ahead:
        figure = known.get(ahead.pop())
        new = set(figure.derived_from or ()) - found if figure is not None else set()
        found |= new
        ahead += new
    return found


def unsaid(quantity: str, known: Mapping[str, Figure]) -> tuple[str, ...]:
    """The derived figures among one and its origins of which nothing says from what."""
    behind = (known.get(one) for one in (quantity, *sorted(origins(quantity, known))))
    return tuple(
        figure.quantity
        for figure in behind
        if figure is not None and figure.status == "derived" and not figure.derived_from
    )


def _check_pairs(figures: Sequence[Figure]) -> None:
    """Refuse two figures of one point that are the same quantity, or of different conditions."""
    for (one, a), (two, b) in combinations(enumerate(figures), 2):
        if a.at is not None and b.at is not None and a.at != b.at:
            continue
        if (a.quantity, a.scope) == (b.quantity, b.scope):
            where = f' at operating point "{a.at or b.at}"' if a.at or b.at else ""
            raise ValueError(
                f"figures[{two}]: {b.quantity} of the {b.scope} is given twice{where} (also as "
                f"figures[{one}]); give each its operating point (at = NAME)"
            )
        for condition in _contradictions(a, b):
            raise ValueError(
                f"figures[{one}] ({a.quantity}) was taken at {condition} = "
                f"{_quoted(getattr(a, condition))} and figures[{two}] ({b.quantity}) at "
                f"{_quoted(getattr(b, condition))}: figures of different conditions are not "
                "combined; give each its operating point (at = NAME)"
            )


def _contradictions(a: Figure, b: Figure | OperatingPoint) -> Iterator[str]:
    for condition in CONDITIONS:
        one, two = getattr(a, condition), getattr(b, condition)
        if one is not None and two is not None and one != two:
            yield condition


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"
