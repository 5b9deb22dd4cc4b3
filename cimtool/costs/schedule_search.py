"""Branch and bound for the shortest schedule of a few tasks.

Giffler and Thompson's active schedules (Operations Research 8, 1960), for tasks that may hold
several resources: of all tasks whose predecessors are placed, one ends first; next comes that one,
or another that could begin before this end and holds one of its resources, or one of those that
such a task holds. In each other schedule there is room for the first, so an optimum is among these.
A branch ends if a resource's tasks, preempted at will (Jackson's rule), take as long as the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from cimtool.costs.schedule import HardwareTask, Resource, tails

MOST_SEARCHED = 100
"""Tasks with a time of which schedules are searched."""

MOST_VISITS = 10_000
"""Tasks that are looked at, summed over all branches, before the search gives up."""


class _TooLong(Exception):
    """The search takes more visits than it may."""


def preempted_length(waiting: Iterable[tuple[int, int, int]]) -> int:
    """The ticks that one resource takes for tasks of (head, ticks, tail) if any can be interrupted.

    The longest tail first, of those whose head has passed: no schedule of the resource is shorter.
    """
    ahead = sorted(waiting)
    ready: list[tuple[int, int]] = []
    now = least = place = 0
    while ready or place < len(ahead):
        if not ready:
            now = max(now, ahead[place][0])
        while place < len(ahead) and ahead[place][0] <= now:
            heappush(ready, (-ahead[place][2], ahead[place][1]))
            place += 1
        tail, ticks = heappop(ready)
        run = ticks if place == len(ahead) else min(ticks, ahead[place][0] - now)
        now += run
        if run < ticks:
            heappush(ready, (tail, ticks - run))
        else:
            least = max(least, now - tail)
    return least


class _Search:
    """The order of the shortest schedule found so far, and its length."""

    def __init__(self, tasks: Sequence[HardwareTask], length: int) -> None:
        self.tasks, self.length, self.rest = tasks, length, tails(tasks)
        self.holds = [[(r, ticks) for r, ticks in task.holds if ticks] for task in tasks]
        self.order: list[int] | None = None
        self.visits = 0

    def go(self, order: list[int], ends: dict[int, int], free: dict[Resource, int]) -> None:
        """Try all schedules that begin with the tasks of `order`, which end at `ends`."""
        heads = self._heads(ends, free)
        if self._bound(heads, ends) >= self.length:
            return
        order, ends = [*order], {**ends}
        for position, head in heads.items():
            # What takes no time is in no task's way, and is placed at once.
            if not self.tasks[position].ticks and self._is_open(position, ends):
                order.append(position)
                ends[position] = head
        if len(order) == len(self.tasks):
            self.order, self.length = order, max(ends.values())
            return
        for position in self._branches(heads, ends):
            start = heads[position]
            held = {resource: start + ticks for resource, ticks in self.holds[position]}
            end = start + self.tasks[position].ticks
            self.go([*order, position], ends | {position: end}, free | held)

    def _is_open(self, position: int, ends: dict[int, int]) -> bool:
        return all(before in ends for before in self.tasks[position].after)

    def _heads(self, ends: dict[int, int], free: dict[Resource, int]) -> dict[int, int]:
        """The earliest start of each task that is not placed, after what is."""
        found: dict[int, int] = {}
        for position, task in enumerate(self.tasks):
            if position in ends:
                continue
            head = 0
            for before in task.after:
                end = ends[before] if before in ends else found[before] + self.tasks[before].ticks
                head = max(head, end)
            for resource, _ in self.holds[position]:
                head = max(head, free.get(resource, 0))
            found[position] = head
        self.visits += len(found)
        if self.visits > MOST_VISITS:
            raise _TooLong
        return found

    def _bound(self, heads: dict[int, int], ends: dict[int, int]) -> int:
        """Ticks that no schedule undercuts whose other tasks begin at their heads or later."""
        least = max(ends.values(), default=0)
        waiting: dict[Resource, list[tuple[int, int, int]]] = {}
        for position, head in heads.items():
            rest = self.rest[position]
            least = max(least, head + rest)
            for resource, ticks in self.holds[position]:
                waiting.setdefault(resource, []).append((head, ticks, rest - ticks))
        for tasks in waiting.values():
            if len(tasks) > 1 and least < self.length:
                least = max(least, preempted_length(tasks))
        return least

    def _branches(self, heads: dict[int, int], ends: dict[int, int]) -> list[int]:
        """The tasks that can be next, the longest path to the end first."""
        ready = [p for p in heads if p not in ends and self._is_open(p, ends)]
        first = min(ready, key=lambda p: (heads[p] + self.tasks[p].ticks, p))
        end = heads[first] + self.tasks[first].ticks
        early = [p for p in ready if heads[p] < end]
        chosen, held = {first}, {resource for resource, _ in self.holds[first]}
        while True:
            more = [p for p in early if p not in chosen and held & {r for r, _ in self.holds[p]}]
            if not more:
                return sorted(chosen, key=lambda p: (-self.rest[p], heads[p], p))
            chosen.update(more)
            held.update(resource for p in more for resource, _ in self.holds[p])


def searched_order(tasks: Sequence[HardwareTask], length: int) -> tuple[list[int] | None, bool]:
    """An order whose schedule is shorter than `length`, or None; True if none is shorter still.

    Many tasks are not searched, nor few whose search would take long.
    """
    if sum(task.ticks > 0 for task in tasks) > MOST_SEARCHED:
        return None, False
    search = _Search(tasks, length)
    try:
        search.go([], {}, {})
    except _TooLong:
        return search.order, False
    return search.order, True
