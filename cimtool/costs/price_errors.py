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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cimtool.base.intervals import Change

EnergyByPrice = Mapping[str, tuple[float, float]]
"""An energy with one price, by name, at its lowest and at its highest, all others in the middle."""


def ratio(value: float, ends: EnergyByPrice, by: float, other: EnergyByPrice) -> Change:
    """The energy `value` as a multiple of the energy `by`; prices of one name move together."""
    factors = []
    for name in dict.fromkeys((*ends, *other)):
        both = zip(ends.get(name, (value, value)), other.get(name, (by, by)), strict=True)
        low, high = (_factor(above / value, below / by) for above, below in both)
        factors.append((low, high))
    up = _rise(factors)
    down = _rise([(_factor(1.0, low), _factor(1.0, high)) for low, high in factors])
    return Change(value / by, value / by / down, value / by * up)


def _factor(above: float, below: float) -> float:
    """The factor of a ratio as the energies above and below change by these factors."""
    if above == below:
        return 1.0
    return above / below if below else math.inf


def _rise(factors: Sequence[tuple[float, float]]) -> float:
    """The factor by which a ratio rises, by those at the lowest and at the highest of each price.

    A price that raises it at its highest is a gain of the energy above; one that raises it at its
    lowest is a loss of that below.
    """
    gained = 1 + math.hypot(*(high - 1 for low, high in factors if high >= low and high > 1))
    left = 1 - math.hypot(*(1 - 1 / low for low, high in factors if low > high and low > 1))
    if left <= 0:
        return math.inf
    return math.exp(math.hypot(math.log(gained), math.log(left)))
