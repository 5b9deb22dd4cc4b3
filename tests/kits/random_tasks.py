"""Random tasks on resources, what collides of a pattern of them, and their least makespan."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from cimtool.costs.schedule import HardwareTask, Pattern, Resource, tails

DIGITAL, MEMORY = Resource("digital unit"), Resource("DRAM channel")


def random_tasks(draw: random.Random, most: int) -> list[HardwareTask]:
    """Tasks with up to two predecessors each, on resources of their own or on one of two shared."""
    tasks = []
    for position in range(draw.randint(2, most)):
        before = draw.sample(range(position), min(position, draw.choice([0, 1, 1, 2])))
        own = Resource(f"layer {position}")
        held = draw.choice([DIGITAL, MEMORY, own, own])
        hold = ((held, draw.randint(1, 9)),)
        tasks.append(HardwareTask(f"task {position}", hold, tuple(sorted(before))))
    return tasks


def tasks_of_several(draw: random.Random, most: int) -> list[HardwareTask]:
    """Tasks that hold up to three resources from one start on, some for no time."""
    tasks = []
    for position in range(draw.randint(2, most)):
        before = draw.sample(range(position), min(position, draw.choice([0, 1, 1, 2])))
        parts = [DIGITAL, MEMORY, Resource("write ports"), Resource(f"layer {position}")]
        held = draw.sample(parts, draw.choice([1, 1, 2, 3]))
        holds = tuple((resource, max(0, draw.randint(-1, 9))) for resource in held)
        tasks.append(HardwareTask(f"task {position}", holds, tuple(sorted(before))))
    return tasks


def least_makespan(tasks: Sequence[HardwareTask], items: int, most: int) -> int:
    """The least ticks of all orders in which the tasks of these items can begin, at most `most`.

    A task begins as early as its predecessors and the tasks before it in the order allow. An
    optimum is among these: take the order of its starts, and no task begins later than it did.
    Items are alike, so each task takes them in their order. Branches that cannot be shorter are
    left out.
    """
    rest, kinds = tails(tasks), range(len(tasks))
    holds = [[(r, ticks) for r, ticks in task.holds if ticks] for task in tasks]
    best = most

    def go(ends: list[list[int]], free: dict[Resource, int]) -> None:
        nonlocal best
        if all(len(done) == items for done in ends):
            best = min(best, max(done[-1] for done in ends))
            return
        for kind in kinds:
            item, task = len(ends[kind]), tasks[kind]
            if item == items or any(len(ends[before]) <= item for before in task.after):
                continue
            ready = [ends[before][item] for before in task.after]
            start = max([0, *ready, *(free.get(resource, 0) for resource, _ in holds[kind])])
            if start + rest[kind] >= best:
                continue
            later = free | {resource: start + ticks for resource, ticks in holds[kind]}
            added = [[*done, start + task.ticks] if k == kind else done
                     for k, done in enumerate(ends)]  # fmt: skip
            left: dict[Resource, int] = {}
            for k in kinds:
                for resource, ticks in holds[k]:
                    work = ticks * (items - len(added[k]))
                    left[resource] = left.get(resource, 0) + work
            if all(later.get(r, 0) + work < best for r, work in left.items() if work):
                go(added, later)

    go([[] for _ in tasks], {})
    return best


def collisions(pattern: Pattern, repeats: int = 3) -> list[str]:
    """The tasks that hold a resource at the same time, or begin before a predecessor ends."""
    turns = range(repeats if pattern.interval else 1)
    spans = [
        (resource, start + turn * pattern.interval, end + turn * pattern.interval, task.name)
        for resource, start, end, task in pattern.held()
        for turn in turns
    ]
    found = [
        f"{a[3]} and {b[3]} hold {a[0]}"
        for a, b in combinations(spans, 2)
        if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]
    ]
    for start, task in zip(pattern.starts, pattern.tasks, strict=True):
        for before in task.after:
            if pattern.starts[before] + pattern.tasks[before].ticks > start:
                found.append(f"{task.name} begins before {pattern.tasks[before].name} ends")
    return found
