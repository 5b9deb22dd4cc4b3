"""Tune: bits at the lowest cost within a budget that holds on both halves of data.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs, replace_texts
from cimtool.base.grids import Value
from cimtool.base.modality_names import Modalities, item_names
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.base.toml_files import read_toml, toml_text
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.choice_costs import ChoiceCosts
from cimtool.experiments.compiled import Outcome, PointEvaluator
from cimtool.experiments.engine import (
    ExperimentKind,
    PagedResult,
    PointFolder,
    check_workers,
    here,
    values_name,
    values_text,
    workers,
    write_page,
)
from cimtool.experiments.objectives import CostName, CostObjective
from cimtool.experiments.options import TuneOptions
from cimtool.experiments.points import COMPILED, compile_words, with_layers
from cimtool.experiments.references import Remarks, kept_references, reference_name
from cimtool.experiments.rows import IDENTITY, check_gallery, measured_identity, measured_rows
from cimtool.experiments.starts import Builds, starts_of
from cimtool.experiments.widths import (
    Attempt,
    BitAssignment,
    LayerCosts,
    Search,
    Width,
    by_layer,
    of_features,
    of_layers,
    probe,
    probes,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import SettingOptions
from cimtool.loading.embeddings import Embeddings, files_of
from cimtool.loading.source import ModelSource
from cimtool.passes.trained_bits import trained_bits
from cimtool.reference.limits import check_measurable, within
from cimtool.reference.montecarlo import check_samples
from cimtool.reference.queries import Selection
from cimtool.report.document import Document, Sentence, Verbatim
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
    Costs of a query are against `gallery` items. `features` are the bits of mu and of the variance,
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
    def verdict(self) -> list[Sentence]:
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
            "verdict": [one.text for one in self.verdict],
            "worth": self.outcome.worth,
            "warnings": self.first,
            "notes": self.remarks.notes,
        }
        steps = [step.to_json() for step in self.steps]
        return said | values | {"starts": [vars(one) for one in self.starts], "steps": steps}

    def of_this_run(self) -> Document:
        """The document with the files that this run wrote into its folder."""
        if not self.results:
            return self.document()
        said = f"{counted(self.resumed, 'choice')} of bits measured by an earlier run"
        more = self.document().plus(Sentence(said), resumed=self.resumed)
        files = ", ".join(map(str, self.results))
        return more.plus(Verbatim(f"wrote {files}"), results=self.results)


@keeping_inputs
@takes(TuneOptions)
def tune(options: TuneOptions, say: Say = silent) -> Tuned:
    """Choose bits of layers and features at the lowest cost within `budget`, as a settings file.

    The `objective` is a cost, or a sum such as "query_energy=1,arrays=0.5" of shares of what the
    start costs: `query_energy` and `latency` of a query among `gallery` items (default: the videos
    of `data`), `encoding_energy` of a text and a video, `arrays` and `conversions`. Without an
    objective it is `query_energy` if a `gallery` is given, else `arrays`.

    Tuning starts from the bits of target, `settings` and settings by name, as in `compile`. With a
    `grid` of the settings VARIED, it starts from each combination whose highest bits keep the
    budget, and chooses the cheapest result. If nothing says how a `gallery` is scored, shortlists
    from the arrays are starts beside the digital score. A start is not tuned if its fewest bits
    cost more than what is chosen already. Bits are chosen on every second video of `data` and its
    texts, as queries in the whole gallery. Steps that miss the budget on the other queries or on
    all are taken back. The file goes to `output` (default
    `exports/<model>@<target>.settings.toml`). With a file `qrels`, items that it grades above 0 are
    right. With a `folder`, each measured choice of bits is kept there, also for other budgets,
    costs, targets and settings, and results and a page are written. `jobs` processes or the Dask
    cluster at `dask` measure starts and probes side by side. Raises CimError if the highest bits
    miss the budget, if the reference is a broken float score because a and b are unknown, if rows
    of `data` calibrated (unless they are allowed or dropped), or if the folder holds the tuning of
    another model or other data.
    """
    source, (builds, beside), limits, objective = _asked(options)
    model = source.for_rows(options.calibration).load(say)
    rows, data = measured_rows(model, options)
    of_logit = model.head.predicts_logit
    check_measurable("budget", limits.limits, data.truth, data.file, of_logit)
    name = f"{model.name}@{builds[0][1].target.name}.settings.toml"
    file = Path(options.output or Path("exports") / name)
    check_output(file, ".toml")
    place = None if options.folder is None else Path(options.folder)
    reference, surrogate = reference_name(model), model.head.surrogate
    whose = measured_identity(model, f"{reference}, {model.head.measure}", rows, data)
    with workers(options, place) as compute, TUNING.opened(place, whose, compute) as folder:
        known = kept_references(place, [model], data, say, reference, options.samples)
        remarks = Remarks.of({surrogate: model}, rows, data, known)
        _check_reference(remarks, limits)
        evaluator = PointEvaluator.of({COMPILED: model}, rows, data, known, None, options.gallery)
        choices = Choices(evaluator, (*halves(data), None), folder, whose, limits.limits)
        starts = list[TuningStart]()
        for values, build in builds:
            starts.append(TuningStart.of(values, build, choices, objective))
            objective = starts[0].costs.objective
        untried = list[str]()
        for values, build in beside:
            try:
                starts.append(TuningStart.of(values, build, choices, objective))
                starts[-1].costs.check()
            except CimError as error:
                untried.append(f"{values_text(values)} was not tried: {error}")
        kept = _within(starts, limits, data.file, say)
        best, tuned = _cheapest(kept, limits, say)
        whole = evaluator.evaluate(best.costs.configured(best.bits))  # with intervals
        written = _write_settings(options, best, file)
        outcomes = best.measured(best.bits)
        baselines, intervals = known.baseline_metrics({surrogate: model.head})
        found = Tuned(
            model=model.name,
            target=builds[0][1].target.name,
            reference=reference,
            budget=limits.limits,
            objective=objective.weights,
            gallery=options.gallery or len(data.video),
            starts=[
                one.summary(one in tuned, one is best, one in kept and one not in tuned)
                for one in starts
            ],
            start=best.measured(best.costs.bits).chosen_on.metrics,
            start_cost=best.costs.cost(best.costs.bits),
            steps=best.steps,
            taken_back=best.taken_back,
            bits=by_layer(of_layers(best.bits)),
            features=of_features(best.bits),
            chosen=outcomes.chosen_on.metrics,
            chosen_cost=best.cost,
            held_out=outcomes.held_out.metrics,
            on_all=outcomes.on_all.metrics,
            intervals=whole.intervals,
            outcome=whole,
            baselines=baselines,
            baseline_intervals=intervals,
            by_class=data.truth.by_class,
            modalities=data.called,
            remarks=remarks,
            written=written,
            command=_command(options, source, written),
            untried=untried,
            resumed=folder.resumed,
        )
        return found if place is None else replace(found, results=write_page(found, place))


def _asked(
    options: TuneOptions,
) -> tuple[ModelSource, tuple[Builds, Builds], DriftBudget, CostObjective]:
    """The model, the starts, the budget and the objective; CimError for a mistake in them."""
    if options.output is not None:
        check_output(Path(options.output), ".toml")
    check_workers(options)
    check_samples(options.samples)
    check_gallery(options.gallery)
    usual = "arrays" if options.gallery is None else "query_energy"
    objective = CostObjective.of(usual if options.objective is None else options.objective)
    source, builds = ModelSource.of(options), starts_of(options, objective)
    if not options.budget:
        raise ArgumentError("{budget} is missing; expected METRIC=VALUE, such as logit_rmse=0.2")
    limits = DriftBudget(options.budget)
    limits.check(None)
    return source, builds, limits, objective


def _check_reference(remarks: Remarks, limits: DriftBudget) -> None:
    """Raise CimError if the reference is a broken float score."""
    if broken := remarks.broken_reference:
        raise ArgumentError(
            "{budget} {} would be measured from the float score, as a and b are not known. {} "
            "Expected {a} and {b}, or another score",
            limits.text,
            broken,
        )


def _within(
    starts: Sequence[TuningStart], limits: DriftBudget, file: str, say: Say
) -> list[TuningStart]:
    """The starts whose highest bits keep the budget; CimError if none does or costs differ."""
    for one in starts:
        one.costs.check()
    objective = starts[0].costs.objective
    bases = dict.fromkeys(one.costs.basis for one in starts)
    if len(bases) > 1 and objective.of_energy:
        raise ArgumentError(
            "{objective} {}: the energies of the {grid} are on different bases and cannot be "
            "compared ({}); expected values of one basis, or {objective} conversions",
            objective.text,
            " / ".join(bases),
        )
    say("the highest bits")
    if len(starts) > 1:
        highest = {values_text(one.values): one.costs.configured(one.costs.bits) for one in starts}
        starts[0].choices.measured(highest, say, "start")
    refusals = [one.refusal(limits.limits, file) for one in starts]
    if refusals[0] is not None and None not in refusals:
        raise refusals[0]
    return [one for one, error in zip(starts, refusals, strict=True) if error is None]


def _cheapest(
    kept: Sequence[TuningStart], limits: DriftBudget, say: Say
) -> tuple[TuningStart, list[TuningStart]]:
    """Tune starts, the cheapest first; the one whose bits cost least, and all that were tuned.

    A start whose fewest bits cost more than the best bits so far cannot be chosen.
    """
    best, tuned = None, list[TuningStart]()
    for one in sorted(kept, key=lambda one: one.costs.prices(one.costs.bits)):
        if best is not None and one.costs.least > best.costs.prices(best.bits):
            continue
        one.tune(limits, say)
        tuned.append(one)
        best = min(tuned, key=lambda one: one.costs.prices(one.bits))
    assert best is not None
    return best, tuned


def _write_settings(options: TuneOptions, best: TuningStart, file: Path) -> Path:
    """Write the settings that were given, with the values and the bits that were chosen."""
    by_name = options.part(SettingOptions)
    given = {name: value for name, value in by_name.items() if value is not None}
    if options.settings is not None:
        given = read_toml(Path(options.settings)) | given
    features = of_features(best.bits)
    if features != of_features(best.costs.bits):
        given = given | features
    text = toml_text(with_layers({**given, **best.values}, by_layer(of_layers(best.bits))))
    (written,) = replace_texts(file.parent, {file.name: text}, file.name)
    return written


def _command(options: TuneOptions, source: ModelSource, written: Path) -> str | None:
    """The command line that compiles the result; None if the inputs were not files."""
    calibrating, target = files_of(options.calibration), options.target
    if not (source.files and calibrating and isinstance(target, str)):
        return None
    if source.poly is not None and not isinstance(source.poly, Path):
        return None
    return shlex.join(compile_words(source, calibrating, target, written))


class HalvesMeasured(NamedTuple):
    """The outcomes of one choice of bits: on the half that chooses, on the other, and on all."""

    chosen_on: Outcome
    held_out: Outcome
    on_all: Outcome

    @property
    def error(self) -> str | None:
        """The sentence of the error that ended it; None if it was measured."""
        return self.chosen_on.error

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {name: one.to_json() for name, one in self._asdict().items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HalvesMeasured:
        """Read what `to_json` returned; errors as in `Outcome.from_json`."""
        found = cls(*(Outcome.from_json(values[name]) for name in cls._fields))
        if not all("centred_rmse" in one.metrics for one in found):
            raise ValueError("a half has no error")
        return found


TUNING = ExperimentKind("tuning", "tuning.json", 2, IDENTITY, HalvesMeasured.from_json)


@dataclass(frozen=True)
class BitsPoint:
    """The point of a choice of bits; `done` names it."""

    build: Configuration
    done: str

    def to_json(self) -> dict[str, Any]:
        """The target and the settings as plain values."""
        return {"target": self.build.target.name, "settings": self.build.settings.to_json()}


@dataclass(frozen=True, eq=False)
class HalvesEvaluator:
    """Compiles choices of bits, and measures each on both halves of the queries and on all."""

    evaluator: PointEvaluator
    selections: tuple[Selection, Selection, None]

    def outcome(self, point: BitsPoint) -> HalvesMeasured:
        """The outcomes of a choice."""
        return HalvesMeasured(*self.evaluator.evaluate_on(point.build, self.selections))


@dataclass(frozen=True, eq=False)
class Choices(HalvesEvaluator):
    """Choices of bits that are measured once, and kept in the folder of a tuning.

    An earlier outcome serves if it has all metrics of the `budget`.
    """

    folder: PointFolder[HalvesMeasured]
    whose: Mapping[str, str]
    budget: Mapping[str, float]

    def measured(
        self, builds: Mapping[str, Configuration], say: Say = silent, noun: str = "choice"
    ) -> list[HalvesMeasured]:
        """The outcomes of named builds; workers measure several side by side."""
        identity = {**TUNING.versions, **self.whose}
        digests = {
            name: values_name(identity, one.target.to_json(), one.settings.to_json())
            for name, one in builds.items()
        }
        points = {digest: BitsPoint(builds[name], name) for name, digest in digests.items()}
        folder = self.folder if len(points) > 1 else replace(self.folder, compute=here)
        runner = HalvesEvaluator(self.evaluator, self.selections)
        done = folder.outcomes(points, lambda left: runner, say, noun, self._usable)
        return [done[digest] for digest in digests.values()]

    def _usable(self, digest: str, known: HalvesMeasured) -> bool:
        return all(self.budget.keys() <= one.metrics.keys() for one in known)


@dataclass(eq=False)
class TuningStart:
    """Values of a grid, and the tuning that starts from them.

    `steps` were tried. The last `taken_back` of the kept steps were undone, which leaves `bits`.
    """

    values: Mapping[str, Value]
    choices: Choices
    costs: ChoiceCosts
    bits: BitAssignment
    steps: Sequence[Attempt] = ()
    taken_back: int = 0

    @classmethod
    def of(
        cls,
        values: Mapping[str, Value],
        highest: Configuration,
        choices: Choices,
        objective: CostObjective,
    ) -> TuningStart:
        """Compile the highest bits; their costs are what an objective without `first` refers to."""
        evaluator = choices.evaluator
        highest = evaluator.with_trained_bits(highest)
        first = evaluator.estimated(highest)
        trained = trained_bits(evaluator.trained, highest.settings).items()
        kept = {Width(layer, key) for layer, bits in trained for key in bits}
        layers = LayerCosts.of(first.program, highest, kept, first.gallery)
        costs = ChoiceCosts(layers, objective, evaluator.estimated)
        if not objective.first:
            costs = replace(costs, objective=replace(objective, first=costs.cost(costs.bits)))
        return cls(values, choices, costs, costs.bits)

    def summary(self, tuned: bool, chosen: bool, dearer: bool) -> TunedStart:
        """The start in the result of the tuning."""
        metrics = self.measured(self.costs.bits).chosen_on.metrics
        first = self.costs.cost(self.costs.bits)
        return TunedStart(self.values, metrics, first, self.cost if tuned else {}, chosen, dearer)

    @property
    def cost(self) -> dict[CostName, float]:
        """The cost of the remaining bits."""
        return self.costs.cost(self.bits)

    def measured(self, bits: BitAssignment) -> HalvesMeasured:
        """The outcomes of bits on the halves and on all."""
        (found,) = self.choices.measured({"bits": self.costs.configured(bits)})
        return found

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

    def tune(self, budget: DriftBudget, say: Say) -> None:
        """Lower bits as long as the budget holds."""
        costs, start = self.costs, self.costs.bits

        def chosen_on(bits: BitAssignment) -> Outcome:
            return self.measured(bits).chosen_on

        tuned = {width: bits for width, bits in start.items() if costs.worthwhile(width)}
        search = Search(costs, self._probed(tuned, say), start)
        self.steps = search.run(chosen_on, budget.kept_by, say)
        kept = [*(step.bits for step in reversed(self.steps) if step.kept), start]
        back = (k for k, bits in enumerate(kept) if all(map(budget.kept_by, self.measured(bits))))
        self.taken_back = next(back)
        self.bits = kept[self.taken_back]

    def _probed(self, tuned: BitAssignment, say: Say) -> dict[Width, float]:
        """The squared error that each of the tuned widths adds."""
        lower = {width: {**self.costs.bits, **bits} for width, bits in probes(tuned).items()}
        builds = {
            f"{width} = {bits[width]}": self.costs.configured(bits) for width, bits in lower.items()
        }
        found = [one.chosen_on for one in self.choices.measured(builds, say, "probe")]
        first = self.measured(self.costs.bits).chosen_on
        return probe(tuned, first, dict(zip(lower, found, strict=True)))


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
