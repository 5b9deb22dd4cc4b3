"""The costs that totals add up: products of layers, digital operations, writing of cells.

Reference prices stand in for figures that the target does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cimtool.costs.operations import Operations, Tally
from cimtool.costs.overheads import clock_and_control
from cimtool.costs.prices import Prices, UnitPrice, kind_of
from cimtool.costs.rates import Rates
from cimtool.costs.silicon import error_width, measured_width
from cimtool.costs.totals import NOTHING, PARTS, Cost, PartShare, Quantity, longest
from cimtool.hardware.placement import Floorplan, Placement
from cimtool.hardware.settings import Settings

NOT_TIMED = ("registers", "sram", "wires", "links", "host", "dram")
"""Kinds that take no cycle of the digital unit: they run beside its arithmetic."""

NOT_WRITTEN = Quantity(None, ("writing of cells",))
"""The time or energy of writing cells if no source gives it."""


def layer_cost(place: Placement, rates: Rates, settings: Settings, plan: Floorplan) -> Cost:
    """The cost of one product of a layer, all of its arrays working side by side."""
    own = settings.of_layer(place.layer)
    energies = rates.energies(place, own)
    counts = {
        "arrays": (place.macs, "MACs in arrays"),
        "converters": (place.conversions, "conversions"),
        "shift-and-add": (place.column_sums, "shift-and-add"),
    }
    passes, time = plan.passes(place), rates.latency(place, own)
    converting = rates.conversion_time(place)
    converted = converting * place.reads * place.cycles * passes if converting else None
    # If the arrays' time is unknown, the converters' time is a lower bound.
    latency = Quantity(converted, ("arrays",)) if time is None else rates.time(time * passes)
    parts: dict[str, PartShare] = {}
    for name, (count, called) in counts.items():
        energy = energies[name]
        missing = Quantity(None, (called,)) if count else NOTHING
        parts[name] = PartShare(missing if energy is None else energy)
    parts["arrays"] += PartShare(time=Quantity(None, ("arrays",)) if time is None else latency)
    if converted is not None:
        parts["converters"] += PartShare(time=Quantity(converted))
    return Cost(
        macs=place.macs,
        drive_cycles=place.drive_cycles * place.reads * passes,
        conversions=place.conversions,
        shift_adds=place.column_sums,
        latency_ns=latency,
        parts=parts,
        known=sum(counts[name][0] for name, one in energies.items() if one is not None),
    )


def digital_cost(work: Operations, prices: Prices) -> Cost:
    """The cost of digital operations: arithmetic takes its cycles, DRAM streams beside it."""
    parts: dict[str, PartShare] = {}
    known = 0
    for kind, tally in work.tallies.items():
        unit, part = prices.unit(kind), str(kind_of(kind).part)
        missing = Quantity(None, (f"{kind} outside the arrays",))
        share = PartShare(missing if unit is None else _widened(unit.of(tally.size), unit, part))
        parts[part] = parts.get(part, PartShare()) + share
        known += 0 if unit is None else tally.count
    if "digital" in parts:
        parts["clock and control"] = PartShare(clock_and_control(parts["digital"].energy))
    cycles = sum(t.count for kind, t in work.tallies.items() if kind not in NOT_TIMED)
    times = {"digital": prices.cycles_ns(cycles)} if cycles else {}
    if "dram" in work.tallies:
        times["memory"] = prices.read_ns(work.tallies["dram"].size)
    for part, time in times.items():
        parts[part] = parts.get(part, PartShare()) + PartShare(time=time)
    ordered = {name: parts[name] for name in PARTS if name in parts}
    return Cost(digital=work, latency_ns=longest(times.values()), parts=ordered, known=known)


def _widened(energy: Quantity, unit: UnitPrice, part: str) -> Quantity:
    """The energy as wide as such prices were found to be; others keep their sources' interval."""
    if unit.status == "own":
        return measured_width().widen(energy)
    return error_width("digital").widen(energy) if part == "digital" else energy


def programming(cells: int, rounds: int, plan: Floorplan, rates: Rates) -> Cost:
    """The cost of writing `cells` in `rounds` of a whole chip, at least one.

    The cells are written row by row, the arrays side by side.
    """
    rows = max(rounds, 1) * plan.weight_sets * (rates.own.rows or 0)
    own = _figure(rates, "write_energy")
    pulses = rates.value("write_pulses")
    energy = measured_width().widen(own) if own else rates.prices.write_pj(pulses)
    share = PartShare(
        NOT_WRITTEN if energy is None else energy.times(cells), row_time(rates).times(rows)
    )
    return Cost(
        cells_written=cells,
        latency_ns=share.time,
        parts={"writing": share},
        known=0 if energy is None else cells,
    )


def row_time(rates: Rates) -> Quantity:
    """The time of writing one row of an array's cells."""
    row = _figure(rates, "write_latency") or rates.prices.pulse_ns(rates.value("write_pulses"))
    return NOT_WRITTEN if row is None else row


def loading(graph: str, layers: Sequence[Placement], plan: Floorplan, rates: Rates) -> Cost:
    """The cost of writing the weights of a graph that do not stay in the arrays, round by round.

    They are read from DRAM, and written to all arrays of a round side by side.
    """
    rounds = plan.rounds.get(graph, 0)
    if not rounds:
        return Cost()
    own = [
        one
        for one in layers
        if one.shares is None and one.graph == graph and one.layer not in plan.kept
    ]
    written = programming(sum(one.cells for one in own), rounds, plan, rates)
    bits = sum(one.held_bits for one in own)
    moved = Operations({"dram": Tally(sum(one.macs for one in own), bits)})
    read = digital_cost(moved, rates.prices)
    both = written + read
    return replace(both, latency_ns=longest((written.latency_ns, read.latency_ns)))


def _figure(rates: Rates, quantity: str) -> Quantity | None:
    """A figure of the target with its interval."""
    figure = rates.figure(quantity)
    if figure is None:
        return None
    return Quantity(figure.value, (), *figure.interval, own=figure.value)
