"""The same query on machines of another kind, from their data sheets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.prices import Machine, reference


@dataclass(frozen=True)
class MachineCost:
    """A query on a machine at its peak rates and full power, one query at a time."""

    name: str
    time_ns: float
    energy_pj: float
    bound: str
    status: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return dict(vars(self))


def other_machines(estimate: Estimate) -> tuple[MachineCost, ...]:
    """The query of an estimate on each machine of the reference; none without a gallery."""
    query, held = estimate.query, estimate.gallery_bytes
    if query is None or held is None:
        return ()
    layers = [place for place in estimate.placements if place.graph == "text"]
    moved = held + sum(place.macs * place.weight_bits for place in layers) / 8
    operations = 2 * (query.macs + query.digital.multiplications)
    return tuple(_cost(one, moved, operations) for one in reference().machines)


def _cost(machine: Machine, moved: float, operations: float) -> MachineCost:
    """The longer of streaming bytes and of arithmetic, at full power."""
    reading = moved / machine.bandwidth
    computing = 0.0 if machine.tops is None else operations / machine.tops / 1000
    time = max(reading, computing)
    bound = "memory" if reading >= computing else "arithmetic"
    energy = 1000 * machine.power * time
    return MachineCost(machine.name, time, energy, bound, "derived", machine.source)
