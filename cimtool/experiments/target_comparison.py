"""One model on several targets: what it retrieves, and what a query takes, side by side.

The points of a sweep over targets, with the gallery scored in each way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.base.files import keeping_inputs
from cimtool.base.grids import Grid
from cimtool.base.options import takes
from cimtool.base.plugins import unless_broken
from cimtool.base.progress import Say, silent
from cimtool.experiments.budgets import ENERGY, DriftBudget
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.engine import (
    ExperimentKind,
    PagedResult,
    PointsFailed,
    write_page,
)
from cimtool.experiments.options import CompareTargetsOptions, SweepOptions
from cimtool.experiments.rows import IDENTITY
from cimtool.experiments.sweep import Sweep, swept
from cimtool.hardware.settings import read_settings
from cimtool.hardware.target import load_target, target_origins
from cimtool.loading.embeddings import File
from cimtool.reference.limits import within
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import counted
from cimtool.report.table import BlockLevel

TARGETS = ExperimentKind("targets", "targets.json", 2, IDENTITY, Outcome.from_json)

DEFAULT_BUDGET = {"r1_loss": 0.01}

DIGITAL = "digital"
WAYS = {DIGITAL: "digital", "in-memory": "in arrays", "hybrid": "by shortlist"}
"""Ways of a gallery in words, by `score_mapping`."""


@dataclass(frozen=True)
class TargetRow:
    """A target with the way of its gallery, and its `outcome`."""

    target: str
    way: str
    outcome: Outcome
    budget: DriftBudget

    @property
    def reason(self) -> str:
        """The sentence of the error; empty if the target can."""
        return self.outcome.error or ""

    @property
    def kept(self) -> bool:
        """True if it keeps the budget."""
        return self.budget.kept_by(self.outcome)

    @property
    def surely(self) -> bool:
        """True if the intervals over the queries keep it too."""
        ends = self.outcome.intervals
        limits = self.budget.limits.items()
        return self.kept and all(n in ends and within(ends[n][1], most) for n, most in limits)

    @property
    def maybe(self) -> bool:
        """True if it keeps the budget, or if other queries may show that it does."""
        ends = self.outcome.intervals
        limits = self.budget.limits.items()
        return self.kept or all(n in ends and within(ends[n][0], most) for n, most in limits)

    @property
    def priced(self) -> bool:
        """True if every part of a query has an energy."""
        cost = self.outcome.cost
        return bool(cost) and cost[ENERGY] is not None and not cost["energy_missing"]

    @property
    def rank(self) -> tuple[int, float]:
        """The order of the table: within the budget by energy, unpriced, over it, unable."""
        if self.reason:
            return 3, 0.0
        energy = self.outcome.cost[ENERGY] or 0.0
        return (0 if self.priced else 1) if self.kept else 2, energy

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        own = {"target": self.target, "score_mapping": self.way, "within": self.kept}
        return own | {"surely": self.surely} | self.outcome.to_json()


@dataclass(frozen=True, repr=False)
class TargetComparison(PagedResult, shown_by="cimtool.experiments.render_targets"):
    """A model on several targets, of `points`; `rows` are in the order of the table."""

    page = "targets.html"

    points: Sweep
    budget: DriftBudget
    written: Sequence[Path] = ()

    @cached_property
    def rows(self) -> list[TargetRow]:
        """A row for each target and way; one for all ways that fail for the same reason."""
        found: dict[tuple[str, str], TargetRow] = {}
        ways: dict[tuple[str, str], list[str]] = {}
        every = [str(one.named.get("target", one.base)) for one in self.points.points]
        for _, point, outcome in self.points.numbered():
            name = str(point.named.get("target", point.base))
            way = str(point.named.get("score_mapping", ""))
            if point.build is not None:
                way = point.build.settings.score_mapping
            row = TargetRow(name, way, outcome, self.budget)
            same = (name, outcome.error or way)
            ways.setdefault(same, []).append(WAYS.get(way, way))
            alike = ways[same]
            if len(alike) > 1:
                row = replace(row, way="" if len(alike) == every.count(name) else ", ".join(alike))
            found[same] = row
        return sorted(found.values(), key=lambda row: row.rank)

    @property
    def gallery(self) -> int:
        """The items that a query is priced among."""
        return int(self.points.data["gallery"])

    @property
    def within(self) -> list[TargetRow]:
        """The rows that keep the budget, the cheapest first, those without a price last."""
        return [row for row in self.rows if row.kept]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on workers, or on the number of runs."""
        points = self.points
        return {
            **TARGETS.versions,
            "model": points.model,
            "data": dict(points.data),
            "reference": points.reference,
            "warnings": points.first,
            "budget": dict(self.budget.limits),
            "gallery": self.gallery,
            "within": list(dict.fromkeys(row.target for row in self.within)),
            "rows": [row.to_json() for row in self.rows],
            "notes": list(points.remarks.notes),
        }

    def of_this_run(self) -> Document:
        """The document with the files that this run wrote."""
        said = f"{counted(self.points.resumed, 'row')} measured by an earlier run"
        level: BlockLevel = "shown" if self.points.resumed else "detail"
        more = self.document().plus(Sentence(said, level), resumed=self.points.resumed)
        return more.wrote(self.written)


@keeping_inputs
@takes(CompareTargetsOptions)
def compare_targets(options: CompareTargetsOptions, say: Say = silent) -> TargetComparison:
    """Compile a model for several targets, and measure what it retrieves and costs on each.

    `what` is the model and then targets, by name or file (none: all of cimtool and of plug-ins). A
    gallery is scored digitally, in the arrays, and digitally after a shortlist from the arrays,
    unless the file `settings` says how. Costs are of a query against `gallery` items (default: the
    videos of `data`). A target that the model cannot be compiled for is a row with the reason. The
    rest is as in `sweep`. Raises CimError for a target that is unknown or given twice; PointsFailed
    (a CheckFailed) if none keeps the `budget`.
    """
    if not options.what:
        raise ArgumentError("{what} is missing; expected a model")
    projectors, *targets = options.what
    grid: Grid = {"target": _names(targets), **_ways(options.settings)}
    budget = DriftBudget(options.budget or DEFAULT_BUDGET)
    asked = vars(options) | {"budget": budget.limits}
    given = {name: value for name, value in asked.items() if name != "what"}
    points = SweepOptions(projectors=projectors, grid=grid, **given)
    with swept(points, TARGETS, say) as (found, _, place):
        result = TargetComparison(found, budget)
        result = replace(result, written=write_page(result, place))
    if not result.within:
        raise PointsFailed(result, f"{place}: no target is within the budget {budget.text}")
    return result


def _names(targets: Sequence[Any]) -> list[str]:
    """The targets that are given, or all that can be loaded; CimError for one given twice."""
    names = list(map(str, targets))
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError("{what} {}: the target is given twice; expected it once", name)
    if names:
        return names
    for name, origin in target_origins().items():
        with unless_broken(f'target "{name}"', origin):
            load_target(name)
            names.append(name)
    return names


def _ways(settings: File | None) -> Mapping[str, Sequence[str]]:
    """The ways of the gallery; none if the settings say which."""
    given = {} if settings is None else read_settings(Path(settings))
    return {} if "score_mapping" in given else {"score_mapping": list(WAYS)}
