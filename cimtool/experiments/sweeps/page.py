"""The Pareto page of a sweep: drift against each cost, and a table of all points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from cimtool.report.document import Document, FactList, Note, Picture, Section, Sentence
from cimtool.report.formats import ENERGIES, unit_of
from cimtool.report.html import html

PAGE = "pareto.html"

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""


def pareto_page(sweep: Sweep) -> str:
    """The whole page as one HTML document."""
    return html(document(sweep))


def document(sweep: Sweep) -> Document:
    """The choice of a sweep, its yields and fronts, all of its points, and what was swept."""
    budget = [] if sweep.chosen is None else budget_lines(sweep, sweep.chosen)
    failed, yields = failures(sweep), yield_pictures(sweep)
    drawn = [
        Picture(cost if i == 0 else f"{cost} {i}", picture, _caption(sweep, cost, group, len(of)))
        for cost in sweep.costs
        for of in [_groups(sweep, cost) or [[]]]
        for i, group in enumerate(of)
        for picture in [_picture(sweep, cost, group)]
    ]
    return Document(
        f"Sweep of {sweep.model}",
        (
            *(Sentence(one, "verdict", "bad") for one in sweep.first),
            *([Section("Within the budget", tuple(map(Sentence, budget)))] if budget else []),
            *([Section("Failed", tuple(map(Note, failed)))] if failed else []),
            *([Section("Yield", tuple(yields))] if yields else []),
            Section("Drift and what it costs", tuple(drawn)),
            Section("Points", (points_table(sweep).named("points"),)),
            Section("What was swept", (FactList(tuple(_swept(sweep))),)),
        ),
        sweep.to_json,
    )


def _caption(sweep: Sweep, cost: str, shown: Sequence[int], groups: int) -> str:
    """The caption of a picture, with the number of points that are not in it."""
    done = len(sweep.points) - sweep.failed
    said = f"Noise-free centred logit RMSE against {sweep.costs[cost]}; both are better when lower."
    if groups > 1:
        units = sweep.units[shown[0]]
        return (
            f"{said} Only points on {units} arrays: those of other hardware are not the same thing."
        )
    if not (left_out := done - len(shown)):
        return said
    samples = ", samples take no part in it, or their score is no logit" * (len(sweep.costs) > 3)
    return (
        f"{said} {left_out} of {done} points are not here: their targets give no figures for it, "
        f"or for fewer of its parts{samples}."
    )


def _swept(sweep: Sweep) -> Iterator[tuple[str, str]]:
    """The points, the data, the grid and the files of a sweep."""
    done = len(sweep.points) - sweep.failed
    yield "points", f"{len(sweep.points)}, {done} done, {sweep.failed} failed"
    yield "pairs", f"{sizes_of(sweep)} of {sweep.data['file']}"
    yield "drift is measured against", sweep.reference
    yield "target", ", ".join(dict.fromkeys(point.base for point in sweep.points))
    yield "grid", "; ".join(map(str, sweep.grid))
    yield "settings of all points", ", ".join(_shared_settings(sweep))
    yield from ((Path(name).name, f"SHA-256 {digest}") for name, digest in sweep.files)
    if sweep.dies is not None:
        yield "dies a point", str(sweep.dies.trials)


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
