"""One rule of intervals, for an energy and for the ratio of two energies.

An energy has prices that are off independently of each other: of arrays and converters, of the
digital unit, of DRAM, of a machine. One of them moves to an end of its interval in all that it
prices, with all others in the middle. What the energy gains at upper ends adds up in squares, and
so does what it loses at lower ends:

    low = value - sqrt(sum lost^2), high = value + sqrt(sum gained^2)

In a ratio, a price that both have moves both, and what is left of it counts once: as a gain or a
loss of the energy above or below, relative to that energy. The factors that these give, each by the
rule above, multiply; they are independent, so their logarithms add up in squares. Over a constant
the ratio has the interval of the energy; without a common price, that of two independent energies.

A common price cancels only for work that both do. What one does beyond the other, by the prices in
the middle, is another set-up of the same circuits, whose price may differ by `setup_width`
(`silicon.py`), and by no more than its interval. It counts if it moves the ratio further than the
common price does. So two energies of the same price alone have a ratio with an interval, too,
unless they are of the same work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cimtool.base.intervals import Change
from cimtool.costs.silicon import ErrorWidth, setup_width
from cimtool.report.formats import digits, digits_apart
from cimtool.report.table import Cell

EnergyByPrice = Mapping[str, Change]
"""The parts of an energy by the name of their price: in the middle, at its lowest and highest."""

NOT_PRICED = Change(0.0, 0.0, 0.0)

PriceEnds = tuple[float, float]
"""The factors of a ratio as a price is at its lowest and at its highest."""


def ratio(above: EnergyByPrice, below: EnergyByPrice) -> Change:
    """An energy as a multiple of another; prices of one name are common to both."""
    totals = tuple(sum(one.value for one in energy.values()) for energy in (above, below))
    ends = _ends_by_price(above, below)
    up, down = [one for one, _ in ends.values()], [one for _, one in ends.values()]
    value = totals[0] / totals[1]
    fall = _rise([(_quotient(1.0, low), _quotient(1.0, high)) for low, high in down])
    return Change(value, value / fall, value * _rise(up))


def least_known(above: EnergyByPrice, below: EnergyByPrice) -> str:
    """The price that widens the interval of the `ratio` most."""
    ends = _ends_by_price(above, below)
    return max(ends, key=lambda name: _quotient(max(ends[name][0]), min(ends[name][1])))


def _ends_by_price(
    above: EnergyByPrice, below: EnergyByPrice
) -> dict[str, tuple[PriceEnds, PriceEnds]]:
    """The factors by which each price raises the ratio most, and by which it lowers it most."""
    totals = tuple(sum(one.value for one in energy.values()) for energy in (above, below))
    found = {}
    for name in dict.fromkeys((*above, *below)):
        parts = above.get(name, NOT_PRICED), below.get(name, NOT_PRICED)
        ends = _moved(parts, totals), _beyond(parts, totals, setup_width())
        found[name] = max(ends, key=max), min(ends, key=min)
    return found


def _moved(parts: tuple[Change, Change], totals: tuple[float, ...]) -> PriceEnds:
    """The factors as a price moves in both energies."""
    shares = [
        (1 + (one.low - one.value) / total, 1 + (one.high - one.value) / total)
        for one, total in zip(parts, totals, strict=True)
    ]
    low, high = (_quotient(above, below) for above, below in zip(*shares, strict=True))
    return low, high


def _beyond(
    parts: tuple[Change, Change], totals: tuple[float, ...], width: ErrorWidth
) -> PriceEnds:
    """The factors as the price moves of what one energy has beyond the other alone."""
    above, below = parts
    upper = above.value > below.value
    one, total = (above, totals[0]) if upper else (below, totals[1])
    if not one.value:
        return 1.0, 1.0
    share = abs(above.value - below.value) / total
    low = 1 + share * (max(width.low, one.low / one.value) - 1)
    high = 1 + share * (min(width.high, one.high / one.value) - 1)
    return (low, high) if upper else (1 / low, 1 / high)


def _quotient(above: float, below: float) -> float:
    if above == below:
        return 1.0
    return above / below if below else math.inf


def _rise(factors: Sequence[PriceEnds]) -> float:
    """The factor by which a ratio rises, by those at the lowest and at the highest of each price.

    A price that raises it at its highest is a gain of the energy above; one that raises it at its
    lowest is a loss of that below.
    """
    gained = 1 + math.hypot(*(high - 1 for low, high in factors if high >= low and high > 1))
    left = 1 - math.hypot(*(1 - 1 / low for low, high in factors if low > high and low > 1))
    if left <= 0:
        return math.inf
    return math.exp(math.hypot(math.log(gained), math.log(left)))


def times_text(ratio: Change) -> str:
    """A multiple with its ends: `2 times (1.3 to 3)`; what no price bounds is left open.

    It has two digits, or as many as tell its ends apart; energies of the same work have one value.
    """
    value, low, high = _shown(ratio)
    if low == high:
        return f"exactly {value} times"
    if math.isinf(ratio.high):
        return f"{value} times ({f'at least {low}' if ratio.low > 0 else 'no end is known'})"
    return f"{value} times ({f'{low} to {high}' if ratio.low > 0 else f'at most {high}'})"


def times_cell(ratio: Change) -> Cell:
    """A multiple in a table, its ends beside it unless it is exact."""
    value, low, high = _shown(ratio)
    return Cell(value, ratio.value, "" if low == high else f"[{low}, {high}]")


def _shown(ratio: Change) -> tuple[str, ...]:
    count = digits_apart(ratio.low, ratio.high)
    return tuple(digits(one, count) for one in (ratio.value, ratio.low, ratio.high))
