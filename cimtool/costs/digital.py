"""Energy and time of digital operations, by the prices of a target."""

from __future__ import annotations

from cimtool.costs.operations import Operations
from cimtool.costs.prices import Prices, kind_of
from cimtool.costs.totals import PARTS, Cost, PartShare, Quantity, longest

NOT_TIMED = ("registers", "sram", "wires", "dram")
"""Kinds that take no cycle of the digital unit's own: they run beside its arithmetic."""


def digital_cost(work: Operations, prices: Prices) -> Cost:
    """The cost of digital operations: arithmetic takes its cycles, DRAM streams beside it."""
    parts: dict[str, PartShare] = {}
    known = 0
    for kind, tally in work.tallies.items():
        unit, part = prices.unit(kind), str(kind_of(kind).part)
        missing = Quantity(None, (f"{kind} outside the arrays",))
        share = PartShare(missing if unit is None else unit.of(tally.size))
        parts[part] = parts.get(part, PartShare()) + share
        known += 0 if unit is None else tally.count
    cycles = sum(t.count for kind, t in work.tallies.items() if kind not in NOT_TIMED)
    times = {"digital": prices.cycles_ns(cycles)} if cycles else {}
    if "dram" in work.tallies:
        times["memory"] = Quantity(work.tallies["dram"].size / 8 / prices.bandwidth)
    for part, time in times.items():
        parts[part] = parts.get(part, PartShare()) + PartShare(time=time)
    ordered = {name: parts[name] for name in PARTS if name in parts}
    return Cost(digital=work, latency_ns=longest(times.values()), parts=ordered, known=known)
