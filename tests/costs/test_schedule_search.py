"""Schedules of few tasks: exactly as short as an exhaustive search finds, and said to be so."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities import known
from random_tasks import (
    DIGITAL,
    MEMORY,
    collisions,
    least_makespan,
    random_tasks,
    tasks_of_several,
)

from cimtool.bundle.bundle import read_bundle
from cimtool.costs import schedule_search
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.schedule import TICKS, HardwareTask, Pattern, lower_bound
from cimtool.costs.schedule_once import once
from cimtool.costs.schedule_repeats import shortest
from cimtool.costs.schedule_search import length_by_heads, preempted_length

Draw = Callable[[random.Random, int], list[HardwareTask]]


def check_exact(seed: int, count: int, most: dict[int, int], draw_tasks: Draw) -> None:
    """Random tasks take the least time of all: at most so many for each number of items."""
    draw = random.Random(seed)
    for _ in range(count):
        items = draw.choice([*most])
        tasks = draw_tasks(draw, most[items])
        single = once(tasks)
        assert single.exact
        assert collisions(single) == []
        pattern, repeats = shortest(single, items)
        ticks = pattern.makespan(repeats)
        assert least_makespan(tasks, items, ticks) == ticks
        assert lower_bound(tasks, items, items) <= ticks


@pytest.mark.parametrize(("seed", "count", "most", "draw_tasks"), [
    pytest.param(
        11, 2000, {1: 7}, random_tasks, id="one item",
        marks=pytest.mark.thorough("more of the same kind"),
    ),
    pytest.param(12, 150, {2: 5, 3: 4}, random_tasks, id="some items"),
    pytest.param(13, 500, {1: 6}, tasks_of_several, id="several resources"),
    pytest.param(
        14, 2000, {1: 9}, random_tasks, id="more tasks",
        marks=pytest.mark.thorough("more of the same kind"),
    ),
    pytest.param(
        15, 600, {2: 5, 3: 4}, random_tasks, id="more items",
        marks=pytest.mark.thorough("more of the same kind"),
    ),
    pytest.param(
        16, 2000, {1: 7}, tasks_of_several, id="more of several resources",
        marks=pytest.mark.thorough("more of the same kind"),
    ),
])  # fmt: skip
def test_all_small_batches_are_as_short_as_an_exhaustive_search_finds(
    seed: int, count: int, most: dict[int, int], draw_tasks: Draw
) -> None:
    check_exact(seed, count, most, draw_tasks)


@settings(deadline=None, max_examples=examples(100))
@given(st.integers(0, 2**32), st.sampled_from([random_tasks, tasks_of_several]))
def test_any_few_tasks_take_the_least_time(seed: int, draw_tasks: Draw) -> None:
    check_exact(seed, 1, {1: 8}, draw_tasks)


def least_of_all_starts(tasks: list[HardwareTask]) -> int:
    """The least makespan of all whole starts, without any argument on their order."""
    horizon = sum(task.ticks for task in tasks)
    return min(
        pattern.length
        for starts in product(range(horizon + 1), repeat=len(tasks))
        if not collisions(pattern := Pattern(tuple(tasks), starts))
    )


def test_orders_hold_an_optimum_of_all_starts() -> None:
    draw = random.Random(17)
    for _ in range(40):
        tasks = [
            HardwareTask(
                task.name, tuple((r, -(-ticks // 4)) for r, ticks in task.holds), task.after
            )
            for task in draw.choice([random_tasks, tasks_of_several])(draw, 3)
        ]
        horizon = sum(task.ticks for task in tasks)
        assert least_makespan(tasks, 1, horizon + 1) == least_of_all_starts(tasks)


def test_a_read_that_list_scheduling_takes_too_late() -> None:
    # The digital unit takes 1 between the reads of 5 and of 4. Longest path first, DRAM waits for
    # it: 5 + 1 + 4, then the other read of 4. Shortest: that read comes in between, 5 + 4 + 4.
    tasks = [
        HardwareTask("first", ((MEMORY, 5),)),
        HardwareTask("between", ((DIGITAL, 1),), (0,)),
        HardwareTask("last", ((MEMORY, 4),), (1,)),
        HardwareTask("other", ((MEMORY, 4),)),
    ]
    found = once(tasks)
    assert found.exact
    assert found.starts == (0, 5, 9, 5)
    assert found.length == 5 + 4 + 4


def test_one_resource_whose_tasks_can_be_interrupted() -> None:
    # From 0 to 2 the first; at 2 the one of the longer tail, to 5; then 4 more of the first.
    assert preempted_length([(0, 6, 0), (2, 3, 5)]) == max(5 + 5, 9)
    assert preempted_length([(0, 6, 0), (2, 3, 9)]) == 5 + 9
    # Nothing to do between 1 and 10.
    assert preempted_length([(10, 2, 1), (0, 1, 0)]) == 13
    assert preempted_length([]) == 0


def test_tasks_that_are_interrupted_take_no_longer_than_one_after_another() -> None:
    draw, shorter = random.Random(19), 0
    for _ in range(300):
        tasks = [
            (draw.randrange(20), draw.randrange(1, 9), draw.randrange(20))
            for _ in range(draw.randrange(1, 9))
        ]
        least, by_heads = preempted_length(tasks), length_by_heads(tasks)
        assert least <= by_heads
        shorter += least < by_heads
    assert 0 < shorter < 300


def test_a_search_that_takes_too_many_branches_claims_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(18)
    graphs = (tasks_of_several(draw, 7) for _ in range(1000))
    tasks = next(one for one in graphs if once(one).length > lower_bound(one, 1, 1))
    least = once(tasks)
    assert least.exact
    monkeypatch.setattr(schedule_search, "MOST_VISITS", 1)
    found = once(tasks)
    assert not found.exact
    assert found.length >= least.length
    monkeypatch.setattr(schedule_search, "MOST_SEARCHED", 1)
    assert once(tasks) == found


def test_the_bound_of_a_small_model_is_its_latency(small_bundle: Path) -> None:
    for one in bundle_cost(read_bundle(small_bundle), 1).schedules.values():
        assert one.pattern.exact
        assert one.bound_ns == known(one.makespan_ns) == known(one.latency_ns)
    assert lower_bound(one.pattern.tasks, 1, 1) / TICKS < one.bound_ns
