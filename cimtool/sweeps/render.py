"""A sweep as text for a terminal, and its points as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cimtool.costs.render import ENERGIES, NOT_GIVEN, TIMES, counted, scaled
from cimtool.sweeps.bench import Outcome
from cimtool.sweeps.choice import COSTS
from cimtool.sweeps.results import Chosen, Sweep

Table = Callable[[Sequence[Sequence[str]]], str]


def sweep_text(found: Sweep, table: Table) -> str:
    """All points in a table, the counts, what is cheapest within the budget, what was written."""
    data, count = found.data, len(found.points)
    lines = [
        f"{found.model}: {data['texts']} texts x {data['videos']} videos of {data['file']}, "
        f"against {found.reference}",
        "",
        table(table_rows(found)),
        "",
        f"* on a Pareto front: logit RMSE against {', '.join(COSTS.values())}",
        *_said_of_dies(found),
        f"{counted(count, 'point')}: {count - found.failed} done ({found.resumed} by an earlier "
        f"run), {found.failed} failed",
        *failures(found),
    ]
    if found.chosen is not None:
        lines += ["", *budget_lines(found, found.chosen)]
    return "\n".join([*lines, "", f"wrote {', '.join(map(str, found.written))}"])


def failures(found: Sweep) -> list[str]:
    """A line for each point that failed."""
    errors = (outcome.error for outcome in found.outcomes)
    return [f"point {index} failed: {error}" for index, error in enumerate(errors) if error]


def _said_of_dies(found: Sweep) -> list[str]:
    """Why some points have no dies though these were asked for, each reason once."""
    if found.dies is None:
        return []
    notes = (note for outcome in found.outcomes if not outcome.dies for note in outcome.notes)
    return list(dict.fromkeys(note for note in notes if "no dies were drawn" in note))


def budget_lines(found: Sweep, chosen: Chosen) -> list[str]:
    """Which point is the cheapest within the budget, by what, and how it is built."""
    limits = ", ".join(f"{name}={most:g}" for name, most in chosen.budget.items())
    choice = chosen.choice
    if choice is None:
        return [f"no point is within {limits}"]
    cost = found.outcomes[choice.index].cost
    price = cost_cell(cost, choice.cost)
    lines = [
        f"cheapest of {counted(choice.within, 'point')} within {limits}: point {choice.index} "
        f"({values_text(found, choice.index)}), by {COSTS[choice.cost]}: {price}"
    ]
    return [*lines, f"next: {chosen.command}"] if chosen.command else lines


def values_text(found: Sweep, index: int) -> str:
    """The values of a point: `weight_bits=6, target=ideal`."""
    named = found.points[index].named
    return ", ".join(f"{name}={value_cell(value)}" for name, value in named.items())


def value_cell(value: object) -> str:
    """A value as `--grid` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def table_rows(found: Sweep) -> list[list[str]]:
    """Cells of all points, the headings first."""
    times = list(dict.fromkeys(one["time"] for outcome in found.outcomes for one in outcome.dies))
    head = ["point", *(axis.name for axis in found.axes), "RMSE", "top-1 loss", "R@1 loss"]
    head += [f"on dies, {time}" for time in times]
    head += ["arrays", "conversions", "energy", "latency", "front"]
    on_front = {index for front in found.fronts.values() for index in front}
    rows = [head]
    for index, (point, outcome) in enumerate(zip(found.points, found.outcomes, strict=True)):
        start = [str(index), *map(value_cell, point.named.values())]
        if outcome.error is not None:
            rows.append([*start, "failed", *[""] * (len(head) - len(start) - 1)])
            continue
        rows.append([*start, *_cells(outcome, times), "*" if index in on_front else ""])
    return rows


def _cells(outcome: Outcome, times: Sequence[str]) -> list[str]:
    metrics, cost = outcome.metrics, outcome.cost
    cells = [f"{metrics['logit_rmse']:.4g}"]
    cells += [f"{metrics[name]:.2%}" for name in ("top1_agreement_loss", "r1_loss")]
    on_dies = {one["time"]: f"{one['r1_loss']['median']:.2%}" for one in outcome.dies}
    cells += [on_dies.get(time, "") for time in times]
    return cells + [cost_cell(cost, name) for name in ("arrays", "conversions", *AMOUNTS)]


AMOUNTS = {"energy_pj": ENERGIES, "latency_ns": TIMES}
"""Costs that have units and may be unknown, or lower bounds."""


def cost_cell(cost: Mapping[str, Any], name: str) -> str:
    """One cost of a point with its unit, `>` before a lower bound, or "not given"."""
    value = cost[name]
    if name not in AMOUNTS:
        return f"{value:,}"
    if value is None:
        return NOT_GIVEN
    bound = "> " if cost[f"{name.partition('_')[0]}_missing"] else ""
    return f"{bound}{scaled(value, AMOUNTS[name])}"
