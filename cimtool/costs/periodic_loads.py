"""The time of a gallery that is loaded for each query, by that of a few of its loads.

Loads and the products with them repeat: a number of items more, the period, adds the same loads to
each layer, at the same places of the arrays. Once the schedule has settled, each period takes the
same time, so that two small galleries give that of a large one, but for the rounding of tasks to
ticks. It has settled if a period takes as long in a gallery of many times as many periods.

Layers whose tiles have unlike numbers of columns repeat together only after very many loads. Then
the time grows with the tiles as it does between two excerpts of MOST_LOADS loads and half of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cimtool.costs.schedule_batch import PARTS
from cimtool.hardware.placement import Floorplan, Placement

CLOSE = 1e-9
"""Two times that differ by less than this share are the same, but for tasks' rounding to ticks."""

FAR = 16
"""Periods of the first gallery that shows that a schedule has settled."""

MOST_LOADS = 1_000
"""Loads of the largest excerpt that is scheduled where they do not repeat before."""


def tiles_of(layers: Sequence[Placement], items: int) -> int:
    """The tiles of the layers that store so many items."""
    return sum(place.row_parts * -(-items // place.array_columns) for place in layers)


def repeats_soon(layers: Sequence[Placement], plan: Floorplan) -> bool:
    """True if at most MOST_LOADS loads show whether a schedule has settled."""
    tiles = tiles_of(layers, (FAR + 1) * loading_period(layers, plan))
    return tiles <= MOST_LOADS * tiles_per_load(plan)


def tiles_per_load(plan: Floorplan) -> int:
    """The tiles of a load, of two that take turns."""
    return max(1, plan.streaming // PARTS[0]) * plan.weight_sets


def excerpts(layers: Sequence[Placement], plan: Floorplan) -> tuple[int, int]:
    """Two numbers of items, the second of which takes about MOST_LOADS loads, the first half."""
    per_item = sum(place.row_parts / place.array_columns for place in layers)
    widest = max(place.array_columns for place in layers)
    first = max(1, round(MOST_LOADS * tiles_per_load(plan) / 2 / per_item / widest)) * widest
    return first, 2 * first


def loading_period(layers: Sequence[Placement], plan: Floorplan) -> int:
    """The items that add whole turns of loads to each of the layers that store them.

    This holds for each number of PARTS that the free arrays are divided into.
    """
    rooms = (max(1, plan.streaming // parts) * parts * plan.weight_sets for parts in PARTS)
    turn = math.lcm(*rooms)
    return math.lcm(*(
        place.array_columns * (turn // math.gcd(turn, place.row_parts)) for place in layers
    ))  # fmt: skip


def settled_periods(
    time: Callable[[int], float], items: int, period: int, least: int = 1
) -> int | None:
    """The periods, `least` at least, from which on each takes the same time.

    `time` gives that of any number of items. None if it does not settle before `items`.
    """

    def step(count: int) -> float:
        fewer = items % period + count * period
        return time(fewer + period) - time(fewer)

    periods, far = least, FAR
    while True:
        far *= 2 if periods >= far else 1
        if far >= items // period:
            return None
        if math.isclose(step(periods), step(far), rel_tol=CLOSE):
            return periods
        periods *= 2


def settled_time(time: Callable[[int], float], items: int, period: int, periods: int) -> float:
    """The time of a number of items, by that of `periods`, from which on each takes the same."""
    if items < (periods + 1) * period:
        return time(items)
    least = periods * period + items % period
    one = time(least)
    return one + (time(least + period) - one) * ((items - least) // period)
