"""A sweep as text for a terminal, and its points as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.costs.render import ENERGIES, NOT_GIVEN, TIMES, counted, percent, scaled
from cimtool.sweeps.choice import COSTS, ENERGY, incomparable, same_scores, twins
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
        f"front: no other point beats it in noise-free logit RMSE and {', '.join(COSTS.values())}",
        *notes_of_points(found),
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


def notes_of_points(found: Sweep) -> list[str]:
    """What a reader of the table should know: equal points, energies apart, warnings of points."""
    notes = [
        f"points {', '.join(map(str, group))} give the same scores"
        for group in same_scores(found.outcomes)
    ]
    if incomparable(found.outcomes, found.units):
        notes.append(
            "energies in brackets cannot be compared with the others: their targets give no "
            "figures for more of the parts"
        )
    return [*notes, *_told(found)]


def _told(found: Sweep) -> list[str]:
    """What points warn of, and why some have no dies though these were asked for: each once."""
    points_of: dict[str, list[str]] = {}
    for index, outcome in enumerate(found.outcomes):
        for note in outcome.notes:
            lost = found.dies is not None and "no dies were drawn" in note
            if lost or note.startswith("warning: "):
                points_of.setdefault(note, []).append(str(index))
    many = len(found.outcomes)
    return [
        note if len(of) == many else f"{note} (point{'s' * (len(of) > 1)} {', '.join(of)})"
        for note, of in points_of.items()
    ]


def budget_lines(found: Sweep, chosen: Chosen) -> list[str]:
    """Which point is the cheapest within the budget, by what, and how it is built."""
    limits = ", ".join(f"{name}={most:g}" for name, most in chosen.budget.items())
    choice = chosen.choice
    if choice is None:
        return [f"no point is within {limits}"]
    within = f"{counted(choice.within, 'point')} within {limits}"
    if any(outcome.dies for outcome in found.outcomes):
        within += ", the median die too"
    if choice.index is None or choice.cost is None:
        return [f"{within}: none is named, for no cost can be compared over all of them"]
    price = cost_cell(found.outcomes[choice.index].cost, choice.cost)
    lines = [
        f"cheapest of {within}: point {choice.index} ({values_text(found, choice.index)}), by "
        f"{COSTS[choice.cost]}: {price}"
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
    marks = marks_of(found)
    head = ["point", *(axis.name for axis in found.axes), "RMSE", "top-1 loss", "R@1 loss"]
    head += [f"median die, {time}" for time in marks.times]
    head += ["arrays", "conversions", "energy"] + ["of it known"] * marks.coverage
    head += ["latency", "front"]
    rows = [head]
    for index, (point, outcome) in enumerate(zip(found.points, found.outcomes, strict=True)):
        start = [str(index), *map(value_cell, point.named.values())]
        if outcome.error is not None:
            rows.append([*start, "failed", *[""] * (len(head) - len(start) - 1)])
            continue
        rows.append([*start, *_cells(found, index, marks), marks.fronts[index]])
    return rows


@dataclass(frozen=True)
class Marks:
    """What a table of points says beside their own figures, a text a point.

    `fronts` are the costs for which it is on a front, or the first of points that are the same;
    `energies` are in brackets where they cannot be compared; `coverage` says whether energies are
    of different shares of the work; `times` are those at which dies were read.
    """

    fronts: Sequence[str]
    energies: Sequence[str]
    coverage: bool
    times: Sequence[str]


def marks_of(found: Sweep) -> Marks:
    """Compare the points of a sweep with each other."""
    done = [one for one in found.outcomes if one.error is None]
    return Marks(
        fronts=_front_cells(found),
        energies=_energy_cells(found),
        coverage=len({one.cost["energy_coverage"] for one in done}) > 1,
        times=list(dict.fromkeys(die["time"] for one in done for die in one.dies)),
    )


def _front_cells(found: Sweep) -> list[str]:
    same, fronts = twins(found.outcomes), found.fronts
    return [
        f"as point {same[index]}"
        if index in same
        else ", ".join(SHORT[cost] for cost, front in fronts.items() if index in front)
        for index in range(len(found.outcomes))
    ]


def _energy_cells(found: Sweep) -> list[str]:
    apart = incomparable(found.outcomes, found.units)
    texts = ["" if one.error else cost_cell(one.cost, ENERGY) for one in found.outcomes]
    return [f"({text})" if index in apart else text for index, text in enumerate(texts)]


def _cells(found: Sweep, index: int, marks: Marks) -> list[str]:
    outcome = found.outcomes[index]
    metrics, cost = outcome.metrics, outcome.cost
    cells = [f"{metrics['logit_rmse']:.4g}"]
    cells += [f"{metrics[name]:.2%}" for name in ("top1_agreement_loss", "r1_loss")]
    on_dies = {one["time"]: f"{one['r1_loss']['median']:.2%}" for one in outcome.dies}
    cells += [on_dies.get(time, "") for time in marks.times]
    cells += [cost_cell(cost, name) for name in ("arrays", "conversions")]
    cells += [marks.energies[index]]
    cells += [percent(cost["energy_coverage"])] * marks.coverage
    return [*cells, cost_cell(cost, "latency_ns")]


SHORT = {ENERGY: "energy", "conversions": "conversions", "arrays": "arrays"}
"""Costs as a cell of the table names them."""

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
