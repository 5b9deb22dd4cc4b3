"""The Pareto page of a sweep: drift against each cost, and a table of all points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cimtool.report.charts import Candidate, pareto
from cimtool.report.formats import ENERGIES, unit_of
from cimtool.report.page import render
from cimtool.sweeps.choice import COSTS, DRIFT, ENERGY, comparable
from cimtool.sweeps.render import (
    budget_lines,
    cost_text,
    failures,
    points_table,
    value_text,
    values_text,
)
from cimtool.sweeps.results import Sweep

PACKAGE = "cimtool.sweeps"
PAGE = "pareto.html"

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""


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
    grid = (f"{axis.name}={','.join(map(value_text, axis.values))}" for axis in sweep.axes)
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
    return ", ".join(f"{name}={value_text(value)}" for name, value in shared.items())


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
        size, unit = unit_of(most, ENERGIES)
        title = f"{title} ({unit})"
    candidates = [
        Candidate(
            f"point {index}",
            sweep.outcomes[index].cost[cost] / size,
            sweep.outcomes[index].metrics[DRIFT],
            index in best,
            f"{values_text(sweep, index)}; {cost_text(sweep.outcomes[index].cost, cost)}",
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
