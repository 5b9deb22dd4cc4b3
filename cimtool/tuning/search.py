"""The walk of tuning: bits come off where the error grows least for what is saved.

What one bit fewer adds to the squared error of the logit is measured once a knob, at PROBE_BITS
fewer, and taken to grow fourfold a bit, as rounding errors do. The order of all moves follows from
that; whether the budget holds is measured on the compiled model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cimtool.sweeps.bench import Outcome
from cimtool.tuning.knobs import LOWEST_BITS, Bits, CostName, Hardware, Knob

PROBE_BITS = 4
"""Bits that are taken off one knob at a time to see what it costs."""

STRIDE = 8
"""Moves that are made at once, at first, before the budget is checked."""

Measure = Callable[[Bits], Outcome]


@dataclass(frozen=True)
class Move:
    """A knob turned down, from so many bits to so many."""

    knob: Knob
    was: int
    now: int


@dataclass(frozen=True)
class Step:
    """Moves that were tried at once: what the compiled model then errs, and whether it was kept."""

    moves: tuple[Move, ...]
    cost: Mapping[CostName, float]
    metrics: Mapping[str, float]
    error: str | None
    kept: bool


@dataclass
class Walk:
    """A walk under way: the bits it has come to, and the most bits of a knob that did not hold."""

    hardware: Hardware
    order: tuple[CostName, CostName]
    weights: Mapping[Knob, float]
    bits: dict[Knob, int]
    refused: dict[Knob, int] = field(default_factory=dict)

    def ahead(self, count: int) -> tuple[list[Move], dict[Knob, int]]:
        """The next moves, at most `count`, and the bits after them."""
        bits, moves = dict(self.bits), list[Move]()
        while len(moves) < count:
            move = self._best(bits)
            if move is None:
                break
            bits[move.knob] = move.now
            moves.append(move)
        return moves, bits

    def _best(self, bits: dict[Knob, int]) -> Move | None:
        """The move whose added error for what it saves is least; of the first cost, if any does."""
        before = self.hardware.cost(bits)
        for cost in self.order:
            found: list[tuple[float, Move]] = []
            for knob in bits:
                found += self._cheaper(knob, cost, bits, before)
            if found:
                return min(found, key=lambda one: (one[0], one[1].knob))[1]
        return None

    def _cheaper(
        self, knob: Knob, cost: CostName, bits: Bits, before: Mapping[CostName, float]
    ) -> Iterator[tuple[float, Move]]:
        """The knob turned to the most bits that cost less than now, with error added by saving."""
        least = max(LOWEST_BITS, self.refused.get(knob, 0) + 1)
        for now in range(bits[knob] - 1, least - 1, -1):
            saved = before[cost] - self.hardware.cost({**bits, knob: now})[cost]
            if saved > 0:
                added = self.weights[knob] * (4.0**-now - 4.0 ** -bits[knob])
                yield added / saved, Move(knob, bits[knob], now)
                return


def probe(start: Bits, measure: Measure, say: Callable[[str], None]) -> dict[Knob, float]:
    """What each knob adds to the mean squared error of the logit, times 4 to its bits.

    Never below a share of the largest, so that what looks free is not turned down without end.
    """
    least = measure(start).metrics["logit_rmse"] ** 2
    added = {}
    for count, (knob, bits) in enumerate(start.items(), 1):
        low = max(bits - PROBE_BITS, LOWEST_BITS)
        say(f"probe {count} of {len(start)}: {knob.name} = {low}")
        outcome = measure({**start, knob: low})
        error = outcome.metrics["logit_rmse"] ** 2 - least if outcome.error is None else 0.0
        added[knob] = error / (4.0**-low - 4.0**-bits) if low < bits else 0.0
    floor = max(added.values()) / 2**20
    return {knob: max(value, floor) for knob, value in added.items()}


def walk(
    walking: Walk, measure: Measure, holds: Callable[[Outcome], bool], say: Callable[[str], None]
) -> Sequence[Step]:
    """Turn knobs down as long as the compiled model `holds`; `walking.bits` are then what is left.

    Several moves at once to begin with; where they do not hold half of them are tried, where they
    do twice as many, and what a single one comes to that does not hold is not tried again.
    """
    steps, stride = list[Step](), STRIDE
    while True:
        moves, bits = walking.ahead(stride)
        if not moves:
            return steps
        outcome = measure(bits)
        kept = holds(outcome)
        cost = walking.hardware.cost(bits)
        steps.append(Step(tuple(moves), cost, outcome.metrics, outcome.error, kept))
        say(f"{len(moves)} moves, {len(steps)}. check: {'kept' if kept else 'not kept'}")
        if kept:
            walking.bits, stride = bits, min(2 * len(moves), STRIDE)
        elif len(moves) == 1:
            walking.refused[moves[0].knob] = moves[0].now
        else:
            stride = len(moves) // 2
