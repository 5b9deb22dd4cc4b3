"""Patterns of tasks: nothing collides, and small ones are as short as a full search finds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.costs.schedule import (
    HardwareTask,
    Pattern,
    Resource,
    busy,
    chained,
    in_turn,
    lower_bound,
    once,
    tails,
)
from cimtool.costs.schedule_repeats import repeated, shortest
from cimtool.costs.schedule_residents import most_saved

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


def least_makespan(tasks: Sequence[HardwareTask], items: int, most: int) -> int:
    """The least ticks of all orders in which the tasks of these items can begin, at most `most`.

    Each task begins as early as its predecessors and its resource allow. Items are alike, so each
    task takes them in their order. Branches that cannot be shorter are left out.
    """
    rest, kinds = tails(tasks), range(len(tasks))
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
            start = max([0, *ready, *(free.get(resource, 0) for resource, _ in task.holds)])
            if start + rest[kind] >= best:
                continue
            later = free | {resource: start + ticks for resource, ticks in task.holds}
            added = [[*done, start + task.ticks] if k == kind else done
                     for k, done in enumerate(ends)]  # fmt: skip
            left: dict[Resource, int] = {}
            for k in kinds:
                for resource, ticks in tasks[k].holds:
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


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_nothing_collides(seed: int, waves: int) -> None:
    tasks = random_tasks(random.Random(seed), 12)
    single = once(tasks)
    assert collisions(single) == []
    for one in (*repeated(single), shortest(single, waves)[0]):
        assert collisions(one) == []
        assert min(one.starts) == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_the_throughput_is_that_of_the_busiest_resource(seed: int) -> None:
    tasks = random_tasks(random.Random(seed), 12)
    first = next(repeated(once(tasks)))
    assert first.interval == max(busy(tasks).values())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 10**6))
def test_a_batch_is_between_its_bound_and_one_item_after_another(seed: int, items: int) -> None:
    tasks = random_tasks(random.Random(seed), 10)
    single = once(tasks)
    pattern, repeats = shortest(single, items)
    assert lower_bound(tasks, items, items) <= pattern.makespan(repeats) <= items * single.length


def ratios(seed: int, count: int, most: dict[int, int]) -> list[float]:
    """Makespans by the least ones, of random tasks: at most so many for each number of items."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        items = draw.choice([*most])
        tasks = random_tasks(draw, most[items])
        pattern, repeats = shortest(once(tasks), items)
        ticks = pattern.makespan(repeats)
        best = least_makespan(tasks, items, ticks)
        assert lower_bound(tasks, items, items) <= best
        found.append(ticks / best)
    return found


def test_nearly_all_small_batches_are_as_short_as_an_exhaustive_search_finds() -> None:
    for found in (ratios(11, 1000, {1: 7}), ratios(12, 200, {2: 5, 3: 4})):
        assert sum(one == 1 for one in found) >= 0.99 * len(found)
        assert max(found) <= 1.25


def test_a_flow_of_layers_is_optimal_by_its_bound() -> None:
    # 3, 5 and 2 ticks one after another: the second is always held, 3 before it and 2 after it.
    holds = [((Resource(f"layer {n}"), ticks),) for n, ticks in enumerate((3, 5, 2))]
    tasks = [HardwareTask("x", hold, (n - 1,) if n else ()) for n, hold in enumerate(holds)]
    for items in (1, 2, 7, 10**12):
        pattern, repeats = shortest(once(tasks), items)
        assert pattern.makespan(repeats) == 3 + 5 * items + 2 == lower_bound(tasks, items, items)


def test_a_shared_task_is_done_once_a_wave_and_its_buffer_is_free_in_between() -> None:
    arrays = Resource("loaded arrays", 1)
    tasks = [
        HardwareTask("load", ((MEMORY, 4), (arrays, 6)), (), shared=True, buffer=arrays),
        HardwareTask("product", ((arrays, 3),), (0,), buffer=arrays),
        HardwareTask("digital", ((DIGITAL, 2),), (1,)),
    ]
    single = once(tasks)
    assert single.length == 6 + 3 + 2
    (only,) = repeated(single)
    assert only.interval == 6 + 3
    # Twelve items in three waves: three loads, twelve products, and the last digital operation.
    assert lower_bound(tasks, 12, 3) == 3 * 6 + 12 * 3 + 2


def test_parts_follow_one_another() -> None:
    first = [HardwareTask("a", ((DIGITAL, 2),)), HardwareTask("b", ((MEMORY, 5),))]
    second = [HardwareTask("c", ((DIGITAL, 1),)), HardwareTask("d", ((DIGITAL, 1),), (0,))]
    assert [task.after for task in chained([first, second])] == [(), (), (0, 1), (2,)]
    assert in_turn([once(first), once(second)]).starts == (0, 0, 5, 6)
    assert [task.after for task in chained([first, [], second])][2] == (0, 1)


def test_of_tasks_without_time_there_is_no_throughput() -> None:
    single = once([HardwareTask("a"), HardwareTask("b", (), (0,))])
    assert single.length == 0
    assert list(repeated(single)) == []


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=9), st.integers(0, 40))
def test_the_knapsack_is_that_of_an_exhaustive_search(
    things: list[tuple[int, int]], room: int
) -> None:
    sizes, savings = [size for size, _ in things], [saving for _, saving in things]
    found = most_saved(sizes, savings, room)
    assert sum(sizes[index] for index in found) <= room
    best = max(
        (
            sum(savings[index] for index in chosen)
            for count in range(len(things) + 1)
            for chosen in combinations(range(len(things)), count)
            if sum(sizes[index] for index in chosen) <= room
        ),
        default=0,
    )
    assert sum(savings[index] for index in found) == best


def test_of_equal_savings_the_first_layers_stay() -> None:
    assert most_saved([4, 4, 4], [7, 7, 7], 9) == [0, 1]
    assert most_saved([], [], 5) == []
    assert most_saved([6], [1], 5) == []
