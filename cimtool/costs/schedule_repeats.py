"""Patterns of one item that are repeated for many, at the shortest interval that fits.

For many items the pattern of one is repeated at a constant interval (modulo scheduling), so that a
batch of any size can be scheduled; a few items are also listed task by task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cimtool.costs.schedule import (
    Pattern,
    Resource,
    busy,
    by_urgency,
    lower_bound,
    placed_tasks,
    tails,
)
from cimtool.costs.schedule_once import once

MOST_LISTED = 1_000
"""Tasks of a batch at most that are listed one by one, beside a pattern that is repeated."""

PUSHES = 300
"""Steps at most by which an interval grows until a pattern does not collide with itself."""

STEPS = 16
"""Intervals that are tried between the busiest resource's time and the latency of one item."""


def clear_interval(pattern: Pattern) -> int:
    """An interval at which the pattern as it stands does not collide with its repetitions.

    It begins with the time of the busiest resource, and grows by what the repetitions overlap,
    until they do not or, after PUSHES, to the length of the pattern.
    """
    used = _runs(pattern)
    interval = max([1, *busy(pattern.tasks).values(), *(r[-1][1] - r[0][0] for r in used[1])])
    lines = [*used[0], *([(r[0][0], r[-1][1])] for r in used[1])]
    for _ in range(PUSHES):
        wanted = interval
        for turn in range(1, -(-pattern.length // interval)):
            for runs in lines:
                for end, start in _overlaps(runs, turn * interval):
                    wanted = max(wanted, -(-(end - start) // turn))
        if wanted == interval:
            return interval
        interval = wanted
    return max(interval, pattern.length)


def _runs(pattern: Pattern) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """The times at which each resource is held, and those at which each buffer is in use."""
    found: tuple[dict[Resource, list[tuple[int, int]]], ...] = ({}, {})
    for start, task in zip(pattern.starts, pattern.tasks, strict=True):
        for resource, ticks in task.holds:
            if ticks:
                found[0].setdefault(resource, []).append((start, start + ticks))
        if task.buffer is not None:
            found[1].setdefault(task.buffer, []).append((start, start + task.ticks))
    merged: list[list[list[tuple[int, int]]]] = []
    for kind in found:
        merged.append([])
        for spans in kind.values():
            runs: list[tuple[int, int]] = []
            for start, end in sorted(spans):
                if runs and start <= runs[-1][1]:
                    runs[-1] = runs[-1][0], max(end, runs[-1][1])
                else:
                    runs.append((start, end))
            merged[-1].append(runs)
    return merged[0], merged[1]


def _overlaps(runs: Sequence[tuple[int, int]], shift: int) -> Iterator[tuple[int, int]]:
    """The end of each run and the start of a run that begins `shift` later before that end."""
    index = 0
    for start, end in runs:
        while index < len(runs) and runs[index][1] + shift <= start:
            index += 1
        if index < len(runs) and runs[index][0] + shift < end:
            yield end, runs[index][0]


def repeated(single: Pattern) -> Iterator[Pattern]:
    """Patterns of the same tasks that can be repeated, the shortest interval found first.

    The interval is at least the time of the busiest resource. If each task holds one resource, the
    first pattern has that interval, so no throughput is higher. With buffers, only the pattern as
    it stands is repeated.
    """
    tasks = single.tasks
    order, least, most = by_urgency(tasks), max(busy(tasks).values(), default=0), single.length
    if not most:
        return
    clear = min(clear_interval(single), most)
    if not any(task.buffer for task in tasks):
        for step in range(STEPS):
            interval = max(least + (most - least) * step // STEPS, 1)
            if interval >= clear:
                break
            found = placed_tasks(tasks, order, interval)
            found = found or placed_tasks(tasks, order, interval, packed=True)
            if found is not None:
                yield found
    yield replace(single, interval=clear)


def shortest(single: Pattern, waves: int) -> tuple[Pattern, int]:
    """The pattern with which so many waves end first, and the number of its repetitions.

    A few waves are also listed task by task, as one pattern, if no repetition is as short as any
    schedule can be; `single` is repeated otherwise. Of a few tasks without buffers the list is
    exact, and so is the time then.
    """
    tasks = single.tasks
    if waves == 1:
        return single, 1
    best, path = replace(single, interval=single.length), max(tails(tasks), default=0)
    for found in repeated(single):
        if path + (waves - 1) * found.interval >= best.makespan(waves):
            break
        best = min(best, found, key=lambda one: one.makespan(waves))
    if best.makespan(waves) == lower_bound(tasks, waves, waves):
        return best, waves
    if len(tasks) * waves <= MOST_LISTED and not any(task.buffer for task in tasks):
        listed = once([
            replace(task, after=tuple(first + before for before in task.after))
            for first in range(0, len(tasks) * waves, len(tasks))
            for task in tasks
        ])  # fmt: skip
        if listed.exact or listed.length < best.makespan(waves):
            return listed, 1
    return best, waves
