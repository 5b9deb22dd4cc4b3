"""Tasks on resources over time: one item, or the same pattern of tasks repeated for many.

Each task begins as early as its predecessors and its resources allow. Times are whole ticks, so
that sums, remainders and comparisons are exact. `schedule_once.py` has the order of one item's
tasks, `schedule_repeats.py` many items.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

TICKS = 10**9
"""Ticks of a nanosecond."""


class Resource(NamedTuple):
    """One thing that a task can hold: of one kind there may be several, numbered from 1 on.

    Those that products of different layers hold side by side are told apart by the `layer`.
    """

    kind: str
    number: int = 0
    layer: str = ""


@dataclass(frozen=True, slots=True)
class HardwareTask:
    """A piece of work: it `holds` resources from its start on, each for its number of ticks.

    It ends with its longest hold. `after` are the positions of its predecessors, which come before
    it in a list of tasks. A `shared` task is done once for all items of a wave, any other for each.
    The `buffer` is what a wave uses without a break from the first of its tasks to the last.
    """

    name: str
    holds: tuple[tuple[Resource, int], ...] = ()
    after: tuple[int, ...] = ()
    shared: bool = False
    buffer: Resource | None = None
    ticks: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        longest = max((ticks for _, ticks in self.holds), default=0)
        object.__setattr__(self, "ticks", longest)


def busy(tasks: Sequence[HardwareTask]) -> dict[Resource, int]:
    """The time that each resource is held, in the order of first use."""
    found: dict[Resource, int] = {}
    for task in tasks:
        for resource, ticks in task.holds:
            found[resource] = found.get(resource, 0) + ticks
    return found


def heads(tasks: Sequence[HardwareTask]) -> list[int]:
    """The longest path of predecessors before each task."""
    found: list[int] = []
    for task in tasks:
        found.append(max((found[p] + tasks[p].ticks for p in task.after), default=0))
    return found


def tails(tasks: Sequence[HardwareTask]) -> list[int]:
    """The longest path from the start of each task to the end."""
    found = [task.ticks for task in tasks]
    for position in reversed(range(len(tasks))):
        rest = found[position]
        for before in tasks[position].after:
            path = tasks[before].ticks + rest
            if path > found[before]:
                found[before] = path
    return found


def lower_bound(tasks: Sequence[HardwareTask], items: int, waves: int) -> int:
    """Ticks that no schedule of the items undercuts, their shared tasks done once a wave.

    `tasks` are those of one item. The bound is its critical path, or the time that all items hold a
    resource, with the shortest path before and after it.
    """
    before, rest = heads(tasks), tails(tasks)
    held: dict[Resource, tuple[int, int, int]] = {}
    for task, head, tail in zip(tasks, before, rest, strict=True):
        for resource, ticks in task.holds:
            work, least, last = held.get(resource, (0, head, tail - ticks))
            work += ticks * (waves if task.shared else items)
            held[resource] = work, min(least, head), min(last, tail - ticks)
    return max([max(rest, default=0), *map(sum, held.values())])


def chained(parts: Sequence[Sequence[HardwareTask]]) -> list[HardwareTask]:
    """The tasks of all parts: each part begins when the one before has ended."""
    found: list[HardwareTask] = []
    ends: tuple[int, ...] = ()
    for tasks in parts:
        first = len(found)
        for task in tasks:
            after = tuple(first + position for position in task.after) or ends
            found.append(replace(task, after=after))
        inner = {position for task in tasks for position in task.after}
        ends = tuple(first + p for p in range(len(tasks)) if p not in inner) or ends
    return found


@dataclass(frozen=True)
class Pattern:
    """The starts of all tasks in ticks, repeated every `interval` (0: only once).

    It is `exact` if it is proved that no schedule of one repetition is shorter.
    """

    tasks: tuple[HardwareTask, ...]
    starts: tuple[int, ...]
    interval: int = 0
    exact: bool = False

    @cached_property
    def length(self) -> int:
        """Ticks from the first start to the last end of one repetition."""
        ends = (start + task.ticks for start, task in zip(self.starts, self.tasks, strict=True))
        return max(ends, default=0)

    def makespan(self, waves: int) -> int:
        """Ticks of so many repetitions."""
        return self.length + (waves - 1) * self.interval

    def held(self) -> Iterator[tuple[Resource, int, int, HardwareTask]]:
        """Each resource with the start and the end of each hold, and its task."""
        for start, task in zip(self.starts, self.tasks, strict=True):
            for resource, ticks in task.holds:
                if ticks:
                    yield resource, start, start + ticks, task


class _Line:
    """The runs of time in which one resource is held, all modulo `interval` (0: once)."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.starts: list[int] = []
        self.ends: list[int] = []

    def earliest(self, ready: int, ticks: int) -> int | None:
        """The first start from `ready` on at which the resource is free; None: there is none."""
        turn, count = self.interval, len(self.starts)
        if not turn:
            return self._earliest_once(ready, ticks)
        if ticks > turn:
            return None
        phase = ready % turn
        at, index = phase, bisect_right(self.starts, phase) - 1
        while count:
            lap, place = divmod(index, count)
            if self.starts[place] + lap * turn >= at + ticks:
                break
            at = max(at, self.ends[place] + lap * turn)
            if at >= phase + turn:
                return None
            index += 1
        return ready + at - phase

    def _earliest_once(self, ready: int, ticks: int) -> int:
        starts, ends, at = self.starts, self.ends, ready
        for place in range(max(bisect_right(starts, ready) - 1, 0), len(starts)):
            if starts[place] >= at + ticks:
                break
            if ends[place] > at:
                at = ends[place]
        return at

    def hold(self, start: int, ticks: int) -> None:
        """Mark the resource as held; touching runs become one."""
        turn = self.interval
        first = start % turn if turn else start
        last = first + ticks
        if turn and last > turn:
            self._insert(0, last - turn)
            last = turn
        self._insert(first, last)

    def _insert(self, first: int, last: int) -> None:
        index = bisect_right(self.starts, first)
        joins_left = index > 0 and self.ends[index - 1] == first
        joins_right = index < len(self.starts) and self.starts[index] == last
        if joins_left and joins_right:
            self.ends[index - 1] = self.ends.pop(index)
            self.starts.pop(index)
        elif joins_left:
            self.ends[index - 1] = last
        elif joins_right:
            self.starts[index] = first
        else:
            self.starts.insert(index, first)
            self.ends.insert(index, last)

    def end_of_run(self) -> int:
        """The end of a packed line's only run, which may reach from one turn into the next."""
        around = len(self.starts) == 2 and self.starts[0] == 0 and self.ends[1] == self.interval
        return self.ends[0 if around else -1]


def placed_tasks(
    tasks: Sequence[HardwareTask], order: Sequence[int], interval: int = 0, packed: bool = False
) -> Pattern | None:
    """Place the tasks in this order, each as early as it can begin in every `interval`.

    `packed` lines a resource's tasks up without gaps, so that they fit if the interval is as long
    as the resource is held. None if a task finds no room.
    """
    lines: dict[Resource, _Line] = {}
    starts = [0] * len(tasks)
    ends = [0] * len(tasks)
    for position in order:
        task = tasks[position]
        ready = max([ends[before] for before in task.after], default=0)
        holds = []
        for resource, ticks in task.holds:
            if resource not in lines:
                lines[resource] = _Line(interval)
            if ticks:
                holds.append((lines[resource], ticks))
        if packed and len(holds) == 1 and holds[0][0].starts:
            ready += (holds[0][0].end_of_run() - ready) % interval
        begin = _free(holds, ready)
        if begin is None:
            return None
        starts[position], ends[position] = begin, begin + task.ticks
        for line, ticks in holds:
            line.hold(begin, ticks)
    return Pattern(tuple(tasks), tuple(starts), interval)


def _free(holds: Sequence[tuple[_Line, int]], ready: int) -> int | None:
    """The first time from `ready` on at which all lines are free."""
    if len(holds) == 1:
        return holds[0][0].earliest(ready, holds[0][1])
    begin = -1
    while begin != ready:
        begin = ready
        for line, ticks in holds:
            free = line.earliest(ready, ticks)
            if free is None or (line.interval and free >= begin + line.interval):
                return None
            ready = free
    return begin


def by_urgency(tasks: Sequence[HardwareTask]) -> list[int]:
    """The positions of tasks, those with the longest path to the end first."""
    return longest_first(tails(tasks))


def longest_first(rest: Sequence[int]) -> list[int]:
    """The positions of tasks in order of their longest paths to the end."""
    return sorted(range(len(rest)), key=lambda position: (-rest[position], position))


def in_turn(patterns: Sequence[Pattern]) -> Pattern:
    """The patterns one after another."""
    starts: list[int] = []
    offset = 0
    for one in patterns:
        starts += [offset + start for start in one.starts]
        offset += one.length
    tasks = tuple(chained([one.tasks for one in patterns]))
    return Pattern(tasks, tuple(starts), exact=all(one.exact for one in patterns))
