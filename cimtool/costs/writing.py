"""Writing of cells: by a target's figures, or those of published cells of its memory."""

from __future__ import annotations

from cimtool.costs.rates import Rates
from cimtool.costs.totals import Cost, PartShare, Quantity

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


def _figure(rates: Rates, quantity: str) -> Quantity | None:
    """A figure of the target with its interval."""
    figure = rates.figure(quantity)
    if figure is None:
        return None
    return Quantity(figure.value, (), *figure.interval, own=figure.value)
