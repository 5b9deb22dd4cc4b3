"""Reference prices from the file `prices.toml`, used if a target publishes no figure.

Every source of a kind is scaled from its node, supply and width to the target's. The price is the
geometric mean of the sources; its interval runs from the lowest to the highest. Energy and delay
factors are from Stillmaker and Baas, Integration 58 (2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field

from cimtool.base.errors import CimError
from cimtool.base.named import unknown
from cimtool.base.toml_files import SourceText, TomlTable, read_toml, validated
from cimtool.costs.totals import Quantity
from cimtool.hardware.figures import OperatingPoint, Sourced
from cimtool.hardware.target import Target
from cimtool.hardware.technology import AboveZero, OperationName, Price

FILE = Path(__file__).with_name("prices.toml")

WIDTHS = {"bits": 1, "bits x bits": 2, "each": 0, "ladder": 0}
"""The price of an operation grows with this power of its bits."""


class OperationKind(TomlTable):
    """A kind of operation: how its price grows with width, and its part of a cost.

    The price is multiplied by `times`. It is `scaled` to the target's node if the kind is logic.
    It counts as derived for the cells in `memory`, as assumed for other cells.
    """

    width: Literal["bits", "bits x bits", "each", "ladder"]
    part: Literal[
        "digital", "buffers", "memory", "wires", "links", "converters", "arrays", "writing"
    ] = "digital"
    times: float = 1.0
    scaled: bool = True
    memory: tuple[str, ...] = Field((), strict=False)


class Ladder(TomlTable):
    """Prices of a kind by width, at one node."""

    kind: OperationName
    bits: tuple[float, ...] = Field(strict=False)
    energy: tuple[float, ...] = Field(strict=False)
    node: float
    status: str
    source: SourceText

    def at(self, bits: float) -> float:
        """The energy at a width: its logarithm is interpolated, and extrapolated, linearly."""
        steps = list(pairwise(zip(self.bits, map(math.log, self.energy), strict=True)))
        inside = next((step for step in steps if bits <= step[1][0]), steps[-1])
        return math.exp(_between(bits, *inside))


class Pulse(Sourced):
    """The length in ns of the pulse that writes a row of cells of a memory."""

    memory: str


class Leakage(Sourced):
    """The power in mW/mm2 of a published circuit that does nothing, at a node."""

    node: float


class Clock(Sourced):
    """The clock in MHz of a published digital unit."""

    node: float
    voltage: float


class TechnologyNode(TomlTable):
    """A node: its nominal supply, its area (45 nm: 1), and the polynomials of its factors."""

    node: float
    nominal: float
    area: AboveZero
    energy: tuple[float, ...] = Field(strict=False)
    delay: tuple[float, ...] = Field(strict=False)


class Assumed(TomlTable):
    """Defaults for a target that gives no node, lanes, buffer in KiB or GB/s of DRAM."""

    node: float
    lanes: int
    buffer: int
    bandwidth: float


class Reference(TomlTable):
    """The whole file of reference prices."""

    spread: float
    figure_spread: float
    sustained: Sourced
    kinds: dict[OperationName, OperationKind]
    prices: tuple[Price, ...] = Field(strict=False)
    ladders: tuple[Ladder, ...] = Field(strict=False)
    pulses: tuple[Pulse, ...] = Field(strict=False)
    verification: Sourced
    clocks: tuple[Clock, ...] = Field(strict=False)
    control_shares: tuple[Sourced, ...] = Field(strict=False)
    leakages: tuple[Leakage, ...] = Field(strict=False)
    assumed: Assumed
    nodes: tuple[TechnologyNode, ...] = Field(strict=False)

    def time_spread(self, measured: bool) -> float:
        """The factor each way within which a time or an area holds, measured on a chip or not."""
        return self.figure_spread if measured else self.spread

    def factor(self, polynomial: Literal["energy", "delay"], node: float, voltage: float) -> float:
        """The factor of a node at a supply, interpolated linearly between two nodes."""
        known = sorted(self.nodes, key=lambda one: one.node)
        found = [(one.node, _value(getattr(one, polynomial), voltage)) for one in known]
        return _interpolated(node, found)

    def area_factor(self, node: float) -> float:
        """The area of a circuit at a node, of that at 45 nm."""
        return _interpolated(node, sorted((one.node, one.area) for one in self.nodes))

    def nominal(self, node: float) -> float:
        """The nominal supply of a node in V."""
        return _interpolated(node, sorted((one.node, one.nominal) for one in self.nodes))


@cache
def reference() -> Reference:
    """The reference prices of cimtool."""
    return validated(Reference, read_toml(FILE), str(FILE))


def kind_of(name: str) -> OperationKind:
    """A kind of operation by name; CimError for an unknown one."""
    kinds = reference().kinds
    if name not in kinds:
        raise unknown("kind of operation", name, kinds)
    return kinds[name]


def _value(coefficients: Sequence[float], x: float) -> float:
    """A polynomial's value, its highest power first."""
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def _between(x: float, low: tuple[float, float], high: tuple[float, float]) -> float:
    share = (x - low[0]) / (high[0] - low[0])
    return low[1] + share * (high[1] - low[1])


def _mean(values: Sequence[float]) -> float:
    """The geometric mean; one value is itself."""
    if len(values) == 1:
        return values[0]
    return math.exp(sum(map(math.log, values)) / len(values))


def _interpolated(x: float, points: Sequence[tuple[float, float]]) -> float:
    inside = next((pair for pair in pairwise(points) if x <= pair[1][0]), (points[-2], points[-1]))
    return _between(x, *inside)


@dataclass(frozen=True)
class UnitPrice:
    """The price in pJ of one unit of a kind's size: an operation, a bit, or a product of bits."""

    kind: str
    low: float
    value: float
    high: float
    status: str
    sources: tuple[str, ...]

    def of(self, size: float) -> Quantity:
        """The energy of `size` units."""
        return Quantity(size * self.value, (), size * self.low, size * self.high)


@dataclass(frozen=True)
class Prices:
    """The prices of a target at an operating point; its own come before reference prices."""

    target: Target
    point: OperatingPoint | None

    @property
    def node(self) -> float:
        """The technology node of the logic in nm."""
        return self.target.process.node or reference().assumed.node

    @property
    def voltage(self) -> float:
        """The supply of the logic in V."""
        given = None if self.point is None else self.point.voltage
        return given or self.target.process.voltage or reference().nominal(self.node)

    def unit(self, name: str, bits: float = 1.0) -> UnitPrice | None:
        """The price of one unit of a kind, at `bits` on a ladder; None if no source has one."""
        if (name, bits) not in self._units:
            self._units[name, bits] = self._unit(name, bits)
        return self._units[name, bits]

    @cached_property
    def _units(self) -> dict[tuple[str, float], UnitPrice | None]:
        """The prices looked up so far."""
        return {}

    def _unit(self, name: str, bits: float) -> UnitPrice | None:
        """The price by the target's own sources, or else by the reference's.

        It is their geometric mean, from lowest to highest. A single reference without an interval
        gets the assumed spread.
        """
        kind, own = kind_of(name), self.target.digital.prices
        given = [one for one in own if one.kind == name]
        listed = given or [one for one in reference().prices if one.kind == name]
        found = [self._scaled(one, kind) for one in listed]
        sources = [one.source for one in listed]
        if not given:
            for ladder in (one for one in reference().ladders if one.kind == name):
                energy = ladder.at(bits) * self.scale(ladder.node, None)
                found.append((energy, energy, energy))
                sources.append(ladder.source)
        if not found:
            return None
        low, high = min(one[0] for one in found), max(one[2] for one in found)
        value = _mean([one[1] for one in found])
        if len(found) == 1 and low == high and not given:
            low, high = value / reference().spread, value * reference().spread
        other = kind.memory and self.target.process.memory not in kind.memory
        reckoned = "assumed" if other or self.target.process.node is None else "derived"
        return UnitPrice(name, low, value, high, "own" if given else reckoned, tuple(sources))

    def _scaled(self, price: Price, kind: OperationKind) -> tuple[float, float, float]:
        """Lowest, given and highest price of one unit of the kind's size, at the target."""
        power = WIDTHS[kind.width]
        if power and price.bits is None:
            raise CimError(f"price of {price.kind}: bits is missing; it is priced by its width")
        factor = kind.times / (price.bits or 1.0) ** power
        if kind.scaled and price.node is not None:
            factor *= self.scale(price.node, price.voltage)
        low, high = price.interval
        return low * factor, price.value * factor, high * factor

    def scale(self, node: float, voltage: float | None) -> float:
        """The factor that scales an energy at a node and supply (None: nominal) to the target's."""
        table = reference()
        there = table.factor("energy", node, voltage or table.nominal(node))
        return table.factor("energy", self.node, self.voltage) / there

    def converter(self, bits: int, own: tuple[float, int] | None) -> Quantity | None:
        """One conversion of `bits`; the ladders scale the target's `own` (energy, bits), if any."""
        unit = self.unit("conversions", bits)
        if unit is None:
            return None
        if own is None:
            return unit.of(1)
        energy, own_bits = own
        if bits == own_bits:
            return Quantity(energy, own=energy)
        ratios = [one.at(bits) / one.at(own_bits) for one in reference().ladders]
        ends = [energy * ratio for ratio in (min(ratios), _mean(ratios), max(ratios))]
        return Quantity(ends[1], (), ends[0], ends[2], own=ends[1])

    @cached_property
    def clock(self) -> tuple[float, float, float]:
        """Lowest, middle and highest clock of the digital unit in MHz."""
        given, table = self.target.digital.clock, reference()
        if given is not None:
            spread = table.time_spread(not self.target.simulated)
            return given / spread, given, given * spread
        here = table.factor("delay", self.node, self.voltage)
        found = [
            one.value * table.factor("delay", one.node, one.voltage) / here for one in table.clocks
        ]
        return min(found), _mean(found), max(found)

    @property
    def lanes(self) -> int:
        """Operations that the digital unit does in a cycle."""
        return self.target.digital.lanes or reference().assumed.lanes

    @property
    def buffer_bits(self) -> int:
        """Bits of features that the memory on the chip holds."""
        return 8192 * (self.target.digital.buffer or reference().assumed.buffer)

    @property
    def bandwidth(self) -> float:
        """GB/s of DRAM at its peak."""
        return self.target.digital.bandwidth or reference().assumed.bandwidth

    def read_ns(self, bits: float) -> Quantity:
        """The time of reading bits of DRAM: at its peak, or as much slower as published streams."""
        time = bits / 8 / self.bandwidth
        return Quantity(time, (), time, time / reference().sustained.value)

    def cycles_ns(self, operations: float) -> Quantity:
        """The time that the digital unit takes for a number of operations."""
        slow, middle, fast = (1000 * operations / self.lanes / clock for clock in self.clock)
        return Quantity(middle, (), fast, slow)

    def pulse_ns(self, pulses: float | None) -> Quantity | None:
        """The time of writing one row of cells; None if no source has one."""
        memory = self.target.process.memory
        if memory == "sram":
            return self.cycles_ns(self.lanes)
        one = next((p for p in reference().pulses if p.memory == memory), None)
        if one is None:
            return None
        low, high = one.interval
        return self._verified(Quantity(one.value, (), low, high), pulses)

    def write_pj(self, pulses: float | None) -> Quantity | None:
        """The energy of writing one cell; None if no source has one."""
        memory = self.target.process.memory
        name = f"{memory}_writes"
        unit = self.unit(name) if name in reference().kinds else None
        if unit is None or memory == "sram":
            return None if unit is None else unit.of(1)
        return self._verified(unit.of(1), pulses)

    def _verified(self, one: Quantity, pulses: float | None) -> Quantity:
        """Writing with all its pulses and reads back, from a single pulse."""
        if pulses is not None:
            return one.times(pulses)
        many = reference().verification
        return one.times(many.value, *many.interval)

    def assumptions(self) -> Iterable[str]:
        """Sentences on the basis of the prices, and on which of it is assumed."""
        table, given = reference(), self.target
        place = f"{self.node:g} nm at {self.voltage:.3g} V"
        if given.process.node is None:
            yield f"digital prices are for {place}, assumed: the target states no node"
        elif given.process.voltage is None and not (self.point and self.point.voltage):
            yield f"digital prices are for {place}; the nominal supply is assumed"
        else:
            yield f"digital prices are for {place}"
        low, middle, high = self.clock
        clock = f"{middle:,.0f} MHz" + (
            "" if given.digital.clock else f" ({low:,.0f} to {high:,.0f})"
        )
        said = "given" if given.digital.clock and given.digital.lanes else "assumed"
        yield f"the digital unit does {self.lanes} operations per cycle at {clock}, {said}"
        buffer = given.digital.buffer or table.assumed.buffer
        said = "given" if given.digital.buffer and given.digital.bandwidth else "assumed"
        yield (
            f"a gallery above {buffer:,} KiB is read from DRAM at {self.bandwidth:g} GB/s, {said}"
        )
        yield (
            "digital unit, buffer and SRAM arrays leak for as long as a time is known; arrays of "
            "cells that need no supply are off while they do nothing"
        )
        yield (
            "if a program takes several chips, a number sent to an array or back crosses a link "
            "from chip to chip as often as the array is not on the digital unit's chip"
        )
        yield "not priced: setting of references, regulators of the supply, cooling"
