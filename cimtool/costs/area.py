"""The area that a program takes: arrays with their drivers, converters, digital unit and buffers.

Areas of the target come first. Others are reference areas from `area.toml`, scaled by the area
factors of the nodes. The area of a macro by its cells is held against published macros, as energies
are in `silicon.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from cimtool.base.toml_files import SourceText, TomlTable, read_toml, validated
from cimtool.costs.prices import Prices, reference
from cimtool.costs.rates import Rates
from cimtool.costs.silicon import ArrayKind, ErrorWidth, prediction
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.hardware.figures import Sourced, Status
from cimtool.hardware.keys import AtLeastOne
from cimtool.hardware.placement import Floorplan
from cimtool.hardware.technology import AboveZero, Nanometres
from cimtool.report.formats import AREAS
from cimtool.report.table import Column, Content, Table, make_table

FILE = Path(__file__).with_name("area.toml")

PRODUCT_BITS, SUM_BITS = 8, 32
"""Bits of the multiplier and of the adder in a lane of the digital unit."""

NON_VOLATILE = ("rram", "pcm", "sonos")
"""Memories whose arrays can be off while they do nothing."""

BESIDE = ("digital unit", "buffer")
"""Parts that are no arrays."""

POWERS = {"multipliers": 2, "adders": 1, "buffer": 1}
"""The area of a unit grows with this power of its bits."""


class UnitArea(Sourced):
    """The area in um2 of a unit of logic of so many bits, or of so many bits of a buffer."""

    kind: Literal["multipliers", "adders", "buffer"]
    bits: AboveZero
    node: Nanometres


class MacroArea(TomlTable):
    """The area in mm2 of a published macro of so many physical cells."""

    chip: str
    kind: ArrayKind
    node: Nanometres
    cells: AtLeastOne
    area: AboveZero
    source: SourceText
    status: Status


class ReferenceAreas(TomlTable):
    """The whole file of areas."""

    converter_shares: tuple[Sourced, ...] = Field(strict=False)
    units: tuple[UnitArea, ...] = Field(strict=False)
    macros: tuple[MacroArea, ...] = Field(strict=False)


@cache
def reference_areas() -> ReferenceAreas:
    """The reference areas of cimtool."""
    return validated(ReferenceAreas, read_toml(FILE), str(FILE))


def cell_logs(kind: ArrayKind) -> dict[str, float]:
    """The logarithm of the um2 by the cell of each published macro of a kind, scaled to 45 nm."""
    return {
        one.chip: math.log(1e6 * one.area / one.cells / reference().area_factor(one.node))
        for one in reference_areas().macros
        if one.kind == kind
    }


@cache
def _cell(kind: ArrayKind) -> tuple[float, ErrorWidth]:
    """The um2 by the cell at 45 nm, and its width."""
    logs = list(cell_logs(kind).values())
    centre = fmean(logs)
    return math.exp(centre), prediction([log - centre for log in logs])


def _of_sources(values: Iterable[float]) -> Quantity:
    """The geometric mean of several sources, from lowest to highest; of one, the assumed spread."""
    found = list(values)
    middle = math.exp(fmean(map(math.log, found)))
    if len(found) == 1:
        spread = reference().spread
        return Quantity(middle, (), middle / spread, middle * spread)
    return Quantity(middle, (), min(found), max(found))


def unit_area(kind: str, bits: float, node: float) -> Quantity:
    """The area in mm2 of a unit of a kind and width at a node."""
    here = reference().area_factor(node)
    return _of_sources(
        1e-6
        * one.value
        * (bits / one.bits) ** POWERS[kind]
        * here
        / reference().area_factor(one.node)
        for one in reference_areas().units
        if one.kind == kind
    )


@dataclass(frozen=True)
class AreaPart:
    """The area of one part in mm2, and what it is known by.

    A part that is `off` while it does nothing leaks in its published energies alone: arrays of
    cells that keep their weights without a supply.
    """

    part: str
    mm2: Quantity
    basis: str
    off: bool = False


@dataclass(frozen=True)
class OccupiedArea:
    """The area that a program takes, by part."""

    parts: tuple[AreaPart, ...]

    @property
    def total(self) -> Quantity:
        """The sum of all parts in mm2."""
        return sum((one.mm2 for one in self.parts), NOTHING)

    @property
    def leaking(self) -> Quantity:
        """The area in mm2 that leaks all the time."""
        return sum((one.mm2 for one in self.parts if not one.off), NOTHING)

    @property
    def beside(self) -> Quantity:
        """The area in mm2 of the digital unit and the buffer; of a whole chip if that is known."""
        found = sum((one.mm2 for one in self.parts if one.part in BESIDE), NOTHING)
        return self.leaking if found == NOTHING else found

    @property
    def known_share(self) -> float:
        """The share of the area that figures of the target give."""
        total = self.total
        return total.own / total.value if total.value else 0.0

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values, one entry for each part."""
        return [
            {"part": one.part, "mm2": one.mm2.to_json(), "basis": one.basis} for one in self.parts
        ]


def occupied_area(rates: Rates, plan: Floorplan) -> OccupiedArea:
    """The area of the arrays that a program takes, and of the digital unit and buffer of each chip.

    A target without a limit to its arrays has no area.
    """
    figure, off = rates.figure("area"), rates.target.process.memory in NON_VOLATILE
    each = None if figure is None else rates.arrays_in(figure.scope)
    if figure is not None and each is not None:
        whole = rates.area(figure, -(-plan.arrays // each))
        basis = "a simulated design" if rates.target.simulated else "figure of the target"
        if rates.target.simulated:
            whole = _cell(rates.kind)[1].widen(whole)
        said = AreaPart(f"{figure.scope}s", whole, basis, off and figure.scope != "chip")
        around = () if figure.scope == "chip" else _around(rates.prices, plan)
        return OccupiedArea((said, *around))
    own = rates.own
    if own.rows is None or own.columns is None:
        return OccupiedArea((AreaPart("arrays", Quantity(None, ("arrays",)), "not known"),))
    cells = plan.arrays * own.rows * own.columns
    arrays = (replace(one, off=off) for one in _arrays(rates, plan, cells))
    return OccupiedArea((*arrays, *_around(rates.prices, plan)))


def _arrays(rates: Rates, plan: Floorplan, cells: int) -> Sequence[AreaPart]:
    """Cells with drivers, and converters: their own area, or a share of a macro's."""
    kind = rates.kind
    each, width = _cell(kind)
    amount = 1e-6 * cells * each * reference().area_factor(rates.prices.node)
    macro = width.widen(Quantity(amount))
    basis = f"{width.chips} published macros"
    if kind == "digital":
        return (AreaPart("arrays", macro, basis),)
    share = _of_sources(one.value for one in reference_areas().converter_shares)
    middle, low, high = share.value or 0.0, share.low or 0.0, share.high or 0.0
    adc, count = rates.figure("adc_area"), rates.figure("adc_count")
    shared = None if count is None else rates.arrays_in(count.scope)
    converters = AreaPart("converters", macro.times(middle, low, high), basis)
    if adc is not None and count is not None and shared is not None:
        figures = rates.area(adc, plan.arrays * count.value / shared / 1e6)
        converters = AreaPart("converters", figures, "figures of the target")
    return (AreaPart("arrays", macro.times(1 - middle, 1 - high, 1 - low), basis), converters)


def _around(prices: Prices, plan: Floorplan) -> Sequence[AreaPart]:
    """The digital unit and the buffer; those of other chips are off, as one chip's are used.

    There is one chip if their number is not known.
    """
    chips, given = plan.chips or 1, prices.target.digital
    lane = unit_area("multipliers", PRODUCT_BITS, prices.node)
    lane += unit_area("adders", SUM_BITS, prices.node)
    buffer = unit_area("buffer", prices.buffer_bits, prices.node)
    said = ("assumed size", "size of the target")
    unit = AreaPart(BESIDE[0], lane.times(prices.lanes), said[given.lanes is not None])
    store = AreaPart(BESIDE[1], buffer, said[given.buffer is not None])
    if chips == 1:
        return unit, store
    others = (unit.mm2 + store.mm2).times(chips - 1)
    return unit, store, AreaPart("the same of other chips", others, "as of the first", off=True)


def area_table(area: OccupiedArea) -> Table:
    """The area of each part, with its ends and its basis."""
    rows: list[Sequence[Content]] = [
        (one.part, one.mm2.cell(AREAS), one.mm2.range_text(AREAS) or None, one.basis)
        for one in area.parts
    ]
    columns = (Column("part"), Column("area"), Column("from, to"), Column("by"))
    return make_table("Area by part", columns, rows, sortable=False).named("area", "detail")
