"""The time of a gallery that is loaded for each query, by that of a few of its loads.

Loads and the products with them repeat: a number of items more, the period, adds the same loads to
each layer, at the same places of the arrays. Once the schedule has settled, each period takes the
same time, so that two small galleries give that of a large one, but for the rounding of tasks to
ticks. A third shows that it has settled; if it has not, larger ones are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cimtool.costs.schedule_batch import PARTS
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


def settled_time(time: Callable[[int], float], items: int, period: int) -> float:
    """The time of a number of items, by that of fewer and their steps of a period.

    `time` gives that of any number; it is asked for all items if it does not settle before.
    """
    periods = 1
    while items >= (periods + 2) * period:
        least = periods * period + items % period
        one, two, three = (time(least + step * period) for step in range(3))
        if math.isclose(two - one, three - two, rel_tol=CLOSE):
            return one + (two - one) * ((items - least) // period)
        periods *= 2
    return time(items)
