"""The schedule of one item: list scheduling, forwards or backwards, then a search if tasks are few.

List scheduling takes the task with the longest path to the end first, from the start on or from the
end. `schedule_search.py` finds the shortest schedule, or proves that it is found already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cimtool.costs.schedule import (
    HardwareTask,
    Pattern,
    busy,
    by_urgency,
    longest_first,
    placed_tasks,
    tails,
)
from cimtool.costs.schedule_search import searched_order


def once(tasks: Sequence[HardwareTask]) -> Pattern:
    """The shortest pattern of one repetition that is found, and `exact` if none is shorter.

    That is so if it takes no longer than the longest path or the busiest resource, or if a search
    ends, which has a limit of branches.
    """
    found = listed(tasks)
    if found.exact:
        return found
    order, exact = searched_order(tasks, found.length)
    if order is not None:
        found = _placed(tasks, order)
    return replace(found, exact=True) if exact else found


def listed(tasks: Sequence[HardwareTask]) -> Pattern:
    """The pattern of list scheduling, forwards or backwards."""
    rest = tails(tasks)
    least = max([0, *rest, *busy(tasks).values()])
    found = _placed(tasks, longest_first(rest))
    if found.length > least:
        backwards = _backwards(tasks)
        if backwards is not None and backwards.length < found.length:
            found = backwards
    return replace(found, exact=True) if found.length == least else found


def _placed(tasks: Sequence[HardwareTask], order: Sequence[int]) -> Pattern:
    found = placed_tasks(tasks, order)
    assert found is not None  # without an interval there is always room
    return found


def _backwards(tasks: Sequence[HardwareTask]) -> Pattern | None:
    """The tasks placed from the end on, then moved to the front as far as they go.

    None if a task holds several resources, whose holds would then end together.
    """
    last = len(tasks) - 1
    if any(len(task.holds) > 1 for task in tasks):
        return None
    after: list[list[int]] = [[] for _ in tasks]
    for position, task in enumerate(tasks):
        for before in task.after:
            after[last - before].append(last - position)
    mirrored = [
        HardwareTask(task.name, task.holds, tuple(after[place]))
        for place, task in enumerate(reversed(tasks))
    ]
    found = _placed(mirrored, by_urgency(mirrored))
    starts = [found.length - found.starts[last - p] - tasks[p].ticks for p in range(last + 1)]
    return _placed(tasks, sorted(range(last + 1), key=lambda p: (starts[p], p)))
