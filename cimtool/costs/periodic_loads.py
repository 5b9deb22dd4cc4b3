"""The time of a gallery that is loaded for each query, by that of a few of its loads.

Loads and the products with them repeat: a number of items more, the period, adds the same loads to
each layer, at the same places of the arrays. Once the schedule has settled, each period takes the
same time, so that two small galleries give that of a large one, but for the rounding of tasks to
ticks. A third shows that it has settled; if it has not, larger ones are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cimtool.costs.schedule_batch import ENDS, PARTS
from cimtool.costs.totals import Quantity
from cimtool.hardware.placement import Floorplan, Placement

CLOSE = 1e-9
"""Two times that differ by less than this share are the same, but for tasks' rounding to ticks."""


def loading_period(layers: Sequence[Placement], plan: Floorplan) -> int:
    """The items that add whole turns of loads to each of the layers that store them.

    This holds for each number of PARTS that the free arrays are divided into.
    """
    rooms = (max(1, plan.streaming // parts) * parts * plan.weight_sets for parts in PARTS)
    turn = math.lcm(*rooms)
    return math.lcm(*(
        place.array_columns * (turn // math.gcd(turn, place.row_parts)) for place in layers
    ))  # fmt: skip


@dataclass(frozen=True)
class SettledSchedule:
    """A schedule that grows by `steps` in ns, by ENDS, with each period from so many on."""

    periods: int
    steps: tuple[float, ...]


def settled(time: Callable[[int], Quantity], items: int, period: int) -> SettledSchedule | None:
    """The settled schedule of `time` by a number of items; None if it is not before `items`."""
    periods = 1
    while items >= (periods + 2) * period:
        least = periods * period + items % period
        one, two, three = (time(least + step * period) for step in range(3))
        before, after = _difference(one, two), _difference(two, three)
        if all(math.isclose(x, y, rel_tol=CLOSE) for x, y in zip(before, after, strict=True)):
            return SettledSchedule(periods, after)
        periods *= 2
    return None


def settled_time(
    time: Callable[[int], Quantity], items: int, period: int, found: SettledSchedule | None
) -> Quantity:
    """`time` of a number of items by that of fewer, in steps of a period."""
    if found is None or items < (found.periods + 1) * period:
        return time(items)
    least = found.periods * period + items % period
    known, count = time(least), (items - least) // period
    ends = (
        (getattr(known, end) or 0.0) + count * step
        for end, step in zip(ENDS, found.steps, strict=True)
    )
    value, low, high = ends
    return Quantity(value, known.missing, low, high, known.own)


def _difference(one: Quantity, two: Quantity) -> tuple[float, ...]:
    return tuple((getattr(two, end) or 0.0) - (getattr(one, end) or 0.0) for end in ENDS)
