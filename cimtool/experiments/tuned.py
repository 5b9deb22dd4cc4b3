"""The result of a tuning: bits, costs and metrics before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cimtool.base.grids import Value
from cimtool.base.modality_names import Modalities
from cimtool.experiments.choice_costs import PricedChange
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.engine import PagedResult
from cimtool.experiments.objectives import CostName
from cimtool.experiments.references import Remarks
from cimtool.experiments.widths import Attempt
from cimtool.reference.limits import within
from cimtool.report.document import Block, Document, Sentence, Verbatim, sentences
from cimtool.report.formats import counted


@dataclass(frozen=True)
class TunedStart:
    """Values of a grid from which tuning started, and its result.

    `metrics` and `first` are of its highest bits. `cost` is the cost of the bits chosen from here;
    empty if the highest bits miss the budget, or if the start is `dearer`: its fewest bits would
    cost more than the bits that were chosen from another.
    """

    values: Mapping[str, Value]
    metrics: Mapping[str, float]
    first: Mapping[CostName, float]
    cost: Mapping[CostName, float]
    chosen: bool = False
    dearer: bool = False


@dataclass(frozen=True, repr=False)
class Tuned(PagedResult, shown_by="cimtool.experiments.render_tuned"):
    """The bits of each layer that tuning chose, the attempts, and metrics before and after.

    `starts` are all combinations of a grid of settings; the other fields are for the chosen one.
    Costs of a query are against `gallery` items; `changes` has those that prices make with their
    intervals. `features` are the bits of mu and of the variance,
    if they may change.
    `start` and `chosen` are metrics on the queries that the bits were chosen on. For the chosen
    bits, `held_out` are metrics on the other half, and `on_all` on all queries, as `verify`
    measures them, with `intervals`; `outcome` has the verdict on them. The last `taken_back` kept
    steps were undone because they missed the budget on the other half or on all. `baselines` are
    metrics of scores without hardware, on all queries, with intervals. `untried` has reasons why
    ways of a gallery were not tried. If `by_class`, metrics of classes lead. `command` compiles the
    result; None if the inputs were not files. `resumed` counts choices of bits that an earlier run
    measured; `results` were written into the folder, if one was given.
    """

    page = "tune.html"

    model: str
    target: str
    reference: str
    budget: Mapping[str, float]
    objective: Mapping[CostName, float]
    gallery: int
    starts: Sequence[TunedStart]
    start: Mapping[str, float]
    start_cost: Mapping[CostName, float]
    changes: Mapping[CostName, PricedChange]
    steps: Sequence[Attempt]
    taken_back: int
    bits: Mapping[str, Mapping[str, int]]
    features: Mapping[str, int]
    chosen: Mapping[str, float]
    chosen_cost: Mapping[CostName, float]
    held_out: Mapping[str, float]
    on_all: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    outcome: Outcome
    baselines: Mapping[str, Mapping[str, float]]
    baseline_intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    by_class: bool
    modalities: Modalities
    remarks: Remarks
    written: Path
    command: str | None
    untried: Sequence[str] = ()
    resumed: int = 0
    results: Sequence[Path] = ()

    @property
    def first(self) -> list[str]:
        """Sentences that a reader must see before any figure."""
        return self.remarks.first

    @property
    def verdict(self) -> list[Block]:
        """The verdict on the chosen model; nothing if the float score is broken."""
        return [] if self.remarks.faults else self.outcome.verdict("The chosen model")

    @property
    def risky(self) -> dict[str, float]:
        """The limits that other queries may exceed, because the intervals reach beyond them."""
        return {
            name: most
            for name, most in self.budget.items()
            if name in self.intervals and not within(self.intervals[name][1], most)
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on workers, or on the number of runs."""
        left_out = ("remarks", "resumed", "results", "outcome")
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        said = {
            "verdict": sentences(self.verdict),
            "worth": self.outcome.worth,
            "warnings": self.first,
            "notes": self.remarks.notes,
        }
        lists = {
            "starts": [vars(one) for one in self.starts],
            "steps": [step.to_json() for step in self.steps],
            "changes": {name: asdict(one) for name, one in self.changes.items()},
        }
        return said | values | lists

    def of_this_run(self) -> Document:
        """The document with the files that this run wrote into its folder."""
        if not self.results:
            return self.document()
        said = f"{counted(self.resumed, 'choice')} of bits measured by an earlier run"
        more = self.document().plus(Sentence(said), resumed=self.resumed)
        files = ", ".join(map(str, self.results))
        return more.plus(Verbatim(f"wrote {files}"), results=self.results)
