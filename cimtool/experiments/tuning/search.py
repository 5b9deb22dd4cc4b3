"""The search of tuning: bits come off where the error grows least for the cost that is saved.

The squared error of the logit that one bit fewer adds is measured once a width, at PROBE_BITS
fewer, and taken to grow fourfold a bit, as rounding errors do. The order of all moves follows from
that; whether the budget holds is measured on the compiled model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.experiments.sweeps.evaluator import Outcome
from cimtool.experiments.tuning.widths import (
    LOWEST_BITS,
    BitAssignment,
    CostName,
    LayerCosts,
    Width,
)

PROBE_BITS = 4
"""Bits that are taken off one width at a time to measure the error that this adds."""

STRIDE = 8
"""Moves that are made at once, at first, before the budget is checked."""

Evaluate = Callable[[BitAssignment], Outcome]


@dataclass(frozen=True)
class Move:
    """A width lowered from `was` bits to `now`."""

    width: Width
    was: int
    now: int

    def __str__(self) -> str:
        return f"{self.width}: {self.was} -> {self.now}"


@dataclass(frozen=True)
class Attempt:
    """Moves made at once: the bits after them, the compiled model's error, and whether to keep."""

    moves: tuple[Move, ...]
    bits: BitAssignment = field(repr=False)
    cost: Mapping[CostName, float] = field(repr=False)
    outcome: Outcome = field(repr=False)
    kept: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; moves as `layer key: was -> now`."""
        return {
            "moves": [str(move) for move in self.moves],
            "cost": dict(self.cost),
            "metrics": dict(self.outcome.metrics),
            "error": self.outcome.error,
            "kept": self.kept,
        }


@dataclass
class Search:
    """A search under way: its present bits, and the most bits of a width that broke the budget.

    `weights` are the squared errors of `probe`.
    """

    costs: LayerCosts
    order: tuple[CostName, CostName]
    weights: Mapping[Width, float]
    bits: BitAssignment
    refused: dict[Width, int] = field(default_factory=dict)

    def run(
        self, evaluate: Evaluate, within: Callable[[Outcome], bool], say: Say
    ) -> Sequence[Attempt]:
        """Lower widths as long as the compiled model is `within` the budget.

        Several moves at once to begin with; half of them are tried where they break the budget,
        twice as many where they keep it, and a single one that breaks it is not tried again.
        """
        attempts, stride = list[Attempt](), STRIDE
        while True:
            moves, bits = self.ahead(stride)
            if not moves:
                return attempts
            outcome = evaluate(bits)
            kept = within(outcome)
            attempts.append(Attempt(moves, bits, self.costs.cost(bits), outcome, kept))
            kept_or_not = "kept" if kept else "not kept"
            say(PartDone(f"{len(moves)} moves, {len(attempts)}. check: {kept_or_not}"))
            if kept:
                self.bits, stride = bits, min(2 * len(moves), STRIDE)
            elif len(moves) == 1:
                self.refused[moves[0].width] = moves[0].now
            else:
                stride = len(moves) // 2

    def ahead(self, count: int) -> tuple[tuple[Move, ...], BitAssignment]:
        """The next moves, at most `count`, and the bits after them."""
        bits, moves = dict(self.bits), list[Move]()
        while len(moves) < count:
            move = self._best(bits)
            if move is None:
                break
            bits[move.width] = move.now
            moves.append(move)
        return tuple(moves), bits

    def _best(self, bits: BitAssignment) -> Move | None:
        """The move of the least added error a cost saved; of the first cost, if any saves it."""
        before = self.costs.cost(bits)
        for cost in self.order:
            found = [one for width in bits for one in self._cheaper(width, cost, bits, before)]
            if found:
                return min(found, key=lambda one: (one[0], one[1].width))[1]
        return None

    def _cheaper(
        self, width: Width, cost: CostName, bits: BitAssignment, before: Mapping[CostName, float]
    ) -> Iterator[tuple[float, Move]]:
        """The move to the most bits that cost less than now, with its error added by cost saved."""
        refused = self.refused.get(width, -1)
        for now in self.costs.below(width, bits[width]):
            if now <= refused:
                return
            saved = before[cost] - self.costs.cost({**bits, width: now})[cost]
            if saved > 0:
                added = self.weights[width] * (4.0**-now - 4.0 ** -bits[width])
                yield added / saved, Move(width, bits[width], now)
                return


def probe(start: BitAssignment, evaluate: Evaluate, say: Say) -> dict[Width, float]:
    """The mean squared error of the logit that each width adds, times 4 to its bits.

    Without the mean difference of each query, which changes no rank.

    Never below a share of the largest, so that a width that seems free is not lowered without end.
    """
    least = evaluate(start).metrics["centred_rmse"] ** 2
    added, countdown = {}, Countdown(say)
    for count, (width, bits) in enumerate(start.items(), 1):
        low = max(bits - PROBE_BITS, LOWEST_BITS)
        outcome = evaluate({**start, width: low})
        said = PartDone(f"probe {count} of {len(start)}: {width} = {low}")
        countdown.tell(said, count, len(start))
        error = outcome.metrics["centred_rmse"] ** 2 - least if outcome.error is None else 0.0
        added[width] = error / (4.0**-low - 4.0**-bits) if low < bits else 0.0
    floor = max(added.values()) / 2**20
    return {width: max(value, floor) for width, value in added.items()}
