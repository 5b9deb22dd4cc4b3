"""The schedule of a batch: latency of one item, time of all, throughput, energy, occupancy.

Items follow one another if nothing is read from DRAM for them. Otherwise a batch goes through the
chip in waves, of as many items as the buffer holds, and each wave shares its loads and its reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.costs.schedule import (
    TICKS,
    Pattern,
    busy,
    in_turn,
    lower_bound,
    once,
    repeated,
    shortest,
)
from cimtool.costs.schedule_tasks import End, GraphWork
from cimtool.costs.totals import Quantity

PARTS = (2, 1, 4, 8)
"""Parts of the free arrays that loads go to in turn; two are the double buffer."""

GAIN = 0.99
"""More or fewer parts are taken if they reach this share of the time."""

ENDS: tuple[End, ...] = ("value", "low", "high")


@dataclass(frozen=True)
class Occupancy:
    """One part of the hardware: the time that an item holds it, and the share of the interval."""

    part: str
    item_ns: float
    share: float


@dataclass(frozen=True)
class BatchSchedule:
    """A batch of items of one kind, encoded or scored, on the target.

    It goes through in `waves`. `latency_ns` is that of a single item, `makespan_ns` of the whole
    batch, and no schedule of the same loads is shorter than `bound_ns`. `per_second` are the items
    of batches that follow one another; None if no time is known. `energy_pj` is that of an item,
    its loads shared. `pattern` is drawn `repeats` times.
    """

    batch: int
    waves: int
    latency_ns: Quantity
    makespan_ns: Quantity
    bound_ns: float
    per_second: Quantity
    energy_pj: Quantity
    occupancy: tuple[Occupancy, ...]
    pattern: Pattern
    repeats: int

    @property
    def bottleneck(self) -> str | None:
        """The part that is held longest; None if no time is known."""
        longest = max(self.occupancy, key=lambda one: one.item_ns, default=None)
        return None if longest is None else longest.part

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

    Its parts are missing here too, and nothing is known if nothing of the sum is.
    """
    if serial.value is None:
        return serial
    return spread(lambda end: alone(work, 1, end).length / TICKS, serial.missing)


def spread(time: Callable[[End], float], missing: tuple[str, ...]) -> Quantity:
    """A result of schedules by the middle times, and by those at either end."""
    found = [time("value"), time("low"), time("high")]
    return Quantity(found[0], missing, min(found), max(found))


def alone(work: GraphWork, wave: int, end: End = "value") -> Pattern:
    """The tasks of one graph for a wave, through as many parts of the arrays as end first.

    By the middle times.
    """
    few = [n for n in PARTS if n <= work.plan.streaming] if work.streamed else [1]
    found = {parts: once(work.tasks(wave, parts)) for parts in few}
    best = few[0]
    for parts in few[1:]:
        if found[parts].length < GAIN * found[best].length:
            best = parts
    return found[best] if end == "value" else once(work.tasks(wave, best, end))


def waves_of(works: Sequence[GraphWork], batch: int) -> int:
    """The number of waves in which a batch goes through: of one item if nothing is shared."""
    if not any(work.shares for work in works):
        return batch
    buffer = works[0].rates.prices.buffer_bits
    fitting = max(1, buffer // max(work.item_bits for work in works))
    return -(-batch // fitting)


@dataclass(frozen=True)
class ItemCost:
    """Latency and energy of one item by itself; `shared_pj` of it is for a whole wave."""

    latency_ns: Quantity
    energy_pj: Quantity
    shared_pj: Quantity


def scheduled(works: Sequence[GraphWork], batch: int, item: ItemCost) -> BatchSchedule:
    """Schedule a batch of items that walk through graphs one after another."""
    waves = waves_of(works, batch)
    wave, missing = -(-batch // waves), item.latency_ns.missing
    singles = {end: in_turn([alone(work, wave, end) for work in works]) for end in ENDS}
    steady = {end: next(repeated(one), None) for end, one in singles.items()}
    shown = {end: shortest(one, waves) for end, one in singles.items()}
    best, repeats = shown["value"]
    held = {part: time for part, time in busy(singles["value"].tasks).items() if time}
    intervals = {end: 0 if one is None else one.interval for end, one in steady.items()}
    makespan = spread(lambda end: shown[end][0].makespan(shown[end][1]) / TICKS, missing)
    rate = Quantity(None, missing)
    if held and not missing:
        rate = spread(lambda end: wave * 1e9 * TICKS / intervals[end], ())
    return BatchSchedule(
        batch=batch,
        waves=waves,
        latency_ns=item.latency_ns,
        makespan_ns=makespan if held else Quantity(None, missing),
        bound_ns=lower_bound(singles["value"].tasks, batch, waves, wave) / TICKS,
        per_second=rate,
        energy_pj=item.energy_pj + item.shared_pj.times(waves / batch - 1),
        occupancy=tuple(
            Occupancy(part, time / TICKS / wave, time / intervals["value"])
            for part, time in held.items()
        ),
        pattern=best,
        repeats=repeats,
    )
