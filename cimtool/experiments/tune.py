"""Tune: bits of each layer at the lowest cost within a budget that holds on both halves of data.

All pairs are scored once per choice. Each half of the queries is ranked in the whole gallery, as
`verify` ranks them. The mean of a measurement over all queries is the weighted average of its means
over the halves, so it is never larger than the larger mean. This holds for a mean square error, its
root, the loss of a recall in each way, and the worse of both ways: if they keep the budget on both
halves, they keep it on all queries. Medians and intervals have no such law, so the chosen bits must
keep the budget on all queries too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs, replace_texts
from cimtool.base.grids import Grid, Value
from cimtool.base.modality_names import Modalities, item_names
from cimtool.base.named import unknown
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.base.toml_files import read_toml, toml_text
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.compiled import Outcome, PointEvaluator, measured_rows
from cimtool.experiments.options import VARIED, TuneOptions
from cimtool.experiments.points import COMPILED, compile_words, with_layers
from cimtool.experiments.references import Remarks, reference_name, references
from cimtool.experiments.widths import (
    ORDER,
    Attempt,
    BitAssignment,
    CostName,
    LayerCosts,
    Search,
    Width,
    by_layer,
    check_cost,
    probe,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import SettingOptions
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings, File, files_of
from cimtool.loading.source import ModelSource
from cimtool.passes.trained_bits import trained_bits
from cimtool.reference.limits import check_measurable, within
from cimtool.reference.queries import Selection
from cimtool.report.result import Result
from cimtool.verification.drift import BaselineLoss
from cimtool.verification.notes import baseline_sentences


@dataclass(frozen=True)
class TunedStart:
    """Values of a grid from which tuning started, and its result.

    `cost` is the cost of the bits chosen from here; empty if the highest bits miss the budget.
    """

    values: Mapping[str, Value]
    metrics: Mapping[str, float]
    cost: Mapping[CostName, float]
    chosen: bool = False


@dataclass(frozen=True, repr=False)
class Tuned(Result, shown_by="cimtool.experiments.render_tuned"):
    """The bits of each layer that tuning chose, the attempts, and metrics before and after.

    `starts` are all combinations of a grid of settings; the other fields are for the chosen one.
    `start` and `chosen` are metrics on the queries that the bits were chosen on. For the chosen
    bits, `held_out` are metrics on the other half, and `on_all` on all queries, as `verify`
    measures them, with `intervals`. `against_raw` is their loss from raw embeddings, if widths
    agree. The last `taken_back` kept steps were undone because they missed the budget on the other
    half or on all. `baselines` are metrics of scores without hardware, on all queries, with
    intervals. If `by_class`, metrics of classes lead. `command` compiles the result; None if the
    inputs were not files.
    """

    model: str
    target: str
    reference: str
    budget: Mapping[str, float]
    cost: CostName
    starts: Sequence[TunedStart]
    start: Mapping[str, float]
    start_cost: Mapping[CostName, float]
    steps: Sequence[Attempt]
    taken_back: int
    bits: Mapping[str, Mapping[str, int]]
    chosen: Mapping[str, float]
    chosen_cost: Mapping[CostName, float]
    held_out: Mapping[str, float]
    on_all: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    against_raw: BaselineLoss | None
    baselines: Mapping[str, Mapping[str, float]]
    baseline_intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    by_class: bool
    modalities: Modalities
    remarks: Remarks
    written: Path
    command: str | None

    @property
    def first(self) -> list[str]:
        """Sentences that a reader must see before any figure."""
        raw = () if self.against_raw is None else (self.against_raw,)
        return self.remarks.first([*baseline_sentences(raw)])

    @property
    def risky(self) -> dict[str, float]:
        """The limits that other queries may exceed, because the intervals reach beyond them."""
        return {
            name: most
            for name, most in self.budget.items()
            if name in self.intervals and not within(self.intervals[name][1], most)
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        values = {name: value for name, value in vars(self).items() if name != "remarks"}
        said = {"warnings": self.first, "notes": self.remarks.notes}
        steps = [step.to_json() for step in self.steps]
        return said | values | {"starts": [vars(one) for one in self.starts], "steps": steps}


@keeping_inputs
@takes(TuneOptions)
def tune(options: TuneOptions, say: Say = silent) -> Tuned:
    """Choose the bits of each layer at the lowest `cost` within `budget`, as a settings file.

    Tuning starts from the bits of target, `settings` and settings by name, as in `compile`. With a
    `grid` of the settings VARIED, it starts from each combination whose highest bits keep the
    budget, and chooses the cheapest result. Bits are chosen on every second video of `data` and its
    texts, as queries in the whole gallery. Steps that miss the budget on the other queries or on
    all are taken back. The file goes to `output` (default
    `exports/<model>@<target>.settings.toml`). With a file `qrels`, items that it grades above 0 are
    right. Raises CimError if the highest bits miss the budget, if the reference is a broken float
    score because a and b are unknown, or if rows of `data` calibrated (unless they are allowed or
    dropped).
    """
    target, budget, cost = options.target, options.budget, options.cost
    if options.output is not None:
        check_output(Path(options.output), ".toml")
    source, by_name = ModelSource.of(options), options.part(SettingOptions)
    builds = _builds(target, options.settings, by_name, options.grid or {})
    if not budget:
        raise ArgumentError("{budget} is missing; expected METRIC=VALUE, such as logit_rmse=0.2")
    limits = DriftBudget(budget)
    limits.check(None)
    given = {name: value for name, value in by_name.items() if value is not None}
    if options.settings is not None:
        given = read_toml(Path(options.settings)) | given
    model = source.for_rows(options.calibration).load(say)
    rows, evaluated = measured_rows(
        model, options.calibration, options.data, options.qrels, options.calibration_rows
    )
    check_measurable("budget", budget, evaluated.truth, evaluated.file)
    on = builds[0][1].target.name
    name = f"{model.name}@{on}.settings.toml"
    file = Path(options.output or Path("exports") / name)
    check_output(file, ".toml")
    known = references([model], evaluated, say, reference_name(model))
    remarks = Remarks.of({model.head.surrogate: model}, rows, evaluated, known)
    if broken := remarks.broken_reference:
        raise ArgumentError(
            "{budget} {} would be measured from the float score, as a and b are not known. {} "
            "Expected {a} and {b}, or another score",
            limits.text,
            broken,
        )
    evaluator = PointEvaluator.of({COMPILED: model}, rows, evaluated, known, None)
    say("the highest bits")
    parts = halves(evaluated)
    starts = [TuningStart.of(values, build, evaluator, parts) for values, build in builds]
    for one in starts:
        check_cost(one.costs, cost)
    bases = dict.fromkeys(one.costs.energy_basis for one in starts)
    if cost == "energy" and len(bases) > 1:
        raise ArgumentError(
            "{cost} energy: the energies of the {grid} are on different bases and cannot be "
            "compared ({}); expected values of one basis, or {cost} conversions",
            " / ".join(bases),
        )
    refusals = [one.refusal(budget, evaluated.file) for one in starts]
    if refusals[0] is not None and None not in refusals:
        raise refusals[0]
    kept = [one for one, error in zip(starts, refusals, strict=True) if error is None]
    for one in kept:
        one.tune(limits, cost, say)
    best = min(kept, key=lambda one: [one.cost[name] for name in ORDER[cost]])
    found = best.measured(best.bits)
    whole = evaluator.evaluate(best.costs.configured(best.bits))  # with intervals
    baselines, intervals = known.baseline_metrics({model.head.surrogate: model.head})
    layers = by_layer(best.bits)
    texts = {file.name: toml_text(with_layers({**given, **best.values}, layers))}
    (written,) = replace_texts(file.parent, texts, file.name)
    calibrating = files_of(options.calibration)
    from_files = source.files and calibrating and isinstance(target, str)
    command = None
    if from_files and (source.poly is None or isinstance(source.poly, Path)):
        command = shlex.join(compile_words(source, calibrating, str(target), written))
    return Tuned(
        model=model.name,
        target=on,
        reference=reference_name(model),
        budget=budget,
        cost=cost,
        starts=[
            TunedStart(
                one.values,
                one.measured(one.costs.bits).chosen_on.metrics,
                one.cost if one in kept else {},
                one is best,
            )
            for one in starts
        ],
        start=best.measured(best.costs.bits).chosen_on.metrics,
        start_cost=best.costs.cost(best.costs.bits),
        steps=best.steps,
        taken_back=best.taken_back,
        bits=layers,
        chosen=found.chosen_on.metrics,
        chosen_cost=best.cost,
        held_out=found.held_out.metrics,
        on_all=found.on_all.metrics,
        intervals=whole.intervals,
        against_raw=whole.against_raw,
        baselines=baselines,
        baseline_intervals=intervals,
        by_class=evaluated.truth.by_class,
        modalities=evaluated.called,
        remarks=remarks,
        written=written,
        command=command,
    )


def _builds(
    target: str | Target, settings: File | None, by_name: Mapping[str, Any], grid: Grid
) -> list[tuple[dict[str, Value], Configuration]]:
    """Every combination of a grid's values, and the target and settings with these."""
    for key in grid:
        if key not in VARIED:
            raise ArgumentError("{grid} {}", str(unknown("key", key, VARIED)))
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return [(own, Configuration.of(target, settings, {**by_name, **own})) for own in combinations]


class HalvesMeasured(NamedTuple):
    """The outcomes of one choice of bits: on the half that chooses, on the other, and on all."""

    chosen_on: Outcome
    held_out: Outcome
    on_all: Outcome


@dataclass(eq=False)
class TuningStart:
    """Values of a grid, and the tuning that starts from them; each choice is compiled once.

    `steps` were tried. The last `taken_back` of the kept steps were undone, which leaves `bits`.
    """

    values: Mapping[str, Value]
    evaluator: PointEvaluator
    selections: tuple[Selection, Selection]
    costs: LayerCosts
    bits: BitAssignment
    steps: Sequence[Attempt] = ()
    taken_back: int = 0
    _measured: dict[tuple[tuple[Width, int], ...], HalvesMeasured] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        values: Mapping[str, Value],
        highest: Configuration,
        evaluator: PointEvaluator,
        selections: tuple[Selection, Selection],
    ) -> TuningStart:
        """Compile the highest bits."""
        highest = evaluator.with_trained_bits(highest)
        program = evaluator.compiled(highest.settings, silent)
        if highest.settings.score_mapping == "in-memory":
            program = evaluator.with_gallery(program, highest.settings)
        trained = trained_bits(evaluator.trained, highest.settings).items()
        kept = {Width(layer, key) for layer, bits in trained for key in bits}
        costs = LayerCosts.of(program, highest, kept)
        return cls(values, evaluator, selections, costs, costs.bits)

    @property
    def cost(self) -> dict[CostName, float]:
        """The cost of the remaining bits."""
        return self.costs.cost(self.bits)

    def measured(self, bits: BitAssignment) -> HalvesMeasured:
        """The outcomes of bits on the halves and on all."""
        key = tuple(bits.items())
        if key not in self._measured:
            selections = (*self.selections, None)
            build = self.costs.configured(bits)
            self._measured[key] = HalvesMeasured(*self.evaluator.evaluate_on(build, selections))
        return self._measured[key]

    def refusal(self, budget: Mapping[str, float], file: str) -> CimError | None:
        """The error if the highest bits miss the budget on a half of a file's rows or on all."""
        places = ("a half of", "a half of", "all of")
        for name, most in budget.items():
            for found, place in zip(self.measured(self.costs.bits), places, strict=True):
                if found.error is not None:
                    return CimError(found.error)
                if not within(found.metrics[name], most):
                    return ArgumentError(
                        "{budget} {}={:g}: the highest bits give {:.4g} on {} {}; expected a "
                        "larger budget, or more bits to start from ({settings})",
                        name, most, found.metrics[name], place, file,
                    )  # fmt: skip
        return None

    def tune(self, budget: DriftBudget, cost: CostName, say: Say) -> None:
        """Lower bits as long as the budget holds."""
        costs, start = self.costs, self.costs.bits

        def chosen_on(bits: BitAssignment) -> Outcome:
            return self.measured(bits).chosen_on

        tuned = {width: bits for width, bits in start.items() if costs.below(width, bits)}
        search = Search(costs, ORDER[cost], probe(tuned, chosen_on, say), start)
        self.steps = search.run(chosen_on, budget.kept_by, say)
        kept = [*(step.bits for step in reversed(self.steps) if step.kept), start]
        back = (k for k, bits in enumerate(kept) if all(map(budget.kept_by, self.measured(bits))))
        self.taken_back = next(back)
        self.bits = kept[self.taken_back]


def halves(data: Embeddings) -> tuple[Selection, Selection]:
    """Every second video with its texts, and the others, as queries; CimError for fewer than 2."""
    parts = []
    for first in (0, 1):
        videos = np.arange(first, len(data.video), 2)
        texts = np.flatnonzero(data.truth.text_to_video % 2 == first)
        if len(texts) < 2 or len(videos) < 2:
            raise CimError(
                f"{data.file}: {data.counted} are too few: one half (every second {data.called[1]} "
                f"with its {item_names(data.called)[0]}) has fewer than 2 queries; expected 2 of "
                "each in both"
            )
        parts.append(Selection(texts, videos))
    return parts[0], parts[1]
