"""The schedule of a batch: latency of one item, time of all, throughput, energy, occupancy.

Items follow one another if nothing is read from DRAM for them. Otherwise a batch goes through the
chip in waves, of as many items as the buffer holds, and each wave shares its loads and its reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import islice
from operator import add
from typing import Any, NamedTuple

from cimtool.costs.schedule import (
    TICKS,
    Pattern,
    Resource,
    busy,
    chained,
    in_turn,
    lower_bound,
)
from cimtool.costs.schedule_repeats import repeated, shortest
from cimtool.costs.schedule_tasks import BESIDE, End, GraphWork, WaveKey
from cimtool.costs.totals import Cost, PartShare, Quantity, longest

PARTS = (2, 1, 4, 8)
"""Parts of the free arrays that loads go to in turn; two are the double buffer."""

GROUPS = 8
"""Groups of a wave's items that overlap."""

GAIN = 0.99
"""More or fewer parts are taken if they reach this share of the time."""

ENDS: tuple[End, ...] = ("value", "low", "high")


@dataclass(frozen=True)
class Occupancy:
    """Parts of the hardware of one kind: the time that an item holds the one that is held longest.

    `share` is that of the interval between items, in the mean over the parts.
    """

    part: str
    number: int
    item_ns: float
    share: float


@dataclass(frozen=True)
class BatchSchedule:
    """A batch of items of one kind, encoded or scored, on the target.

    It goes through in `waves`. `latency_ns` is that of a single item, `makespan_ns` of the whole
    batch, and no schedule of the same loads is shorter than `bound_ns`: the same number if the
    schedule is proved to be the shortest. `per_second` are the items of batches that follow one
    another. It is None, and there is no `occupancy`, if a time is not
    known. `item` is what an item costs, its loads shared. `pattern` is drawn `repeats` times.
    """

    batch: int
    waves: int
    latency_ns: Quantity
    makespan_ns: Quantity
    bound_ns: float
    per_second: Quantity
    item: Cost
    occupancy: tuple[Occupancy, ...]
    pattern: Pattern
    repeats: int

    @property
    def energy_pj(self) -> Quantity:
        """The energy of an item, its loads shared."""
        return self.item.energy_pj

    @property
    def bottleneck(self) -> str | None:
        """The part that is held longest; None if a time is not known."""
        longest = max(self.occupancy, key=lambda one: one.item_ns, default=None)
        return None if longest is None else longest.part

    @property
    def shares(self) -> bool:
        """Items can share loads and reads of DRAM."""
        return any(task.shared for task in self.pattern.tasks)

    @property
    def speedup(self) -> float:
        """The throughput as a multiple of one item after another; 0 if it is not known."""
        return (self.per_second.value or 0.0) * (self.latency_ns.value or 0.0) / 1e9

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, without the tasks."""
        names = ("latency_ns", "makespan_ns", "per_second", "energy_pj")
        return {
            "batch": self.batch,
            "waves": self.waves,
            "bound_ns": self.bound_ns,
            "bottleneck": self.bottleneck,
            **{name: getattr(self, name).to_json() for name in names},
            "occupancy": [vars(one) for one in self.occupancy],
        }


def item_latency(work: GraphWork, serial: Quantity) -> Quantity:
    """The latency of one walk through a graph; `serial` is the sum of the times of its tasks.

    Its parts are missing here too, and nothing is known if nothing of the sum is. A graph that
    needs the digital unit alone never waits for anything else: the sum is its latency.
    """
    if serial.value is None or work.digital_alone:
        return serial
    key = key_of(work, 1)
    return spread(lambda end: work.pattern(key._replace(end=end)).length / TICKS, serial.missing)


def spread(time: Callable[[End], float], missing: tuple[str, ...]) -> Quantity:
    """A result of schedules by the middle times, and by those at either end."""
    found = [time("value"), time("low"), time("high")]
    return Quantity(found[0], missing, min(found), max(found))


def key_of(work: GraphWork, wave: int, length: Callable[[WaveKey], float] | None = None) -> WaveKey:
    """A wave of items as a block, with as many parts of the free arrays as it ends first with.

    `length` gives the ticks that a wave takes; None: those of its schedule.
    """
    length = length or (lambda key: work.pattern(key).length)
    best = work.fitted(WaveKey(wave, PARTS[0]))
    if not work.streamed:
        return best
    for parts in PARTS[1:]:
        least = length(best)
        if GAIN * least <= work.read_ticks:
            break  # no number of parts makes it as much shorter
        key = work.fitted(WaveKey(wave, parts))
        if length(key) < GAIN * least:
            best = key
    return best


def waves_of(works: Sequence[GraphWork], batch: int) -> int:
    """The number of waves in which a batch goes through: of one item if nothing is shared."""
    if not any(work.shares for work in works):
        return batch
    buffer = works[0].rates.prices.buffer_bits
    return waves_of_bits(batch, max(work.item_bits for work in works), buffer)


def waves_of_bits(batch: int, bits: int, buffer: int) -> int:
    """The number of waves of as many items of so many bits as the buffer holds."""
    return -(-batch // max(1, buffer // bits))


@dataclass(frozen=True)
class ItemCost:
    """The cost of one item by itself, and of it what is `shared` by a whole wave."""

    alone: Cost
    shared: Cost

    def in_batch(self, waves_of_item: float, time_of_item: float) -> Cost:
        """The cost of an item of a batch, by shares of its waves and of its time alone.

        What is shared is taken once a wave, and leakage for the time that the item has.
        """
        parts = dict(self.alone.parts)
        for name, one in self.shared.parts.items():
            saved = one.energy.times(waves_of_item - 1)
            if saved.value:
                parts[name] = PartShare(parts[name].energy + saved)
        if "leakage" in parts:
            parts["leakage"] = PartShare(parts["leakage"].energy.times(time_of_item))
        return replace(self.alone, parts=parts)


def share_of_time(makespan: Quantity, batch: int, alone: Quantity) -> float:
    """The time of an item of a batch as a share of that of one by itself."""
    if batch > 1 and makespan.value and alone.value:
        return makespan.value / (batch * alone.value)
    return 1.0


def scheduled(works: Sequence[GraphWork], batch: int, item: ItemCost) -> BatchSchedule:
    """Schedule a batch of items that walk through graphs one after another."""
    waves, alone = waves_of(works, batch), item.alone.latency_ns
    wave, missing = -(-batch // waves), alone.missing
    found = {end: _best(works, wave, waves, end) for end in ENDS}
    middle = found["value"]
    makespan = spread(lambda end: found[end].makespan / TICKS, missing)
    rate = Quantity(None, missing)
    if middle.held and not missing:
        rate = spread(lambda end: wave * 1e9 * TICKS / found[end].interval, ())
    of_one = [work.tasks(key_of(work, wave)._replace(items=1)) for work in works]
    bound = lower_bound(chained(of_one), batch, waves)
    if wave == 1 and middle.repeats == 1 and middle.pattern.exact:
        bound = middle.makespan
    return BatchSchedule(
        batch=batch,
        waves=waves,
        latency_ns=alone,
        makespan_ns=makespan if middle.held else Quantity(None, missing),
        bound_ns=bound / TICKS,
        per_second=rate,
        item=item.in_batch(waves / batch, share_of_time(makespan, batch, alone)),
        occupancy=() if missing else occupancy(middle.held, wave, middle.interval),
        pattern=middle.pattern,
        repeats=middle.repeats,
    )


@dataclass(frozen=True, eq=False)
class Walked:
    """One walk through a graph: its cost, and if it is asked for, what a batch needs beside."""

    cost: Cost
    of_batch: Callable[[], tuple[GraphWork, Cost]]

    @cached_property
    def _found(self) -> tuple[GraphWork, Cost]:
        return self.of_batch()

    @property
    def work(self) -> GraphWork:
        """The tasks of the walk."""
        return self._found[0]

    @property
    def shared(self) -> Cost:
        """The part of the cost that a wave shares."""
        return self._found[1]


class BatchOf(NamedTuple):
    """The cost of one item of a batch, and the time of all."""

    item: Cost
    makespan_ns: Quantity


def batch_of(walks: Sequence[Walked], batch: int, makespan: Quantity | None = None) -> BatchOf:
    """A batch of items that walk through graphs one after another, by its schedule.

    The time of all is `makespan` if that is known.
    """
    alone = reduce(add, (one.cost for one in walks))
    if batch == 1:
        return BatchOf(alone, alone.latency_ns)
    item = ItemCost(alone, reduce(add, (one.shared for one in walks)))
    works = [one.work for one in walks]
    waves = waves_of(works, batch)
    if makespan is None:
        makespan = _makespan(works, -(-batch // waves), waves, alone.latency_ns.missing)
    share = share_of_time(makespan, batch, alone.latency_ns)
    return BatchOf(item.in_batch(waves / batch, share), makespan)


def _makespan(
    works: Sequence[GraphWork], wave: int, waves: int, missing: tuple[str, ...]
) -> Quantity:
    """The time of so many waves, as `scheduled` has it."""

    def time(end: End) -> float:
        if waves == 1:
            ways = _patterns(works, wave, end)
            return min(sum(one.length for one in patterns) for patterns in ways) / TICKS
        pattern, repeats = _first_to_end(_singles(works, wave, end), waves)
        return pattern.makespan(repeats) / TICKS

    found = spread(time, missing)
    return found if found.value else Quantity(None, missing)


def digital_batch(alone: Cost, batch: int, waves: int) -> BatchOf:
    """A batch of items that need the digital unit alone, beside a read of DRAM once a wave."""
    if batch == 1:
        return BatchOf(alone, alone.latency_ns)
    digital, memory = (alone.parts.get(name, PartShare()) for name in ("digital", "memory"))
    makespan = longest((digital.time.times(batch), memory.time.times(waves)))
    item = ItemCost(alone, Cost(parts={"memory": memory}))
    share = share_of_time(makespan, batch, alone.latency_ns)
    return BatchOf(item.in_batch(waves / batch, share), makespan)


class _Found(NamedTuple):
    """The pattern with which a batch ends first, the least interval, and what a wave holds."""

    pattern: Pattern
    repeats: int
    interval: int
    held: Mapping[Resource, int]

    @property
    def makespan(self) -> int:
        return self.pattern.makespan(self.repeats)


def _patterns(works: Sequence[GraphWork], wave: int, end: End) -> list[list[Pattern]]:
    """Schedules of a wave in each graph: as a block, and in groups of items that overlap."""
    found: dict[tuple[WaveKey, ...], list[Pattern]] = {}
    blocks = [key_of(work, wave)._replace(end=end) for work in works]
    for groups in (1, GROUPS):
        both = zip(works, blocks, strict=True)
        keys = tuple(work.fitted(key._replace(groups=groups)) for work, key in both)
        if keys not in found:
            found[keys] = [work.pattern(key) for work, key in zip(works, keys, strict=True)]
    return list(found.values())


def _singles(works: Sequence[GraphWork], wave: int, end: End) -> list[Pattern]:
    """Schedules of a wave through all graphs, one after another."""
    return [in_turn(patterns) for patterns in _patterns(works, wave, end)]


def _first_to_end(singles: Sequence[Pattern], waves: int) -> tuple[Pattern, int]:
    """The pattern with which so many waves end first, and the number of its repetitions."""
    found = (shortest(single, waves) for single in singles)
    return min(found, key=lambda one: one[0].makespan(one[1]))


def _best(works: Sequence[GraphWork], wave: int, waves: int, end: End) -> _Found:
    """The pattern with which a batch ends first, and the least interval of its waves."""
    singles = _singles(works, wave, end)
    pattern, repeats = _first_to_end(singles, waves)
    steady = [one for single in singles for one in islice(repeated(single), 1)]
    least = min(steady, key=lambda one: one.interval, default=None)
    if least is None:
        return _Found(pattern, repeats, 1, {})
    held = {one: time for one, time in busy(least.tasks).items() if time}
    return _Found(pattern, repeats, least.interval, held)


def occupancy(held: Mapping[Resource, int], wave: int, interval: int) -> tuple[Occupancy, ...]:
    """The occupancy of each kind of resource, in the mean over those of one kind."""
    kinds: dict[str, list[int]] = {}
    for resource, time in held.items():
        if resource.kind != BESIDE:
            kinds.setdefault(resource.kind, []).append(time)
    return tuple(
        Occupancy(kind, len(times), max(times) / TICKS / wave, sum(times) / len(times) / interval)
        for kind, times in kinds.items()
    )
