"""A sweep: shared work once, then every point that no earlier run has done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from cimtool.base.errors import Argument, ArgumentError, CheckFailed
from cimtool.base.files import keeping_inputs, replace_files, text_bytes
from cimtool.base.grids import GridKey
from cimtool.base.named import nearest
from cimtool.base.options import takes
from cimtool.base.progress import Countdown, PartDone, Say, silent
from cimtool.bundle.compilation import layer_names
from cimtool.bundle.dies import check_trials
from cimtool.experiments.options import SweepOptions
from cimtool.experiments.sweeps.choice import Choice, cheapest, limits_text
from cimtool.experiments.sweeps.command import SETTINGS_FILE, TARGET_FILE, Sources, compile_command
from cimtool.experiments.sweeps.dies import check_min_yield
from cimtool.experiments.sweeps.evaluator import (
    DieRequest,
    Outcome,
    PointEvaluator,
    read_evaluation,
)
from cimtool.experiments.sweeps.folder import SweepFolder, opened, point_digest, sweep_identity
from cimtool.experiments.sweeps.grid import LAYERS, Point, ScoreChoice, points, read_grid
from cimtool.experiments.sweeps.references import reference_name, references
from cimtool.experiments.sweeps.remarks import Remarks
from cimtool.experiments.sweeps.results import TABLES, Sweep, TableFormat, check_format, sweep_files
from cimtool.experiments.sweeps.scores import check_scores, fitted_in, scored_models
from cimtool.experiments.sweeps.workers import Compute, Outcomes, workers
from cimtool.hardware.keys import ScoreMapping
from cimtool.hardware.noise.spec import Noise, load_noise
from cimtool.hardware.noise.times import parse_time
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import File, files_of
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource
from cimtool.passes.gallery import score_layers
from cimtool.reference.limits import check_measurable, check_metrics
from cimtool.reference.modality_names import layer_matches

MOST_JOBS = 1024
"""Processes on one machine; each holds a model."""


class PointsFailed(CheckFailed):
    """Points failed, or none is within the budget; `sweep` holds the others."""

    def __init__(self, sweep: Sweep, sentence: str):
        super().__init__(sentence)
        self.sweep = sweep


@keeping_inputs
@takes(SweepOptions)
def sweep(options: SweepOptions, say: Say = silent) -> Sweep:
    """Compile a model for every point of a grid, and measure drift and cost of each on `data`.

    `grid` has the values of settings (`weight_bits`), of `target`, of keys of the target's file
    (`target.rows_active`), and of the score: `head`, `degree` of a polynomial that is fitted to the
    `teacher`, and `samples` of Monte Carlo beside the points. With `trials` dies are drawn, of the
    `noise_model` or the target's own noise, and read at each of its `corners` and `times`. `jobs`
    processes or the Dask cluster at `dask` compute the points. Results go to `output` (default
    `exports/<model>.sweep`), where points that an earlier run has done are not computed again; each
    is kept as soon as it is done. A `budget` with `trials` gives each point its yield, the share of
    dies within it, of which the choice asks at least `min_yield` (None: that the median die is
    within). With a file `qrels` right is what it grades above 0. Raises CimError where rows of
    `data` calibrated (unless they are allowed or dropped), the folder holds another sweep or no
    worker answers, PointsFailed (a CheckFailed) at the end where points failed or none is within
    the `budget`.
    """
    budget = options.budget or {}
    dies = die_request(options.trials, options.times, options.seed, options.corners)
    check_min_yield(options.min_yield, options.trials, budget)
    file = None if options.settings is None else Path(options.settings)
    keys = read_grid(options.grid)
    made = points(keys, options.target, file, _noise(options.noise_model, dies))
    _check_corners(dies, made)
    if options.jobs is not None and options.dask is not None:
        raise ArgumentError("{jobs} and {dask} are both given; expected one of them")
    jobs = 1 if options.jobs is None else options.jobs
    if not 1 <= jobs <= MOST_JOBS:
        raise ArgumentError("{jobs} is {}; expected 1 to {:,} processes", jobs, MOST_JOBS)
    check_metrics("budget", budget)
    check_format(options.table)
    source = ModelSource.of(options).for_rows(options.calibration)
    check_scores(keys, source.head, source.poly, options.teacher)
    known = scored_models(source, made, options.teacher, say)
    rows, evaluated = read_evaluation(
        known.first, options.calibration, options.data, options.calibration_rows, options.qrels
    )
    check_measurable("budget", budget, evaluated.truth, evaluated.file)
    _check_layers(known.models.values(), keys)
    name = reference_name(known.first, len(known.models))
    whose = sweep_identity(known.projectors, rows, evaluated, known.reference)
    place = Path(options.output or Path("exports") / f"{known.first.name}.sweep")
    digests = [
        None if p.build is None else point_digest(whose, p.build, known.identity(p.score), dies)
        for p in made
    ]
    builds = {digest: p for digest, p in zip(digests, made, strict=True) if digest is not None}
    with workers(jobs, options.dask, place) as compute, opened(place, whose) as folder:
        done = folder.outcomes(builds)
        resumed = len(done)
        scores = folder.references(name, evaluated.truth)
        if scores is None or not scores.knows(known.heads.values()):
            scores = references([known.first, *known.models.values()], evaluated, say, name)
            folder.keep_references(scores)
        left = {digest: point for digest, point in builds.items() if digest not in done}
        if left:
            models = {point.score: known.models[point.score] for point in left.values()}
            evaluator = PointEvaluator.of(models, rows, evaluated, scores, dies)
            done |= _computed(compute, evaluator, left, folder, say)
        texts, videos = len(evaluated.text), len(evaluated.video)
        names = {"file": evaluated.file, "modalities": evaluated.called}
        counted = {"by_class": evaluated.truth.by_class, "queries": scores.own.counts}
        beside = scores.baselines(known.heads)
        found = Sweep(
            model=known.first.name,
            data={**names, "texts": texts, "videos": videos, **counted},
            reference=name,
            baselines={name: scores.metrics(one) for name, one in beside.items()},
            baseline_intervals=dict(zip(beside, scores.intervals(*beside.values()), strict=True)),
            remarks=Remarks.of(known.compiled, rows, evaluated, scores),
            grid=keys,
            dies=dies,
            points=made,
            outcomes=[
                Outcome(point.refusal) if digest is None else done[digest]
                for digest, point in zip(digests, made, strict=True)
            ],
            resumed=resumed,
            files=known.files,
        )
        files = files_of(options.calibration)
        named = source.files and files and not isinstance(options.target, Target)
        sources = {
            score: Sources(known.source(score, place), files, file, options.noise_model)
            for score in known.sources
        }
        fitted = known.fitted_files
        return _written(
            found, budget, options.min_yield, options.table, sources if named else {}, fitted, place
        )


def die_request(
    trials: int | None, times: Sequence[str], seed: int, corners: Sequence[str] = ()
) -> DieRequest | None:
    """The dies asked for, none without `trials`; CimError for what cannot be asked."""
    if trials is None:
        for name in ("times",) * bool(times) + ("corners",) * bool(corners):
            raise ArgumentError("{} is about dies; expected {trials} with it", Argument(name))
        return None
    check_trials(trials, seed)
    seconds = [parse_time(time) for time in times]
    if len(set(seconds)) < len(seconds):
        raise ArgumentError("{times}: {} has one twice; expected each time once", ", ".join(times))
    if len(set(corners)) < len(corners):
        raise ArgumentError("{corners}: {} has one twice; expected each once", ", ".join(corners))
    return DieRequest(trials, tuple(times) or (None,), seed, tuple(corners) or (None,))


def _check_corners(dies: DieRequest | None, made: Sequence[Point]) -> None:
    """Raise CimError for a corner that the noise of no point has."""
    noises = [one.build.target.noise for one in made if one.build is not None]
    known = [noise for noise in noises if noise is not None]
    for corner in () if dies is None else dies.corners:
        if known and not any(noise.has_corner(corner) for noise in known):
            known[0].at_corner(corner)


def _noise(model: File | None, dies: DieRequest | None) -> Noise | None:
    """The noise of a model in place of the targets' own; CimError for one that draws no dies."""
    if model is None:
        return None
    if dies is None:
        raise ArgumentError("{noise_model} is about dies; expected {trials} with it")
    return load_noise(model)


def _computed(
    compute: Compute,
    evaluator: PointEvaluator,
    left: Mapping[str, Point],
    folder: SweepFolder,
    say: Say,
) -> Outcomes:
    """Compute the points that are left; each is in the folder as soon as it is done."""
    say(f"{len(left)} points")
    countdown = Countdown(say)
    for count, (digest, outcome) in enumerate(compute(evaluator, left), 1):
        folder.keep(digest, left[digest], outcome)
        said = PartDone(f"point {count} of {len(left)}: {outcome.error or 'done'}")
        countdown.tell(said, count, len(left))
        yield digest, outcome


def _check_layers(models: Iterable[Model], grid: Sequence[GridKey]) -> None:
    """Raise CimError for a pattern of the grid that matches no layer, whatever the mapping."""
    known: list[str] = []
    for model in models:
        known += layer_names(model.program)
        for mapping in get_args(ScoreMapping):
            known += score_layers(model.head, mapping)
    known = list(dict.fromkeys(known))
    for key in grid:
        if key.path[0] == LAYERS and not any(layer_matches(name, key.path[1]) for name in known):
            raise ArgumentError(
                "{grid} {}: matches no layer of the model, which has {}{}",
                key.name,
                ", ".join(known),
                nearest(key.path[1], known),
            )


def _written(
    sweep: Sweep,
    budget: Mapping[str, float],
    min_yield: float | None,
    table: TableFormat,
    sources: Mapping[ScoreChoice, Sources],
    fitted: Mapping[str, str],
    place: Path,
) -> Sweep:
    """Choose within the budget, write all files, and fail where points did."""
    from cimtool.experiments.sweeps.page import PAGE, pareto_page

    texts = dict(fitted)
    if budget:
        chosen = cheapest(sweep.outcomes, budget, sweep.units, sweep.sampled, min_yield)
        if sweep.remarks.broken_reference:
            chosen = Choice(budget, None, None, 0, min_yield=min_yield)
        if chosen.index is not None and sources:
            point = sweep.points[chosen.index]
            command, files = compile_command(point, sources[point.score], place)
            chosen, texts = replace(chosen, command=command), texts | files
        sweep = replace(sweep, chosen=chosen)
    texts[PAGE] = pareto_page(sweep)
    written = sweep_files(sweep, table) | {name: text_bytes(t) for name, t in texts.items()}
    earlier = {*TABLES, TARGET_FILE, SETTINGS_FILE, *(file.name for file in fitted_in(place))}
    sweep = replace(sweep, written=replace_files(place, written, "the results"))
    for name in earlier - set(written):
        (place / name).unlink(missing_ok=True)  # an earlier run's, of another grid or budget
    if sweep.failed:
        raise PointsFailed(sweep, f"{place}: {sweep.failed} of {len(sweep.points)} points failed")
    if sweep.chosen is not None and not sweep.chosen.within:
        limits = limits_text(budget, min_yield)
        if broken := sweep.remarks.broken_reference:
            raise PointsFailed(sweep, f"{place}: no point is within {limits}: {broken}")
        raise PointsFailed(sweep, f"{place}: no point is within the budget {limits}")
    return sweep
