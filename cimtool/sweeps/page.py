"""The Pareto page of a sweep: drift against each cost, and a table of all points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cimtool.costs.render import percent
from cimtool.report.charts import Candidate, pareto
from cimtool.report.page import render
from cimtool.report.tables import Cell, Head, Line, Table
from cimtool.sweeps.bench import Outcome
from cimtool.sweeps.choice import COSTS, DRIFT, ENERGY, comparable
from cimtool.sweeps.render import (
    Marks,
    budget_lines,
    cost_cell,
    failures,
    marks_of,
    notes_of_points,
    value_cell,
    values_text,
)
from cimtool.sweeps.results import Sweep

PACKAGE = "cimtool.sweeps"
PAGE = "pareto.html"

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""

BLANK = Cell("", math.nan)
"""A number that is not there; it sorts last."""

ENERGY_UNITS = ((1e6, "uJ"), (1e3, "nJ"), (1.0, "pJ"))
"""Units of energy by the pJ that each holds."""


def pareto_page(sweep: Sweep) -> str:
    """The whole page as one HTML document."""
    return render(
        PACKAGE,
        PAGE,
        title=f"Sweep of {sweep.model}",
        sweep=sweep,
        facts=_facts(sweep),
        budget=[] if sweep.chosen is None else budget_lines(sweep, sweep.chosen),
        figures=[
            (_picture(sweep, cost, group), _caption(sweep, cost, group, len(groups)))
            for cost in COSTS
            for groups in [comparable(sweep.outcomes, cost, sweep.units) or [[]]]
            for group in groups
        ],
        points=points_table(sweep),
        notes=notes_of_points(sweep),
        failures=failures(sweep),
    )


def _facts(sweep: Sweep) -> list[tuple[str, str]]:
    data, count = sweep.data, len(sweep.points)
    facts = [
        ("points", f"{count}, {count - sweep.failed} done, {sweep.failed} failed"),
        ("pairs", f"{data['texts']} texts x {data['videos']} videos of {data['file']}"),
        ("drift is measured against", sweep.reference),
    ]
    facts += [
        (f"{name}, beside the points", _baseline(metrics))
        for name, metrics in sweep.baselines.items()
    ]
    facts.append(("target", ", ".join(dict.fromkeys(point.base for point in sweep.points))))
    grid = (f"{axis.name}={','.join(map(value_cell, axis.values))}" for axis in sweep.axes)
    facts.append(("grid", "; ".join(grid)))
    facts.append(("settings of all points", _shared_settings(sweep)))
    facts += [(Path(name).name, f"SHA-256 {digest}") for name, digest in sweep.files]
    if sweep.dies is not None:
        facts.append(("dies a point", str(sweep.dies.trials)))
    return facts


def _shared_settings(sweep: Sweep) -> str:
    """The settings that are the same at every point that has any."""
    found = [one.build.settings.to_json() for one in sweep.points if one.build is not None]
    shared = {
        name: value
        for name, value in (found[0] if found else {}).items()
        if value not in (None, []) and all(other[name] == value for other in found)
    }
    return ", ".join(f"{name}={value_cell(value)}" for name, value in shared.items())


def _baseline(metrics: Mapping[str, float]) -> str:
    return (
        f"logit RMSE {metrics[DRIFT]:.4g}, top-1 loss {metrics['top1_agreement_loss']:.2%}, "
        f"R@1 loss {metrics['r1_loss']:.2%}"
    )


def _picture(sweep: Sweep, cost: str, shown: Sequence[int]) -> str:
    best = set(sweep.fronts[cost])
    title, size = COSTS[cost], 1.0
    if cost == ENERGY and shown:
        most = max(sweep.outcomes[index].cost[cost] for index in shown)
        size, unit = next((u for u in ENERGY_UNITS if most >= u[0]), ENERGY_UNITS[-1])
        title = f"{title} ({unit})"
    candidates = [
        Candidate(
            f"point {index}",
            sweep.outcomes[index].cost[cost] / size,
            sweep.outcomes[index].metrics[DRIFT],
            index in best,
            f"{values_text(sweep, index)}; {cost_cell(sweep.outcomes[index].cost, cost)}",
        )
        for index in shown
    ]
    label = f"logit RMSE against {COSTS[cost]} of {len(shown)} points"
    logs = (_is_wide([one.x for one in candidates]), _is_wide([one.y for one in candidates]))
    return pareto(candidates, title, "logit RMSE", label, *logs)


def _is_wide(values: list[float]) -> bool:
    return bool(values) and 0 < WIDE * min(values) < max(values)


def _caption(sweep: Sweep, cost: str, shown: Sequence[int], pictures: int) -> str:
    """What a picture shows, and why points are not there."""
    done = len(sweep.points) - sweep.failed
    left_out = done - len(shown)
    text = f"Noise-free logit RMSE against {COSTS[cost]}; both are better when lower."
    if pictures > 1:
        unit = sweep.units[shown[0]]
        text += f" Only points on {unit} arrays: those of other hardware are not the same thing."
    elif left_out:
        text += (
            f" {left_out} of {done} points are not here: their targets give no figures for it, or "
            "for fewer of its parts."
        )
    return text


def points_table(sweep: Sweep) -> Table:
    """All points, those on a front in bold; failed ones say so."""
    marks = marks_of(sweep)
    heads = [Head("point", "the number of the point in results.json")]
    heads += [Head(axis.name) for axis in sweep.axes]
    heads += [
        Head("RMSE", f"root mean square difference of the logit from {sweep.reference}"),
        Head("top-1 loss", "queries whose best item is another one, the worse of both directions"),
        Head("R@1 loss", f"what is lost of R@1 against {sweep.reference}, the worse direction"),
    ]
    heads += [
        Head(
            f"R@1 loss, median die, {time}",
            "the same, read so long after programming",
        )
        for time in marks.times
    ]
    heads += [
        Head("arrays", "arrays of the target that hold the projectors"),
        Head("conversions", "conversions of one query, encoded and scored"),
        Head(
            "energy",
            "of one query; > is a lower bound: the target lacks figures of parts; in brackets what "
            "cannot be compared with the others, for it lacks more of them",
        ),
        *[Head("of it known", "operations of a query whose energy is known")] * marks.coverage,
        Head("latency", "of one query; > is a lower bound"),
        Head(
            "front",
            "the costs for which no other point beats it, or the first of points that are the same",
            numeric=False,
        ),
    ]
    heads.insert(1, heads.pop())  # in sight where the table is wider than the screen
    lines = tuple(_line(sweep, index, marks) for index in range(len(sweep.points)))
    return Table(f"{len(lines)} points", tuple(heads), lines)


def _line(sweep: Sweep, index: int, marks: Marks) -> Line:
    point, outcome = sweep.points[index], sweep.outcomes[index]
    cells = [Cell(str(index), index), Cell(marks.fronts[index])]
    cells += [_value_cell(value) for value in point.named.values()]
    if outcome.error is not None:
        blanks = [BLANK] * (6 + marks.coverage + len(marks.times))
        return Line((*cells, Cell("failed", math.nan, style="bad"), *blanks))
    cells += [_drift_cell(outcome.metrics[DRIFT])]
    cells += [_share(outcome.metrics[name]) for name in ("top1_agreement_loss", "r1_loss")]
    on_dies = {one["time"]: one["r1_loss"]["median"] for one in outcome.dies}
    cells += [_share(on_dies[time]) if time in on_dies else BLANK for time in marks.times]
    cells += [_cost(outcome, name) for name in ("arrays", "conversions")]
    cells += [replace(_cost(outcome, ENERGY), text=marks.energies[index])]
    known = outcome.cost["energy_coverage"]
    cells += [Cell(percent(known), known)] * marks.coverage
    cells += [_cost(outcome, "latency_ns")]
    best = marks.fronts[index] and not marks.fronts[index].startswith("as ")
    return Line(tuple(cells), "result" if best else "")


def _value_cell(value: Any) -> Cell:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(value_cell(value), value if number else None)


def _drift_cell(value: float) -> Cell:
    return Cell(f"{value:.4g}", value)


def _share(value: float) -> Cell:
    return Cell(f"{value:.2%}", value)


def _cost(outcome: Outcome, name: str) -> Cell:
    value = outcome.cost[name]
    return Cell(cost_cell(outcome.cost, name), math.nan if value is None else value)
