"""The cost of one product of a layer: its arrays, its converters and the adders behind them."""

from __future__ import annotations

from cimtool.costs.rates import Rates
from cimtool.costs.totals import NOTHING, Cost, PartShare, Quantity
from cimtool.hardware.placement import Floorplan, Placement
from cimtool.hardware.settings import Settings


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
    # Without a time of the arrays their converters' is the least that a product takes.
    latency = Quantity(converted, ("arrays",)) if time is None else Quantity(time * passes)
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
