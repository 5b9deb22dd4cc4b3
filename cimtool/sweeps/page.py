"""The Pareto page of a sweep: drift against each cost, and a table of all points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.report.charts import Candidate, pareto
from cimtool.report.page import render
from cimtool.report.tables import Cell, Head, Line, Table
from cimtool.sweeps.bench import Outcome
from cimtool.sweeps.choice import COSTS, DRIFT, ENERGY, comparable
from cimtool.sweeps.render import (
    budget_lines,
    cost_cell,
    failures,
    value_cell,
    values_text,
)
from cimtool.sweeps.results import Sweep

PACKAGE = "cimtool.sweeps"
PAGE = "pareto.html"

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""

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
        figures=[(_picture(sweep, cost), _caption(sweep, cost)) for cost in COSTS],
        points=points_table(sweep),
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
    grid = (f"{axis.name}={','.join(map(value_cell, axis.values))}" for axis in sweep.axes)
    facts.append(("grid", "; ".join(grid)))
    if sweep.dies is not None:
        facts.append(("dies a point", str(sweep.dies.trials)))
    return facts


def _baseline(metrics: Mapping[str, float]) -> str:
    return (
        f"logit RMSE {metrics[DRIFT]:.4g}, top-1 loss {metrics['top1_agreement_loss']:.2%}, "
        f"R@1 loss {metrics['r1_loss']:.2%}"
    )


def _picture(sweep: Sweep, cost: str) -> str:
    shown = comparable(sweep.outcomes, cost)
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


def _caption(sweep: Sweep, cost: str) -> str:
    """What a picture shows, and why points are not there."""
    done = len(sweep.points) - sweep.failed
    left_out = done - len(comparable(sweep.outcomes, cost))
    text = f"Logit RMSE against {COSTS[cost]}; both are better when lower."
    if left_out:
        text += (
            f" {left_out} of {done} points are not here: their targets give no figures for it, or "
            "for fewer of its parts."
        )
    return text


def points_table(sweep: Sweep) -> Table:
    """All points, those on a front in bold; failed ones say so."""
    times = list(dict.fromkeys(one["time"] for found in sweep.outcomes for one in found.dies))
    heads = [Head("point", "the number of the point in results.json")]
    heads += [Head(axis.name) for axis in sweep.axes]
    heads += [
        Head("RMSE", f"root mean square difference of the logit from {sweep.reference}"),
        Head("top-1 loss", "queries whose best item is another one, the worse of both directions"),
        Head("R@1 loss", f"what is lost of R@1 against {sweep.reference}, the worse direction"),
    ]
    heads += [
        Head(f"R@1 loss, {time}", "the same of the median die, read so long after programming")
        for time in times
    ]
    heads += [
        Head("arrays", "arrays of the target that hold the projectors"),
        Head("conversions", "conversions of one query, encoded and scored"),
        Head("energy", "of one query; > is a lower bound: the target lacks figures of parts"),
        Head("latency", "of one query; > is a lower bound"),
        Head("on the front of", "the costs for which no other point beats it", numeric=False),
    ]
    lines = tuple(_line(sweep, index, times) for index in range(len(sweep.points)))
    return Table(f"{len(lines)} points", tuple(heads), lines)


def _line(sweep: Sweep, index: int, times: list[str]) -> Line:
    point, outcome = sweep.points[index], sweep.outcomes[index]
    cells = [Cell(str(index), index)]
    cells += [_value_cell(value) for value in point.named.values()]
    if outcome.error is not None:
        blanks = [Cell("") for _ in range(6 + len(times))]
        return Line((*cells, Cell("failed", style="bad"), *blanks, Cell("")))
    cells += [_drift_cell(outcome.metrics[DRIFT])]
    cells += [_share(outcome.metrics[name]) for name in ("top1_agreement_loss", "r1_loss")]
    on_dies = {one["time"]: one["r1_loss"]["median"] for one in outcome.dies}
    cells += [_share(on_dies[time]) if time in on_dies else Cell("") for time in times]
    cells += [_cost(outcome, name) for name in ("arrays", "conversions", ENERGY, "latency_ns")]
    fronts = [COSTS[cost] for cost, front in sweep.fronts.items() if index in front]
    return Line((*cells, Cell(", ".join(fronts))), "result" if fronts else "")


def _value_cell(value: Any) -> Cell:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(value_cell(value), value if number else None)


def _drift_cell(value: float) -> Cell:
    return Cell(f"{value:.4g}", value)


def _share(value: float) -> Cell:
    return Cell(f"{value:.2%}", value)


def _cost(outcome: Outcome, name: str) -> Cell:
    value = outcome.cost[name]
    return Cell(cost_cell(outcome.cost, name), float("nan") if value is None else value)
