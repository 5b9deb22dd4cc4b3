"""Tune: bits at the lowest cost within a budget that holds on both halves of data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs, replace_texts
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.base.threads import one_blas_thread
from cimtool.base.toml_files import toml_text
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.compiled import PointEvaluator
from cimtool.experiments.engine import check_workers, values_text, workers, write_page
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.options import TuneOptions
from cimtool.experiments.points import COMPILED, compile_words, with_layers
from cimtool.experiments.references import Remarks, kept_references, reference_name
from cimtool.experiments.rows import check_gallery, measured_identity, measured_rows
from cimtool.experiments.starts import Builds, starts_of
from cimtool.experiments.tuned import Tuned
from cimtool.experiments.tuning_start import TUNING, Choices, TuningStart, halves
from cimtool.experiments.widths import by_layer, of_features, of_layers
from cimtool.hardware.settings import SettingOptions, read_settings
from cimtool.loading.embeddings import files_of
from cimtool.loading.source import ModelSource
from cimtool.reference.limits import check_measurable
from cimtool.reference.montecarlo import check_samples


@keeping_inputs
@takes(TuneOptions)
@one_blas_thread
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
            changes=best.costs.changes(best.bits, starts[0].costs),
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
        given = read_settings(Path(options.settings)) | given
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
