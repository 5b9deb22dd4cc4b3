"""Reference prices held against published energies, and the intervals that follow.

`silicon.toml` lists the chips. The reference model is given the geometry, the bits, the node and
the supply of each, and none of its figures. The logarithm of published / modelled energy is one
observation a chip, and a kind of array has the 90% prediction interval of a log-normal error:

    exp(mean +- t s sqrt(1 + 1 / n))

of n chips with standard deviation s, and t the 95% quantile of Student's distribution with n - 1
degrees of freedom. An interval that does not hold 1 is extended to it, as prices are not shifted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from cimtool.base.toml_files import SourceText, TomlTable, read_toml, validated
from cimtool.costs.prices import Prices, reference
from cimtool.costs.totals import Quantity
from cimtool.hardware.figures import Status
from cimtool.hardware.keys import AtLeastOne
from cimtool.hardware.target import Target, load_target
from cimtool.hardware.technology import AboveZero, Memory, Nanometres, ProcessSpec

FILE = Path(__file__).with_name("silicon.toml")
LEVEL = 0.9
LEAST_ROWS = 32
"""Arrays of fewer rows are memories with a few word lines on, which no layer is placed in."""

ArrayKind = Literal["digital", "sram", "resistive"]
"""Digital arrays; charge or current in SRAM; the current of other cells (RRAM, PCM, SONOS)."""


class PublishedPoint(TomlTable):
    """A published efficiency in TOPS/W, or energy in pJ a product, and the array that it is of."""

    rows: AtLeastOne
    outputs: AtLeastOne
    cells: AtLeastOne = 1
    reads: AtLeastOne = 1
    supply: AboveZero | None = None
    input_bits: AtLeastOne
    weight_bits: AtLeastOne
    adc_bits: AtLeastOne | None = None
    efficiency: AboveZero | None = None
    energy: AboveZero | None = None

    @model_validator(mode="after")
    def _one_figure(self) -> Self:
        if (self.efficiency is None) == (self.energy is None):
            raise ValueError("expected either efficiency or energy, one of them")
        return self

    @property
    def published_pj(self) -> float:
        """The published energy of a product in pJ."""
        return self.energy or 2 / (self.efficiency or 1.0)


class PublishedChip(TomlTable):
    """A chip with published energies of whole products."""

    name: str
    kind: ArrayKind
    memory: str = "sram"
    node: Nanometres
    simulated: bool = False
    source: SourceText
    status: Status
    points: Annotated[tuple[PublishedPoint, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _converter(self) -> Self:
        for index, point in enumerate(self.points):
            if (point.adc_bits is None) != (self.kind == "digital"):
                raise ValueError(
                    f"points[{index}].adc_bits: expected of an array of kind sram or resistive, "
                    "and of no other"
                )
        return self


class PublishedConverter(TomlTable):
    """The measured energy of one conversion in pJ."""

    chip: str
    node: Nanometres
    supply: AboveZero | None = None
    adc_bits: AtLeastOne
    energy: AboveZero
    source: SourceText
    status: Status


class RepeatedFigure(TomlTable):
    """Two published figures of one chip, `first` and `second`, for the same bits and supply."""

    chip: str
    first: AboveZero
    second: AboveZero
    unit: str
    why: str
    source: SourceText
    status: Status


class PublishedChips(TomlTable):
    """The whole file of published energies."""

    chips: tuple[PublishedChip, ...] = Field(strict=False)
    converters: tuple[PublishedConverter, ...] = Field(strict=False)
    repeated: tuple[RepeatedFigure, ...] = Field(strict=False)


@cache
def published_chips() -> PublishedChips:
    """The chips whose energy is published."""
    return validated(PublishedChips, read_toml(FILE), str(FILE))


@cache
def _prices(node: float, supply: float | None) -> Prices:
    """Reference prices at a node and supply, without figures of a target."""
    bare = load_target("ideal")
    process = ProcessSpec(node=node, voltage=supply)
    return Prices(bare.model_copy(update={"process": process}), None)


def modelled_pj(chip: PublishedChip, point: PublishedPoint) -> float:
    """The energy of one product in pJ by reference prices alone, as `Rates.energies` has it."""
    prices = _prices(chip.node, point.supply)
    if point.adc_bits is None:
        multiplied = point.input_bits * point.weight_bits
        added = point.input_bits + point.weight_bits + (point.rows - 1).bit_length()
        return _value(prices, "multiplications") * multiplied + _value(prices, "additions") * added
    cells = point.cells * _value(prices, "cell_reads")
    return point.reads * (cells + _value(prices, "conversions", point.adc_bits) / point.rows)


def _value(prices: Prices, kind: str, bits: float = 1.0) -> float:
    unit = prices.unit(kind, bits)
    return 0.0 if unit is None else unit.value


@dataclass(frozen=True)
class HeldPoint:
    """A published energy beside the modelled one, in pJ a product.

    `left_out` is the reason that the point is no evidence for the model, or empty.
    """

    chip: PublishedChip
    point: PublishedPoint
    modelled: float
    left_out: str

    @property
    def log_ratio(self) -> float:
        """The logarithm of published / modelled."""
        return math.log(self.point.published_pj / self.modelled)


@cache
def held_points() -> tuple[HeldPoint, ...]:
    """All points of all chips, in the order of the file."""
    return tuple(
        HeldPoint(chip, point, modelled_pj(chip, point), _left_out(chip, point))
        for chip in published_chips().chips
        for point in chip.points
    )


def _left_out(chip: PublishedChip, point: PublishedPoint) -> str:
    """The reason to leave a point out: it is outside what arrays here are, or no silicon."""
    least = min(bits for ladder in reference().ladders for bits in ladder.bits)
    if chip.simulated:
        return "simulated"
    if chip.memory not in get_args(Memory):
        return f"cells of {chip.memory}, which no target has"
    if point.rows < LEAST_ROWS:
        return f"fewer than {LEAST_ROWS} rows"
    if point.adc_bits is not None and point.adc_bits < least:
        return f"a converter below {least:g} bits"
    return ""


@dataclass(frozen=True)
class ErrorWidth:
    """Factors of the lowest and the highest energy that a price may stand for, of so many chips."""

    low: float
    high: float
    chips: int

    def widen(self, quantity: Quantity) -> Quantity:
        """The quantity, its interval widened to the value times both factors."""
        if quantity.value is None or quantity.low is None or quantity.high is None:
            return quantity
        low = min(quantity.low, quantity.value * self.low)
        high = max(quantity.high, quantity.value * self.high)
        return Quantity(quantity.value, quantity.missing, low, high, quantity.own)

    def holds(self, log_ratio: float) -> bool:
        """True if the interval holds this logarithm of published / modelled."""
        return math.log(self.low) <= log_ratio <= math.log(self.high)


def student_quantile(freedom: int) -> float:
    """The 95% quantile of Student's distribution (Abramowitz and Stegun 26.7.5, four terms)."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def prediction(ratios: Sequence[float]) -> ErrorWidth:
    """The 90% prediction interval for another chip, of the log ratios of at least two."""
    count, centre = len(ratios), fmean(ratios)
    half = student_quantile(count - 1) * stdev(ratios) * math.sqrt(1 + 1 / count)
    return ErrorWidth(
        min(1.0, math.exp(centre - half)), max(1.0, math.exp(centre + half)), len(ratios)
    )


def repetition(ratios: Sequence[float]) -> ErrorWidth:
    """The same for two figures of each chip, whose order says nothing: their mean is 1."""
    half = student_quantile(len(ratios)) * math.sqrt(fmean(one**2 for one in ratios))
    return ErrorWidth(math.exp(-half), math.exp(half), len(ratios))


def by_chip(kind: ArrayKind) -> dict[str, float]:
    """The mean log ratio of each chip of a kind, of the points that are not left out."""
    return _means(
        (one.chip.name, one.log_ratio)
        for one in held_points()
        if one.chip.kind == kind and not one.left_out
    )


def _means(ratios: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, ratio in ratios:
        found.setdefault(name, []).append(ratio)
    return {name: fmean(many) for name, many in found.items()}


@cache
def converter_ratios() -> dict[str, float]:
    """The mean log ratio of measured / modelled energy of a conversion, of each chip."""
    return _means(
        (
            one.chip,
            math.log(
                one.energy / _value(_prices(one.node, one.supply), "conversions", one.adc_bits)
            ),
        )
        for one in published_chips().converters
    )


def repeated_ratios() -> dict[str, float]:
    """The log ratio of the two figures of each chip."""
    return {one.chip: math.log(one.second / one.first) for one in published_chips().repeated}


@cache
def error_width(kind: ArrayKind) -> ErrorWidth:
    """The width of reference prices of a kind of array, from all of its chips."""
    return prediction(list(by_chip(kind).values()))


@cache
def converter_width() -> ErrorWidth:
    """The width of the price of a conversion by itself."""
    return prediction(list(converter_ratios().values()))


@cache
def measured_width() -> ErrorWidth:
    """The width of a measured figure of a chip's own."""
    return repetition(list(repeated_ratios().values()))


def setup_ratios() -> dict[str, float]:
    """The largest difference of log ratios over set-ups of a chip at one supply, by chip.

    Set-ups are other bits, rows or phases; points that are left out do not count.
    """
    found: dict[tuple[str, float | None], list[float]] = {}
    for one in held_points():
        if not one.left_out:
            found.setdefault((one.chip.name, one.point.supply), []).append(one.log_ratio)
    return {name: max(many) - min(many) for (name, _), many in found.items() if len(many) > 1}


@cache
def setup_width() -> ErrorWidth:
    """The width of a price in one set-up of a chip, if its error in another is known."""
    return repetition(list(setup_ratios().values()))


@dataclass(frozen=True)
class CoveredPoint:
    """A point beside the interval that all other chips give; `inside` says that it holds it."""

    held: HeldPoint
    width: ErrorWidth

    @cached_property
    def inside(self) -> bool:
        """True if the published energy is in the interval."""
        return self.width.holds(self.held.log_ratio)


def leave_one_out() -> tuple[CoveredPoint, ...]:
    """Each point with the interval from the other chips of its kind, points left out included."""
    found = []
    for one in held_points():
        ratios = by_chip(one.chip.kind)
        others = [ratio for name, ratio in ratios.items() if name != one.chip.name]
        found.append(CoveredPoint(one, prediction(others)))
    return tuple(found)


def covered_share(points: Iterable[CoveredPoint]) -> float:
    """The share of points inside their intervals; each chip counts once, by its points' share."""
    shares: dict[str, list[bool]] = {}
    for one in points:
        shares.setdefault(one.held.chip.name, []).append(one.inside)
    return fmean(fmean(inside) for inside in shares.values())


def array_kind(target: Target) -> ArrayKind:
    """The kind of a target's arrays."""
    if not target.keys.weight_code.analog:
        return "digital"
    return "sram" if target.process.memory == "sram" else "resistive"


def interval_sentence(target: Target) -> str:
    """The widths of a target's energies, for a reader."""
    kind = array_kind(target)
    prices, own = _times(error_width(kind)), _times(measured_width())
    return (
        "intervals of energies hold nine of ten published chips: reference prices of "
        f"{kind} arrays {prices}, the measured figure of a chip {own}"
    )


def _times(width: ErrorWidth) -> str:
    return f"{width.low:.2g} to {width.high:.2g} times ({width.chips} chips)"
