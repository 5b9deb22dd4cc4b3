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

NEVER = 1 << 100
"""A tick after all others."""


class _TooLong(Exception):
    """The search takes more visits than it may."""


def preempted_length(waiting: Iterable[tuple[int, int, int]], enough: int = NEVER) -> int:
    """The ticks that one resource takes for tasks of (head, ticks, tail) if any can be interrupted.

    The longest tail first, of those whose head has passed: no schedule of the resource is shorter.
    Once the ticks are `enough`, the rest is not counted.
    """
    ahead = sorted(waiting)
    ready: list[tuple[int, int]] = []
    now = least = 0
    for place, (head, ticks, tail) in enumerate(ahead):
        if head > now:
            now = head
        heappush(ready, (-tail, ticks))
        until = ahead[place + 1][0] if place + 1 < len(ahead) else NEVER
        while ready and now < until:
            rest, left = heappop(ready)
            if now + left > until:
                heappush(ready, (rest, left - (until - now)))
                now = until
            else:
                now += left
                if now - rest > least:
                    least = now - rest
                    if least >= enough:
                        return least
    return least


def length_by_heads(waiting: Iterable[tuple[int, int, int]]) -> int:
    """The ticks of the same tasks one after another by their heads, without any interruption.

    `preempted_length` is no more than that, and takes longer to tell.
    """
    now = most = 0
    for head, ticks, tail in sorted(waiting):
        now = (head if head > now else now) + ticks
        if now + tail > most:
            most = now + tail
    return most


class _Search:
    """The order of the shortest schedule found so far, and its length.

    Resources are numbers here: most of the time is spent on looking them up.
    """

    def __init__(self, tasks: Sequence[HardwareTask], length: int) -> None:
        self.length, self.rest = length, tails(tasks)
        self.ticks = [task.ticks for task in tasks]
        self.after = [task.after for task in tasks]
        self.needs = [frozenset(after) for after in self.after]
        numbers: dict[Resource, int] = {}
        self.holds = [
            [(numbers.setdefault(r, len(numbers)), ticks) for r, ticks in task.holds if ticks]
            for task in tasks
        ]
        self.held = [{resource for resource, _ in holds} for holds in self.holds]
        self.shared = self._shared(len(numbers))
        self.free = [0] * len(numbers)
        self.order: list[int] | None = None
        self.visits = 0

    def _shared(self, resources: int) -> list[list[tuple[int, int, int]]]:
        """The tasks of each resource that several hold: position, ticks held, ticks after it."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(resources)]
        for position, (holds, rest) in enumerate(zip(self.holds, self.rest, strict=True)):
            for resource, ticks in holds:
                found[resource].append((position, ticks, rest - ticks))
        return [tasks for tasks in found if len(tasks) > 1]

    def go(self, order: list[int], ends: dict[int, int], free: list[int]) -> None:
        """Try all schedules that begin with the tasks of `order`, which end at `ends`.

        `free` has the end of each resource's holds.
        """
        heads = self._heads(ends, free)
        if self._takes_as_long(heads, ends):
            return
        order, ends = [*order], {**ends}
        for position, head in heads.items():
            # What takes no time is in no task's way, and is placed at once.
            if not self.ticks[position] and self._is_open(position, ends):
                order.append(position)
                ends[position] = head
        if len(order) == len(self.ticks):
            self.order, self.length = order, max(ends.values())
            return
        for position in self._branches(heads, ends):
            start, held = heads[position], [*free]
            for resource, ticks in self.holds[position]:
                held[resource] = start + ticks
            end = start + self.ticks[position]
            self.go([*order, position], ends | {position: end}, held)

    def _is_open(self, position: int, ends: dict[int, int]) -> bool:
        return ends.keys() >= self.needs[position]

    def _heads(self, ends: dict[int, int], free: list[int]) -> dict[int, int]:
        """The earliest start of each task that is not placed, after what is."""
        found: dict[int, int] = {}
        done, ticks = {**ends}, self.ticks
        for position, (after, held) in enumerate(zip(self.after, self.held, strict=True)):
            if position in ends:
                continue
            head = 0
            for before in after:
                if done[before] > head:
                    head = done[before]
            for resource in held:
                if free[resource] > head:
                    head = free[resource]
            found[position] = head
            done[position] = head + ticks[position]
        self.visits += len(found)
        if self.visits > MOST_VISITS:
            raise _TooLong
        return found

    def _takes_as_long(self, heads: dict[int, int], ends: dict[int, int]) -> bool:
        """True if no schedule is shorter whose other tasks begin at their heads or later."""
        length, rests = self.length, self.rest
        if max(ends.values(), default=0) >= length:
            return True
        for position, head in heads.items():
            if head + rests[position] >= length:
                return True
        for tasks in self.shared:
            waiting = sorted([(heads[p], ticks, tail) for p, ticks, tail in tasks if p in heads])
            if (
                len(waiting) > 1
                and length_by_heads(waiting) >= length
                and preempted_length(waiting, length) >= length
            ):
                return True
        return False

    def _branches(self, heads: dict[int, int], ends: dict[int, int]) -> list[int]:
        """The tasks that can be next, the longest path to the end first."""
        ready = [p for p in heads if p not in ends and self._is_open(p, ends)]
        first = min(ready, key=lambda p: (heads[p] + self.ticks[p], p))
        end = heads[first] + self.ticks[first]
        early = [p for p in ready if heads[p] < end]
        chosen, held = {first}, {*self.held[first]}
        while True:
            more = [p for p in early if p not in chosen and not held.isdisjoint(self.held[p])]
            if not more:
                return sorted(chosen, key=lambda p: (-self.rest[p], heads[p], p))
            chosen.update(more)
            held.update(*(self.held[p] for p in more))


def searched_order(tasks: Sequence[HardwareTask], length: int) -> tuple[list[int] | None, bool]:
    """An order whose schedule is shorter than `length`, or None; True if none is shorter still.

    Many tasks are not searched, nor few whose search would take long.
    """
    if sum(task.ticks > 0 for task in tasks) > MOST_SEARCHED:
        return None, False
    search = _Search(tasks, length)
    try:
        search.go([], {}, search.free)
    except _TooLong:
        return search.order, False
    return search.order, True
