"""Writing of cells: by a target's figures, or those of published cells of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cimtool.costs.digital import digital_cost
from cimtool.costs.operations import Operations, Tally
from cimtool.costs.rates import Rates
from cimtool.costs.totals import Cost, PartShare, Quantity, longest
from cimtool.hardware.placement import Floorplan, Placement

LOADING = "writing of cells"


def writing(cells: int, rows: int, rates: Rates) -> Cost:
    """The cost of writing cells, row by row, the arrays side by side."""
    pulses, missing = rates.value("write_pulses"), Quantity(None, (LOADING,))
    energy = _figure(rates, "write_energy") or rates.prices.write_pj(pulses)
    row = _figure(rates, "write_latency") or rates.prices.pulse_ns(pulses)
    share = PartShare(
        missing if energy is None else energy.times(cells),
        missing if row is None else row.times(rows),
    )
    return Cost(
        cells_written=cells,
        latency_ns=share.time,
        parts={"writing": share},
        known=0 if energy is None else cells,
    )


def programming(cells: int, rounds: int, plan: Floorplan, rates: Rates) -> Cost:
    """The cost of writing `cells` in so many rounds of a whole chip, at least one."""
    return writing(cells, max(rounds, 1) * plan.weight_sets * (rates.own.rows or 0), rates)


def loading(graph: str, layers: Sequence[Placement], plan: Floorplan, rates: Rates) -> Cost:
    """The cost of writing all weights of a graph, round by round, the arrays side by side.

    They are read from DRAM. Nothing where weights stay.
    """
    rounds = plan.rounds.get(graph, 0)
    if not rounds:
        return Cost()
    own = [one for one in layers if one.shares is None and one.graph == graph]
    written = programming(sum(one.cells for one in own), rounds, plan, rates)
    bits = sum(one.rows * one.columns * one.weight_bits for one in own)
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
