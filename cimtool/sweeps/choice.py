"""Which points are worth having: the Pareto fronts, and the cheapest one within a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cimtool.errors import CimError
from cimtool.named import unknown
from cimtool.reference.queries import LIMITS
from cimtool.sweeps.bench import Outcome

ENERGY = "energy_pj"
COSTS = {
    ENERGY: "energy a query",
    "conversions": "conversions a query",
    "arrays": "arrays",
}
"""What a point may cost, the most telling first."""

DRIFT = "logit_rmse"
"""The drift that is held against costs."""


def comparable(outcomes: Sequence[Outcome], cost: str) -> list[int]:
    """Indices of the points whose `cost` is known and says the same thing.

    Energies are lower bounds where a target lacks figures, and one without its converters is no
    saving: only those are compared that lack the same parts, the fewest that any point lacks.
    """
    known = [
        index
        for index, one in enumerate(outcomes)
        if one.error is None and one.cost[cost] is not None
    ]
    if cost != ENERGY or not known:
        return known
    missing = {index: outcomes[index].cost["energy_missing"] for index in known}
    fewest = min(missing.values(), key=lambda parts: (bool(parts), parts.count(";"), parts))
    return [index for index in known if missing[index] == fewest]


def front(outcomes: Sequence[Outcome], cost: str) -> list[int]:
    """Indices of the comparable points that no other beats in both drift and `cost`.

    Cheapest first; points that are the same in both are all there.
    """
    known = [
        (outcomes[index].cost[cost], outcomes[index].metrics[DRIFT], index)
        for index in comparable(outcomes, cost)
    ]
    found: list[int] = []
    least, at = math.inf, math.inf
    for price, drift, index in sorted(known):
        if drift < least or (drift == least and price == at):
            found.append(index)
            least, at = drift, price
    return found


@dataclass(frozen=True)
class Choice:
    """The cheapest point within a budget: its index, by which of COSTS, and among how many."""

    index: int
    cost: str
    within: int


def parse_budget(texts: Sequence[str]) -> dict[str, float]:
    """Read `METRIC=VALUE` of each `--budget`; CimError for an unknown metric or no number."""
    budget: dict[str, float] = {}
    for text in texts:
        metric, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise CimError(f"--budget {text}: expected METRIC=VALUE, such as r1_loss=0.01")
        if metric in budget:
            raise CimError(f"--budget {metric} is given twice; expected one value")
        try:
            budget[metric] = float(value)
        except ValueError:
            raise CimError(f'--budget {metric}: "{value}" is no number; expected one') from None
    check_budget(budget)
    return budget


def check_budget(budget: Mapping[str, float]) -> None:
    """Raise CimError for an unknown metric, with the nearest, and for a limit that is none."""
    for metric, limit in budget.items():
        if metric not in LIMITS:
            raise unknown("--budget metric", metric, LIMITS)
        if not math.isfinite(limit):
            raise CimError(f"--budget {metric}: {limit} is not finite; expected a finite number")


def cheapest(outcomes: Sequence[Outcome], budget: Mapping[str, float]) -> Choice | None:
    """The cheapest point whose metrics are all within `budget`; None where there is none.

    By energy where those of all such points are comparable, else by conversions where all convert,
    else by arrays.
    Of points that cost the same, the one that drifts least.
    """
    within = [
        index
        for index, one in enumerate(outcomes)
        if one.error is None and all(one.metrics[name] <= most for name, most in budget.items())
    ]
    if not within:
        return None
    few = [outcomes[index] for index in within]
    cost = next(name for name in COSTS if _tells(few, name))
    best = min(within, key=lambda i: (outcomes[i].cost[cost], outcomes[i].metrics[DRIFT], i))
    return Choice(best, cost, len(within))


def _tells(outcomes: Sequence[Outcome], cost: str) -> bool:
    """Whether a cost can rank all points: arrays that add digitally convert nothing, at a price."""
    all_known = len(comparable(outcomes, cost)) == len(outcomes)
    return all_known and all(one.cost[cost] for one in outcomes)
