"""The Pareto page of a sweep: drift against each cost, and a table of all points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cimtool.base.grids import value_text
from cimtool.experiments.sweeps.choice import DRIFT, ENERGY, comparable, drifting
from cimtool.experiments.sweeps.render import (
    budget_lines,
    cost_text,
    failures,
    points_table,
    sizes_of,
    values_text,
)
from cimtool.experiments.sweeps.results import Sweep
from cimtool.experiments.sweeps.yield_page import yield_pictures
from cimtool.report.charts import ParetoPoint, pareto
from cimtool.report.document import Document, Picture, Sentence
from cimtool.report.formats import ENERGIES, counted, unit_of
from cimtool.report.page import render

PACKAGE = "cimtool.experiments.sweeps"
PAGE = "pareto.html"

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""


def pareto_page(sweep: Sweep) -> str:
    """The whole page as one HTML document."""
    return render(
        PAGE,
        PACKAGE,
        title=f"Sweep of {sweep.model}",
        sweep=sweep,
        done=len(sweep.points) - sweep.failed,
        sizes=sizes_of(sweep),
        targets=dict.fromkeys(point.base for point in sweep.points),
        grid=list(map(str, sweep.grid)),
        settings=_shared_settings(sweep),
        files=[(Path(name).name, digest) for name, digest in sweep.files],
        budget=[] if sweep.chosen is None else budget_lines(sweep, sweep.chosen),
        figures=[
            (_picture(sweep, cost, group), title, group, len(groups))
            for cost, title in sweep.costs.items()
            for groups in [_groups(sweep, cost) or [[]]]
            for group in groups
        ],
        yields=yield_pictures(sweep),
        points=points_table(sweep),
        failures=failures(sweep),
    )


def _groups(sweep: Sweep, cost: str) -> list[list[int]]:
    """The points that are drawn together, in groups that may be compared."""
    return drifting(sweep.outcomes, comparable(sweep.outcomes, cost, sweep.units))


def _shared_settings(sweep: Sweep) -> list[str]:
    """The settings that are the same at every point that has any."""
    found = [one.build.settings.to_json() for one in sweep.points if one.build is not None]
    return [
        f"{name}={value_text(value)}"
        for name, value in (found[0] if found else {}).items()
        if value not in (None, []) and all(other[name] == value for other in found)
    ]


def _picture(sweep: Sweep, cost: str, shown: Sequence[int]) -> str:
    best = set(sweep.fronts[cost])
    name = sweep.costs[cost]
    title, size = name, 1.0
    if cost == ENERGY and shown:
        most = max(sweep.outcomes[index].cost[cost] for index in shown)
        size, unit = unit_of(most, ENERGIES)
        title = f"{title} ({unit})"
    candidates = [
        ParetoPoint(
            f"point {index}",
            sweep.outcomes[index].cost[cost] / size,
            sweep.outcomes[index].metrics[DRIFT],
            index in best,
            f"{values_text(sweep, index)}; {cost_text(sweep.outcomes[index].cost, cost)}",
        )
        for index in shown
    ]
    label = f"centred logit RMSE against {name} of {len(shown)} points"
    logs = (_is_wide([one.x for one in candidates]), _is_wide([one.y for one in candidates]))
    return pareto(candidates, title, "centred logit RMSE", label, *logs)


def _is_wide(values: list[float]) -> bool:
    return bool(values) and 0 < WIDE * min(values) < max(values)


def document(sweep: Sweep) -> Document:
    """The choice of a sweep, and all of its points."""
    budget = [] if sweep.chosen is None else budget_lines(sweep, sweep.chosen)
    pictures = [
        Picture(cost, _picture(sweep, cost, group))
        for cost in sweep.costs
        for group in _groups(sweep, cost)[:1]
    ]
    said = map(Sentence, [*sweep.first, *budget, *failures(sweep)])
    return Document(
        f"{counted(len(sweep.points), 'point')} of {sweep.model}, {sweep.failed} failed",
        (*said, points_table(sweep).named("points"), *pictures),
        sweep.to_json,
    )
