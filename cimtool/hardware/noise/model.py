"""The bases of non-idealities: named tables of a target's [noise], one base a kind.

A mechanism changes devices, whole arrays, reads of cells or converters. Who draws a die asks for
those of a kind, and never for a name. Times are read as a user writes them: `30s`, `10m`, `1y`.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.polynomial.polynomial import polyval
from pydantic import Field, model_validator

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.named import Named
from cimtool.base.toml_files import TomlTable

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "y": 365.25 * 86400.0}
LONGEST = 100 * UNITS["y"]


def parse_time(text: str, where: str = Argument("time")) -> float:
    """Seconds of a time such as `1h`; CimError naming `where` for anything else."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhdy])", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    if not 0 <= seconds <= LONGEST:
        raise ArgumentError(
            "{} is {}; expected a time of at most 100y, as a number and one of s, m, h, d, y: 30s, "
            "10m, 1h, 1d, 1y",
            where,
            text or "empty",
        )
    return seconds


def time_text(seconds: float) -> str:
    """Write seconds in the largest unit that keeps the number at 1 or more: `1 h`."""
    unit = max((u for u in UNITS if seconds >= UNITS[u]), key=UNITS.__getitem__, default="s")
    return f"{seconds / UNITS[unit]:g} {unit}"


def read_at(time: str, corner: str | None) -> str:
    """Write a time of reading and a corner, if any: `1 h, ss`."""
    return time if corner is None else f"{time}, {corner}"


def read_after(time: str, corner: str | None) -> str:
    """The same in a sentence: `1 h after programming at corner ss`."""
    return f"{time} after programming" + ("" if corner is None else f" at corner {corner}")


Coefficient = Annotated[
    float, Field(ge=-1e6, le=1e6, allow_inf_nan=False, description="a number up to 1e6")
]
PositiveNumber = Annotated[
    float, Field(gt=0, le=1e9, allow_inf_nan=False, description="a number above 0, up to 1e9")
]
Sigma = Annotated[
    float, Field(ge=0, le=1e6, allow_inf_nan=False, description="a number of at least 0")
]
Energy = Annotated[
    float, Field(gt=0, le=10, allow_inf_nan=False, description="a number above 0, up to 10 (eV)")
]
Celsius = Annotated[
    float, Field(ge=-273, le=1000, allow_inf_nan=False, description="a number from -273 to 1000")
]
Probability = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
Coefficients = Annotated[
    tuple[Coefficient, ...],
    Field(strict=False, min_length=1, max_length=9, description="a list of 1 to 9 numbers"),
]
Two = Annotated[
    tuple[Coefficient, Coefficient], Field(strict=False, description="a list of two numbers")
]


BOLTZMANN, ZERO_CELSIUS = 8.617333262e-5, 273.15
"""Boltzmann's constant in eV/K (CODATA 2018), and 0 C in K."""


def heat_of(temperature: float, reference: float) -> float:
    """(1 / T0 - 1 / T) / k in 1/eV, of a temperature and one of reference in C."""
    cold, hot = reference + ZERO_CELSIUS, temperature + ZERO_CELSIUS
    return (1 / cold - 1 / hot) / BOLTZMANN


def activated(energy: float | None, heat: float) -> float:
    """exp(Ea heat), by which Arrhenius' law speeds a process up; 1 without an energy (eV)."""
    return 1.0 if energy is None else math.exp(energy * heat)


class NonIdeality(Named, TomlTable):
    """Base of all non-idealities: frozen tables whose fields are the keys of a target's [noise]."""

    redrawn: ClassVar[bool] = False
    """It is drawn anew for each time of reading; else once, when a die is programmed."""
    stream: ClassVar[int | None] = None
    """The number of its stream of random numbers; None makes one of the name."""
    ages: ClassVar[bool] = False
    """Its effect grows with the time since t0."""
    order: ClassVar[float] = math.inf
    """Its place if several act: lower ones first, those without one last, as they are given."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        if name is not None and not issubclass(cls, KINDS):
            bases = " or ".join(kind.__name__ for kind in KINDS)
            raise TypeError(f"class {cls.__name__} is of no kind; expected a subclass of {bases}")
        super().__init_subclass__(name, **kwargs)

    @property
    def times(self) -> dict[float, str] | None:
        """The only times of reading that are known, in seconds, as written; None for any."""
        return None

    @property
    def energy(self) -> float | None:
        """The activation energy in eV by which a temperature changes it; None: no temperature."""
        return None

    def check(self, g_max: float, beside: Sequence[NonIdeality]) -> None:
        """Raise ValueError if it contradicts devices up to `g_max` uS, or those `beside` it.

        The sentence goes on from the mechanism's name and a dot.
        """


def kinds() -> dict[str, type[NonIdeality]]:
    """Every mechanism that is known so far by the name of its table, in the order of action."""
    return dict(sorted(NonIdeality.family.items(), key=lambda one: one[1].order))


def ageing() -> list[str]:
    """The names of the mechanisms that change with the time since t0."""
    return [name for name, kind in kinds().items() if kind.ages]


@dataclass(frozen=True)
class DeviceState:
    """Devices by the `digits` of their cells: what they should conduct, and when they are read.

    `x` [digits] is the conductance as a share of `g_max` (uS); `seconds` count from `t0`, None
    if a noise model does not say when that is. `rng` has the random numbers of one mechanism.
    `heat` (1/eV) is that of `heat_of`: 0 at the temperature of the noise model's figures.
    """

    digits: IntArray
    x: FloatArray
    g_max: float
    seconds: float
    t0: float | None
    rng: np.random.Generator
    heat: float = 0.0


class DeviceNoise(NonIdeality):
    """Base of what changes single devices, one mechanism after the other."""

    @abstractmethod
    def effective(self, g: FloatArray, state: DeviceState) -> FloatArray:
        """Conductances in uS of devices that conducted `g`; `g` itself if nothing changes."""


@dataclass(frozen=True)
class ArrayState:
    """One array as its cells lie in it.

    `digits` [rows, columns] are held, and a digit counts `column_weights` [columns] in the result.
    `full` and `erased` (uS) are the conductances of the largest digit, `top`, and of none; `rng`
    has the array's random numbers, and `layer` is the name of the layer that it holds. Beside its
    columns lie `redundant` more, kept for repair.
    """

    digits: FloatArray
    column_weights: FloatArray
    top: int
    full: float
    erased: float
    rng: np.random.Generator
    layer: str
    redundant: int = 0


class ArrayNoise(NonIdeality):
    """Base of what changes the conductances of whole arrays, behind those of single devices."""

    @abstractmethod
    def effective(self, g: FloatArray, state: ArrayState) -> FloatArray:
        """Conductances [rows, columns] of an array in uS."""


@dataclass(frozen=True)
class ReadState:
    """Cells of `devices` in parallel, a digit `unit` uS, read `seconds` after `t0`."""

    devices: int
    unit: float
    seconds: float
    t0: float | None


class ReadNoise(NonIdeality):
    """Base of what errs anew at each read of a cell: normal, independent from cell to cell."""

    redrawn: ClassVar[bool] = True

    @property
    def shared(self) -> bool:
        """A cell keeps its error through all cycles of a product."""
        return True

    @abstractmethod
    def variance(self, g: FloatArray, state: ReadState) -> FloatArray:
        """The variance in digits squared of a read of cells that conduct `g` digits."""


class CodeErrors(NamedTuple):
    """Errors of converters [converters]: `offset` and `bow` in codes, `gain` relative to 1.

    The bow is that in the middle of a converter's range, zero at its ends.
    """

    offset: FloatArray
    gain: FloatArray
    bow: FloatArray


class ConverterNoise(NonIdeality):
    """Base of what changes converters."""

    @property
    def sharing(self) -> int:
        """Neighbouring columns of an array that one converter serves."""
        return 1

    @abstractmethod
    def errors(self, count: int, rng: np.random.Generator) -> CodeErrors:
        """Draw the errors of `count` converters."""


KINDS = (DeviceNoise, ArrayNoise, ReadNoise, ConverterNoise)


class Curve(TomlTable):
    """A quantity over x = g / g_max: a polynomial from x = `from` on, below it a clamped law.

    The law is `log` = [a, b], a ln x + b, or `power` = [a, b], a x^b, within `clamp` = [lo, hi];
    `polynomial` are coefficients of x^0, x^1, ... Without a law the polynomial holds everywhere,
    without a polynomial the law does.
    """

    polynomial: Coefficients | None = None
    start: Probability = Field(0.0, alias="from")
    log: Two | None = None
    power: Two | None = None
    clamp: Two | None = None

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if self.log is not None and self.power is not None:
            raise ValueError("expected log or power, not both")
        law = self.log or self.power
        if (law is None) != (self.clamp is None):
            raise ValueError("log (or power) and clamp belong together: expected both or neither")
        if self.polynomial is None and law is None:
            raise ValueError("expected polynomial, log or power")
        if self.start > 0 and (law is None or self.polynomial is None):
            raise ValueError("from separates a polynomial from the law below it: expected both")
        if self.clamp is not None and self.clamp[0] > self.clamp[1]:
            raise ValueError(f"clamp = {list(self.clamp)}: expected the lower number first")
        return self

    def at(self, x: FloatArray) -> FloatArray:
        """The quantity at `x`, which is at least 0."""
        above = None if self.polynomial is None else polyval(x, self.polynomial)
        below = self._law(x)
        if above is None or below is None:
            return above if below is None else below  # type: ignore[return-value]
        return np.where(x >= self.start, above, below)

    def _law(self, x: FloatArray) -> FloatArray | None:
        if self.clamp is None:
            return None
        positive = np.maximum(x, np.finfo(np.float64).tiny)  # both laws are clamped near zero
        if self.log is not None:
            values = self.log[0] * np.log(positive) + self.log[1]
        else:
            factor, exponent = self.power or (0.0, 0.0)
            values = factor * positive**exponent
        clamped: FloatArray = np.clip(values, *self.clamp)
        return clamped


def non_negative(curve: Curve | FloatArray, where: str) -> None:
    """Raise ValueError if a standard deviation falls below zero for some x from 0 to 1."""
    x = np.linspace(0.0, 1.0, 1001)
    values = curve.at(x) if isinstance(curve, Curve) else curve
    if values.min() < 0:
        at = float(x[int(values.argmin())])
        raise ValueError(
            f"{where} is {values.min():.4g} at x = {at:.3g}; expected a standard deviation of at "
            "least 0 for every x from 0 to 1"
        )
