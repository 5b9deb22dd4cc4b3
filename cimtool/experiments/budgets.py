"""Budgets of drift, the Pareto fronts, and the cheapest point within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.dies import yields_of
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.point_cost import known_costs
from cimtool.reference.limits import check_metrics, within

ENERGY = "energy_pj"
COSTS = {ENERGY: "energy per query", "conversions": "conversions per query", "arrays": "arrays"}
"""Costs of a point, the most telling first."""

WORK = "score_multiplications"
SCORE_COSTS = COSTS | {WORK: "multiplications of a score"}
"""Costs of points whose scores differ; multiplications are comparable on all hardware."""

OBJECTIVE, ORIGIN = "objective", "objective_origin"
"""The objective of a point, relative to the first one's, and what it must share to be compared."""

SHORT_COSTS = {
    OBJECTIVE: "objective",
    ENERGY: "energy",
    "conversions": "conversions",
    "arrays": "arrays",
    WORK: "multiplications",
}
"""SCORE_COSTS in a cell of a table."""

DRIFT = "centred_rmse"
"""The drift that is compared with costs: the error that can change a rank."""


def comparable(outcomes: Sequence[Outcome], cost: str, units: Sequence[str]) -> list[list[int]]:
    """Indices of the points whose `cost` is known, in groups that may be compared.

    If a part has no price, the energy is a lower bound, and a missing converter is not a saving. So
    only points that lack the same parts are kept: the fewest that any point lacks. Energies from a
    target's figures are not compared with energies from reference prices. Arrays and conversions
    are compared only within the same `units`, because other hardware counts differently. For an
    objective both hold, if energies or counts take part in it.
    """
    done = [index for index, one in enumerate(outcomes) if one.error is None]
    known = [index for index in done if outcomes[index].cost[cost] is not None]
    if not known or cost == WORK:
        return [known] if known else []
    if cost == OBJECTIVE:
        origins = dict.fromkeys(outcomes[index].cost[ORIGIN] for index in known)
        return [[i for i in known if outcomes[i].cost[ORIGIN] == origin] for origin in origins]
    if cost != ENERGY:
        names = dict.fromkeys(units[index] for index in known)
        return [[index for index in known if units[index] == name] for name in names]
    missing = {index: outcomes[index].cost["energy_missing"] for index in known}
    fewest = min(missing.values(), key=lambda parts: (bool(parts), parts.count(";"), parts))
    whole = [index for index in known if missing[index] == fewest]
    bases = dict.fromkeys(outcomes[index].cost["energy_basis"] for index in whole)
    return [[i for i in whole if outcomes[i].cost["energy_basis"] == basis] for basis in bases]


def with_objective(
    outcomes: Sequence[Outcome], objective: CostObjective, units: Sequence[str]
) -> list[Outcome]:
    """The outcomes with their OBJECTIVE, a multiple of that of the first that has all its costs.

    Points that lack a part of a cost have none.
    """
    known = [known_costs(one.cost) for one in outcomes]
    first = next((one for one in known if objective.weights.keys() <= one.keys()), {})
    objective = replace(objective, first=first)
    total = sum(objective.weights.values())
    found = []
    for one, costs, unit in zip(outcomes, known, units, strict=True):
        if one.error is not None:
            found.append(one)
            continue
        own: dict[str, Any] = {OBJECTIVE: None, ORIGIN: None}
        if objective.weights.keys() <= costs.keys():
            of_energy = one.cost["energy_basis"] if objective.of_energy else None
            of_counts = unit if objective.of_counts else None
            own = {OBJECTIVE: objective.weighted(costs) / total}
            own[ORIGIN] = "; ".join(filter(None, (of_energy, of_counts)))
        found.append(replace(one, cost={**one.cost, **own}))
    return found


def drifting(outcomes: Sequence[Outcome], cost: str, units: Sequence[str]) -> list[list[int]]:
    """The `comparable` groups of the points that have a drift."""
    groups = comparable(outcomes, cost, units)
    kept = ([index for index in group if DRIFT in outcomes[index].metrics] for group in groups)
    return [group for group in kept if group]


def front(outcomes: Sequence[Outcome], cost: str, units: Sequence[str]) -> list[int]:
    """Indices of the points that no comparable point beats in both drift and `cost`.

    Each group starts with the cheapest; points that are equal in both are all included. A score
    that is not a logit has no drift, so its points are left out.
    """
    found: list[int] = []
    for group in drifting(outcomes, cost, units):
        known = [(outcomes[i].cost[cost], outcomes[i].metrics[DRIFT], i) for i in group]
        least, at = math.inf, math.inf
        for price, drift, index in sorted(known):
            if drift < least or (drift == least and price == at):
                found.append(index)
                least, at = drift, price
    return found


def incomparable(outcomes: Sequence[Outcome], units: Sequence[str]) -> set[int]:
    """Indices of the points whose energy is known, but lacks more parts than other energies."""
    within = {index for group in comparable(outcomes, ENERGY, units) for index in group}
    known = (i for i, one in enumerate(outcomes) if one.error is None)
    return {i for i in known if outcomes[i].cost[ENERGY] is not None} - within


def same_scores(outcomes: Sequence[Outcome]) -> list[list[int]]:
    """Groups of two or more points, as indices, that have the same metrics, also on dies."""
    return _equal(outcomes, lambda one: (one.metrics, one.dies))


def twins(outcomes: Sequence[Outcome]) -> dict[int, int]:
    """For each point that repeats the figures of an earlier one, the first such point."""
    groups = _equal(outcomes, lambda one: (one.metrics, one.dies, one.cost))
    return {index: first for first, *others in groups for index in others}


def _equal(outcomes: Sequence[Outcome], figures: Callable[[Outcome], object]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for index, one in enumerate(outcomes):
        if one.error is None:
            groups.setdefault(repr(figures(one)), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


@dataclass(frozen=True)
class DriftBudget:
    """Limits of metrics by name, and the least share of dies that keeps them.

    Without `min_yield`, the median die must keep them, if dies were drawn.
    """

    limits: Mapping[str, float]
    min_yield: float | None = None

    def check(self, trials: int | None) -> None:
        """Raise CimError for an unknown metric, and for a `min_yield` without dies."""
        check_metrics("budget", self.limits)
        if self.min_yield is None:
            return
        if not 0 < self.min_yield <= 1:
            raise ArgumentError(
                "{min_yield} is {:g}; expected a share of dies above 0 and up to 1, such as 0.9",
                self.min_yield,
            )
        if trials is None:
            raise ArgumentError("{min_yield} is a share of dies; expected {trials} with it")
        if not self.limits:
            raise ArgumentError(
                "{min_yield} is the share of dies within a budget; expected {budget} with it"
            )

    def kept_by(self, outcome: Outcome) -> bool:
        """True if a point keeps the budget, and its dies do each time: the median, or `min_yield`.

        A missing metric does not keep its limit. Without dies there is no yield.
        """
        if outcome.error is not None or not self.limits.keys() <= outcome.metrics.keys():
            return False
        if not all(within(outcome.metrics[name], most) for name, most in self.limits.items()):
            return False
        if self.min_yield is not None:
            found = yields_of(outcome.dies, self.limits)
            return bool(found) and all(within(self.min_yield, one.share.value) for one in found)
        medians = ((dies[name]["median"], name) for dies in outcome.dies for name in self.limits)
        return all(within(median, self.limits[name]) for median, name in medians)

    @property
    def text(self) -> str:
        """The budget for a reader: `r1_loss=0.01 on 90% of dies`."""
        limits = ", ".join(f"{name}={most:g}" for name, most in self.limits.items())
        return (
            limits if self.min_yield is None else f"{limits} on {100 * self.min_yield:g}% of dies"
        )


@dataclass(frozen=True)
class Choice:
    """The cheapest of `within` points that keep a `budget`, and the command that builds it.

    `index` is its number, and `cost` the name in COSTS that decided; both are None if no cost can
    be compared over all of these points. `command` is empty without a point, and if the model
    came without files.
    """

    budget: DriftBudget
    index: int | None
    cost: str | None
    within: int
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            "limits": dict(self.budget.limits),
            "min_yield": self.budget.min_yield,
            "point": self.index,
            "cheapest_by": self.cost,
            "within": self.within,
            "command": self.command or None,
        }


def cheapest(
    outcomes: Sequence[Outcome],
    budget: DriftBudget,
    units: Sequence[str],
    sampled: Collection[int] = (),
    costs: Sequence[str] = tuple(COSTS),
) -> Choice:
    """The cheapest point within `budget`; `sampled` points are not compiled and are left out.

    The first of `costs` decides that can be compared over all of these points.
    Energy decides if all of these points have a complete and comparable one; else conversions, if
    all points convert; else arrays. Among points of equal cost, the score with the fewest
    multiplications wins, then the smallest drift.
    """
    kept = [index for index, one in enumerate(outcomes) if budget.kept_by(one)]
    built = [index for index in kept if index not in sampled]
    few, own = [outcomes[index] for index in built], [units[index] for index in built]
    # A lower bound cannot rank points: the missing parts may be most of the energy.
    partial_sums = any(one.cost["energy_missing"] for one in few)

    def price(index: int) -> tuple[float, ...]:
        one = outcomes[index]
        return one.cost[cost], one.cost.get(WORK, 0), one.metrics.get(DRIFT, math.inf), index

    for cost in costs:
        if cost == ENERGY and partial_sums:
            continue
        # A cost of 0 is no reason to choose: arrays that add digitally convert nothing, at a price.
        if comparable(few, cost, own) == [[*range(len(few))]] and all(o.cost[cost] for o in few):
            return Choice(budget, min(built, key=price), cost, len(few))
    return Choice(budget, None, None, len(built))


def held_text(limits: Mapping[str, float]) -> str:
    """Limits as a clause: `r1_loss up to 0.01`."""
    return " and ".join(f"{name} up to {most:g}" for name, most in limits.items())
