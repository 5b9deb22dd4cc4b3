"""The layers that stay in the arrays of a chip that does not hold all weights.

Every layer that stays saves its load in each inference; every array that it takes is one less for
the loads of the others, which then take more rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cimtool.hardware.placement import Floorplan, Placement, floorplan
from cimtool.hardware.target import Target


def with_residents(
    layers: Sequence[Placement], target: Target, measure: Callable[[Floorplan], float]
) -> Floorplan:
    """The floorplan with the layers that stay, if weights are loaded for each inference.

    For all arrays, half of them, a quarter and so on left to the loads, the layers that save most
    bits read from DRAM are found exactly. Of these floorplans the one with the least `measure` is
    taken, of equal ones that with the fewest layers that stay.
    """
    plan = floorplan(layers, target)
    best, least = plan, measure(plan) if plan.loads else 0.0
    stored = [place for place in layers if place.shares is None]
    sizes, bits = [one.arrays for one in stored], [one.held_bits for one in stored]
    loading = plan.streaming // 2
    while loading:
        room = (plan.arrays - loading) * plan.weight_sets
        chosen = most_saved(sizes, bits, room)
        found = floorplan(layers, target, [stored[index].layer for index in chosen])
        measured = measure(found)
        if measured < least:
            best, least = found, measured
        loading //= 2
    return best


def most_saved(sizes: Sequence[int], savings: Sequence[int], room: int) -> list[int]:
    """The positions of things of these sizes that fit the room and save most (a knapsack).

    Exact, by dynamic programming over the room; of equal savings, the first things are taken.
    """
    fitting = [index for index, size in enumerate(sizes) if size <= room]
    if sum(sizes[index] for index in fitting) <= room:
        return fitting
    unit = int(np.gcd.reduce([sizes[index] for index in fitting]))
    places = room // unit
    best = np.zeros(places + 1, np.int64)
    taken = np.zeros((len(fitting), places + 1), bool)
    for row in reversed(range(len(fitting))):
        size = sizes[fitting[row]] // unit
        with_it = best[: places + 1 - size] + savings[fitting[row]]
        taken[row, size:] = with_it >= best[size:]
        best[size:] = np.maximum(with_it, best[size:])
    chosen = []
    for row, index in enumerate(fitting):
        if taken[row, places]:
            chosen.append(index)
            places -= sizes[index] // unit
    return chosen
