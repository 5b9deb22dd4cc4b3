"""Tune: bits of each layer at the lowest cost within a budget that holds on both halves of data.

All pairs are scored once a choice, and each half of the queries is ranked in the whole gallery, as
`verify` ranks them. The mean of a measurement over all queries is then the average of its means
over the halves, weighted by their queries, and so no larger than the larger of the two: a mean
square error, the root of one, the loss of a recall in each way, and the worse of both ways, keep a
budget over all queries where they keep it on both halves. Medians, and intervals, have no such law:
the chosen bits are held to the budget on all queries too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs, replace_texts
from cimtool.base.grids import Grid, Value
from cimtool.base.named import unknown
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.base.toml_files import read_toml
from cimtool.experiments.options import VARIED, TuneOptions
from cimtool.experiments.sweeps.choice import keeps_budget, limits_text
from cimtool.experiments.sweeps.command import compile_words, toml_text, with_layers
from cimtool.experiments.sweeps.evaluator import Outcome, PointEvaluator, read_evaluation
from cimtool.experiments.sweeps.grid import COMPILED
from cimtool.experiments.sweeps.references import reference_name, references
from cimtool.experiments.sweeps.remarks import Remarks
from cimtool.experiments.tuning.search import Attempt, Search, probe
from cimtool.experiments.tuning.widths import (
    ORDER,
    BitAssignment,
    CostName,
    LayerCosts,
    Width,
    by_layer,
    check_cost,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import SettingOptions
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, File, files_of
from cimtool.loading.source import ModelSource
from cimtool.passes.trained_bits import trained_bits
from cimtool.reference.limits import check_measurable, check_metrics, within
from cimtool.reference.modality_names import Modalities, item_names
from cimtool.reference.queries import Selection
from cimtool.report.result import Result
from cimtool.verification.baselines import BaselineLoss
from cimtool.verification.faults import baseline_sentences


@dataclass(frozen=True)
class TunedStart:
    """Values of a grid, from which bits were taken off, and what came of it.

    `cost` is that of the bits chosen from here, and empty where the highest bits miss the budget.
    """

    values: Mapping[str, Value]
    metrics: Mapping[str, float]
    cost: Mapping[CostName, float]
    chosen: bool = False


@dataclass(frozen=True, repr=False)
class Tuned(Result):
    """The bits of each layer that tuning chose, the attempts, and metrics before and after.

    `starts` are all combinations of a grid of settings, each tuned; what follows is of the one that
    was chosen.
    `start` and `chosen` are metrics of the queries that the bits were chosen on, `held_out` those
    of the chosen bits on the other half, and `on_all` on all queries, as `verify` measures them,
    with `intervals`, and `against_raw` their loss from raw embeddings where widths agree. The last
    `taken_back` kept steps were undone for these two. `baselines` are metrics, on all queries with
    intervals, of scores that no hardware has touched. With `by_class` metrics of classes lead.
    `command` compiles it, None where it was not made from files.
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
        """The limits that other queries may exceed, by the intervals over these."""
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

    Bits come off those that target, `settings` and `options` say, which are those of `compile`. A
    `grid` of the settings VARIED is gone through: bits come off each combination whose highest bits
    keep the budget, and the cheapest of all is chosen. Bits are chosen on every second video of
    `data` and its texts as queries in the whole gallery; steps that miss the budget on the others,
    or on all, are taken back. The file goes to `output` (default
    `exports/<model>@<target>.settings.toml`). With a file `qrels` right is what it grades above 0.
    Raises CimError where the highest bits miss the budget, where the budget is of a broken float
    score for want of a and b, or rows of `data` calibrated (unless they are allowed or dropped).
    """
    if options.output is not None:
        check_output(Path(options.output), ".toml")
    source, by_name = ModelSource.of(options), options.part(SettingOptions)
    builds = _builds(options.target, options.settings, by_name, options.grid or {})
    if not options.budget:
        raise ArgumentError("{budget} is missing; expected METRIC=VALUE, such as logit_rmse=0.2")
    check_metrics("budget", options.budget)
    given = {name: value for name, value in by_name.items() if value is not None}
    if options.settings is not None:
        given = read_toml(Path(options.settings)) | given
    model = source.for_rows(options.calibration).load(say)
    rows, evaluated = read_evaluation(
        model, options.calibration, options.data, options.calibration_rows, options.qrels
    )
    check_measurable("budget", options.budget, evaluated.truth, evaluated.file)
    on = builds[0][1].target.name
    name = f"{model.name}@{on}.settings.toml"
    file = Path(options.output) if options.output else Path("exports") / name
    check_output(file, ".toml")
    known = references([model], evaluated, say, reference_name(model))
    remarks = Remarks.of({model.head.surrogate: model}, rows, evaluated, known)
    _require_reference(options.budget, remarks)
    evaluator = PointEvaluator.of({COMPILED: model}, rows, evaluated, known, None)
    say("the highest bits")
    sources = [Measurement.of(evaluator, build, halves(evaluated)) for _, build in builds]
    for one in sources:
        check_cost(one.costs, options.cost)
    _require_one_basis(options.cost, sources)
    kept = _starts_within(options.budget, sources, evaluated)
    tuned = {
        place: _tuned_from(sources[place], options.budget, options.cost, say) for place in kept
    }

    def price(place: int) -> list[float]:
        paid = sources[place].costs.cost(tuned[place].bits)
        return [paid[name] for name in ORDER[options.cost]]

    best = min(tuned, key=price)
    values, chosen = builds[best][0], tuned[best]
    costs, start, bits = sources[best].costs, sources[best].costs.bits, chosen.bits
    found, whole = sources[best].measured(bits), sources[best].resampled(bits)
    beside = known.baselines({model.head.surrogate: model.head})
    layers = by_layer(bits)
    texts = {file.name: toml_text(with_layers(given | values, layers))}
    (written,) = replace_texts(file.parent, texts, file.name)
    return Tuned(
        model=model.name,
        target=on,
        reference=reference_name(model),
        budget=options.budget,
        cost=options.cost,
        starts=[
            TunedStart(
                own,
                one.measured(one.costs.bits).chosen_on.metrics,
                one.costs.cost(tuned[place].bits) if place in tuned else {},
                place == best,
            )
            for place, ((own, _), one) in enumerate(zip(builds, sources, strict=True))
        ],
        start=sources[best].measured(start).chosen_on.metrics,
        start_cost=costs.cost(start),
        steps=chosen.steps,
        taken_back=chosen.taken_back,
        bits=layers,
        chosen=found.chosen_on.metrics,
        chosen_cost=costs.cost(bits),
        held_out=found.held_out.metrics,
        on_all=found.on_all.metrics,
        intervals=whole.intervals,
        against_raw=whole.against_raw,
        baselines={name: known.metrics(one) for name, one in beside.items()},
        baseline_intervals=dict(zip(beside, known.intervals(*beside.values()), strict=True)),
        by_class=evaluated.truth.by_class,
        modalities=evaluated.called,
        remarks=remarks,
        written=written,
        command=_command(source, options.calibration, options.target, written),
    )


def _command(
    source: ModelSource, calibration: EmbeddingsLike, target: str | Target, settings: Path
) -> str | None:
    """The command line that compiles what was tuned; None where something of it is no file."""
    rows = files_of(calibration)
    if not (source.files and rows and isinstance(target, str)):
        return None
    if source.poly is not None and not isinstance(source.poly, Path):
        return None
    return shlex.join(compile_words(source, rows, target, settings))


def _builds(
    target: str | Target, settings: File | None, by_name: Mapping[str, Any], grid: Grid
) -> list[tuple[dict[str, Value], Configuration]]:
    """Every combination of a grid's values, and the target and settings with these."""
    for key in grid:
        if key not in VARIED:
            raise ArgumentError("{grid} {}", str(unknown("key", key, VARIED)))
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return [(own, Configuration.of(target, settings, {**by_name, **own})) for own in combinations]


def _require_one_basis(cost: CostName, sources: Sequence[Measurement]) -> None:
    bases = dict.fromkeys(one.costs.energy_basis for one in sources)
    if cost == "energy" and len(bases) > 1:
        raise ArgumentError(
            "{cost} energy: those of the {grid} are on different bases, which are not compared "
            "({}); expected values of one basis, or {cost} conversions",
            " / ".join(bases),
        )


def _starts_within(
    budget: Mapping[str, float], sources: Sequence[Measurement], data: Embeddings
) -> list[int]:
    """The places of the starts whose highest bits keep the budget; CimError where none does."""
    kept, refused = list[int](), list[CimError]()
    for place, one in enumerate(sources):
        try:
            _require_start(budget, one.measured(one.costs.bits), data)
        except CimError as error:
            refused.append(error)
        else:
            kept.append(place)
    if not kept:
        raise refused[0]
    return kept


@dataclass(frozen=True)
class TunedBits:
    """The steps from one start, how many that were kept are taken back, and the bits left."""

    steps: Sequence[Attempt]
    taken_back: int
    bits: BitAssignment


def _tuned_from(
    source: Measurement, budget: Mapping[str, float], cost: CostName, say: Say
) -> TunedBits:
    """Take bits off one start, as long as the budget holds."""
    costs, start = source.costs, source.costs.bits

    def chosen_on(bits: BitAssignment) -> Outcome:
        return source.measured(bits).chosen_on

    tuned = {width: bits for width, bits in start.items() if costs.below(width, bits)}
    search = Search(costs, ORDER[cost], probe(tuned, chosen_on, say), start)
    steps = search.run(chosen_on, lambda one: keeps_budget(one, budget), say)
    kept = [*(step.bits for step in reversed(steps) if step.kept), start]
    back = next(k for k, bits in enumerate(kept) if source.measured(bits).keep(budget))
    return TunedBits(steps, back, kept[back])


@dataclass(frozen=True)
class HalvesMeasured:
    """The outcomes of one choice of bits: on the half it is chosen on, the other, and on all."""

    chosen_on: Outcome
    held_out: Outcome
    on_all: Outcome

    def keep(self, budget: Mapping[str, float]) -> bool:
        """Hold all three to the budget."""
        return all(keeps_budget(one, budget) for one in vars(self).values())


@dataclass(frozen=True, eq=False)
class Measurement:
    """Costs of the layers of one build, and measurements of its bits: each choice compiled once.

    Once more for the intervals of all queries.
    """

    evaluator: PointEvaluator
    costs: LayerCosts
    selections: tuple[Selection, Selection]
    _measured: dict[tuple[tuple[Width, int], ...], HalvesMeasured] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        evaluator: PointEvaluator,
        highest: Configuration,
        selections: tuple[Selection, Selection],
    ) -> Measurement:
        """Compile the highest bits."""
        highest = evaluator.with_trained_bits(highest)
        program = evaluator.compiled(highest.settings, silent)
        if highest.settings.score_mapping == "in-memory":
            program = evaluator.with_gallery(program, highest.settings)
        kept = {
            Width(layer, key)
            for layer, bits in trained_bits(evaluator.trained, highest.settings).items()
            for key in bits
        }
        return cls(evaluator, LayerCosts.of(program, highest, kept), selections)

    def measured(self, bits: BitAssignment) -> HalvesMeasured:
        """The outcomes of bits on the halves and on all."""
        key = tuple(bits.items())
        if key not in self._measured:
            selections = (*self.selections, None)
            build = self.costs.configured(bits)
            self._measured[key] = HalvesMeasured(*self.evaluator.evaluate_on(build, selections))
        return self._measured[key]

    def resampled(self, bits: BitAssignment) -> Outcome:
        """The outcome of bits on all queries, with intervals."""
        return self.evaluator.evaluate(self.costs.configured(bits))


PLACES = {"chosen_on": "a half of", "held_out": "a half of", "on_all": "all of"}


def _require_reference(budget: Mapping[str, float], remarks: Remarks) -> None:
    if broken := remarks.broken_reference:
        raise ArgumentError(
            "{budget} {} is of the float score itself, for a and b are not known. {} Expected {a} "
            "and {b}, or another score",
            limits_text(budget),
            broken,
        )


def _require_start(budget: Mapping[str, float], first: HalvesMeasured, data: Embeddings) -> None:
    for name, most in budget.items():
        for half, place in PLACES.items():
            found: Outcome = getattr(first, half)
            if found.error is not None:
                raise CimError(found.error)
            if not within(found.metrics[name], most):
                raise ArgumentError(
                    "{budget} {}={:g}: the highest bits give {:.4g} on {} {}; expected a larger "
                    "budget, or more bits to start from ({settings})",
                    name,
                    most,
                    found.metrics[name],
                    place,
                    data.file,
                )


def halves(data: Embeddings) -> tuple[Selection, Selection]:
    """Every second video with its texts as queries, and the others; CimError for hardly any."""
    parts = []
    for first in (0, 1):
        videos = np.arange(first, len(data.video), 2)
        texts = np.flatnonzero(data.truth.text_to_video % 2 == first)
        if len(texts) < 2 or len(videos) < 2:
            raise CimError(
                f"{data.file}: {data.counted} leave a half, every second {data.called[1]} and its "
                f"{item_names(data.called)[0]}, with fewer than 2 queries; expected 2 of each in "
                "both"
            )
        parts.append(Selection(texts, videos))
    return parts[0], parts[1]
