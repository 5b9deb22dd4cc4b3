"""Patterns of tasks: nothing collides, and the busiest resource gives the throughput."""

from __future__ import annotations

import random
from itertools import combinations

from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tasks import DIGITAL, MEMORY, collisions, random_tasks

from cimtool.costs.schedule import (
    HardwareTask,
    Resource,
    busy,
    chained,
    in_turn,
    lower_bound,
)
from cimtool.costs.schedule_once import once
from cimtool.costs.schedule_repeats import repeated, shortest
from cimtool.costs.schedule_residents import most_saved


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_nothing_collides(seed: int, waves: int) -> None:
    tasks = random_tasks(random.Random(seed), 12)
    single = once(tasks)
    assert collisions(single) == []
    for one in (*repeated(single), shortest(single, waves)[0]):
        assert collisions(one) == []
        assert min(one.starts) == 0


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_the_throughput_is_that_of_the_busiest_resource(seed: int) -> None:
    tasks = random_tasks(random.Random(seed), 12)
    first = next(repeated(once(tasks)))
    assert first.interval == max(busy(tasks).values())


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.integers(1, 10**6))
def test_a_batch_is_between_its_bound_and_one_item_after_another(seed: int, items: int) -> None:
    tasks = random_tasks(random.Random(seed), 10)
    single = once(tasks)
    pattern, repeats = shortest(single, items)
    assert lower_bound(tasks, items, items) <= pattern.makespan(repeats) <= items * single.length


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


@settings(deadline=None, max_examples=examples(200))
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
