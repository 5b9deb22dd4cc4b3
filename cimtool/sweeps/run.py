"""A sweep: shared work once, then every point that no earlier run has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Unpack

from cimtool.base.errors import ArgumentError, CheckFailed
from cimtool.base.files import replace_files
from cimtool.base.named import nearest
from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import check_trials
from cimtool.deployment.compilation import layer_names
from cimtool.hardware.noise.times import parse_time
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import EmbeddingsLike, File, files_of
from cimtool.loading.model import Model
from cimtool.loading.source import ModelOptions, ModelSource, Projectors
from cimtool.passes.gallery import SCORE_LAYERS
from cimtool.reference.queries import check_metrics
from cimtool.reference.surrogate import Polynomial
from cimtool.sweeps.choice import cheapest
from cimtool.sweeps.command import SETTINGS_FILE, TARGET_FILE, Sources, compile_command
from cimtool.sweeps.evaluator import DieRequest, Outcome, PointEvaluator, read_evaluation
from cimtool.sweeps.folder import opened, point_digest, sweep_identity
from cimtool.sweeps.grid import LAYERS, Grid, GridKey, Point, points, read_grid
from cimtool.sweeps.page import PAGE, pareto_page
from cimtool.sweeps.references import reference_name, references
from cimtool.sweeps.results import TABLES, Chosen, Sweep, TableFormat, check_format, sweep_files
from cimtool.sweeps.workers import workers


@dataclass(frozen=True)
class Plan:
    """The points of a sweep, where they are computed, and what is written of them.

    `settings` are the file that all points share. `nameable` says whether every point has a target
    that a command line can name.
    """

    grid: tuple[GridKey, ...]
    points: Sequence[Point]
    dies: DieRequest | None
    budget: Mapping[str, float]
    table: TableFormat
    jobs: int
    dask: str | None
    settings: Path | None
    nameable: bool

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ArgumentError("{jobs} is {}; expected at least 1", self.jobs)
        check_metrics("budget", self.budget)
        check_format(self.table)


class PointsFailed(CheckFailed):
    """Points failed, or none is within the budget; `sweep` holds the others."""

    def __init__(self, sweep: Sweep, sentence: str):
        super().__init__(sentence)
        self.sweep = sweep


def sweep(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    grid: Grid,
    target: str | Target | None = None,
    settings: File | None = None,
    trials: int | None = None,
    times: Sequence[str] = (),
    seed: int = 0,
    budget: Mapping[str, float] | None = None,
    jobs: int = 1,
    dask: str | None = None,
    table: TableFormat = "csv",
    allow_calibration_rows: bool = False,
    output: File | None = None,
    say: Say = silent,
    **model: Unpack[ModelOptions],
) -> Sweep:
    """Compile a model for every point of a grid, and measure drift and cost of each on `data`.

    `grid` has the values of settings (`weight_bits`), of `target`, and of keys of the target's file
    (`target.rows_active`). With `trials` dies are drawn, read at each of `times`; `jobs` processes
    or the Dask cluster at `dask` compute the points. Results go to `output` (default
    `exports/<model>.sweep`), where points that an earlier run has done are not computed again.
    Raises PointsFailed (a CheckFailed) where points failed or none is within the `budget`.
    """
    dies = die_request(trials, times, seed)
    file = None if settings is None else Path(settings)
    keys = read_grid(grid)
    nameable = not isinstance(target, Target)
    made = points(keys, target, file)
    plan = Plan(keys, made, dies, budget or {}, table, jobs, dask, file, nameable)
    source = ModelSource(projectors, poly, **model)
    return run_sweep(source, calibration, data, plan, allow_calibration_rows, output, say)


def die_request(trials: int | None, times: Sequence[str], seed: int) -> DieRequest | None:
    """The dies asked for, none without `trials`; CimError for what cannot be asked."""
    if trials is None:
        if times:
            raise ArgumentError("{times} is about dies; expected {trials} with it")
        return None
    check_trials(trials, seed)
    seconds = [parse_time(time) for time in times]
    if len(set(seconds)) < len(seconds):
        raise ArgumentError("{times}: {} has one twice; expected each time once", ", ".join(times))
    return DieRequest(trials, tuple(times) or (None,), seed)


def run_sweep(
    source: ModelSource,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    plan: Plan,
    seen_rows: bool,
    output: File | None,
    say: Say,
) -> Sweep:
    """Compute what is left of a sweep in a folder, and write its results there.

    Every point that is done is kept at once. Raises CimError where rows of `data` calibrated
    (unless `seen_rows`), the folder holds another sweep or no worker answers, PointsFailed at the
    end where points failed.
    """
    model, rows, evaluated = read_evaluation(source, calibration, data, seen_rows, say)
    _check_layers(model, plan)
    name = reference_name(model)
    whose = sweep_identity(model, rows, evaluated, name)
    place = Path(output) if output else Path("exports") / f"{model.name}.sweep"
    builds = {
        point_digest(whose, point.build, plan.dies): point.build
        for point in plan.points
        if point.build is not None
    }
    with workers(plan.jobs, plan.dask, place) as compute, opened(place, whose) as folder:
        kept = {digest: folder.outcome(digest) for digest in builds}
        done = {digest: outcome for digest, outcome in kept.items() if outcome is not None}
        left = {digest: build for digest, build in builds.items() if digest not in done}
        resumed = len(done)
        scores = folder.references(name)
        if scores is None:
            scores = references(model, evaluated, say)
            folder.keep_references(scores)
        if left:
            settings = next(iter(left.values())).settings
            evaluator = PointEvaluator.of(model, rows, evaluated, scores, plan.dies, settings, say)
            say(f"{len(left)} points")
            for count, (digest, outcome) in enumerate(compute(evaluator, left), 1):
                folder.keep(digest, left[digest], outcome)
                done[digest] = outcome
                say(f"point {count} of {len(left)}: {outcome.error or 'done'}")
        outcomes = [
            Outcome(point.refusal)
            if point.build is None
            else done[point_digest(whose, point.build, plan.dies)]
            for point in plan.points
        ]
        texts, videos = len(evaluated.text), len(evaluated.video)
        sweep = Sweep(
            model=model.name,
            data={"file": evaluated.file, "texts": texts, "videos": videos},
            reference=name,
            baselines=scores.baselines(model.head.surrogate),
            grid=plan.grid,
            dies=plan.dies,
            points=plan.points,
            outcomes=outcomes,
            resumed=resumed,
            files=model.files,
        )
        files = files_of(calibration)
        named = source.files and files and plan.nameable
        sources = Sources(source, files, plan.settings) if named else None
        return _written(sweep, plan, sources, place)


def _check_layers(model: Model, plan: Plan) -> None:
    """Raise CimError for a pattern of the grid that matches no layer, whatever the mapping."""
    known = [*layer_names(model), *(name for names in SCORE_LAYERS.values() for name in names)]
    for key in plan.grid:
        if key.path[0] == LAYERS and not any(fnmatchcase(name, key.path[1]) for name in known):
            raise ArgumentError(
                "{grid} {}: matches no layer of the model, which has {}{}",
                key.name,
                ", ".join(known),
                nearest(key.path[1], known),
            )


def _written(sweep: Sweep, plan: Plan, sources: Sources | None, place: Path) -> Sweep:
    """Choose within the budget, write all files, and fail where points did."""
    texts: dict[str, str] = {}
    if plan.budget:
        choice, command = cheapest(sweep.outcomes, plan.budget, sweep.units), ""
        if choice.index is not None and sources is not None:
            command, texts = compile_command(sweep.points[choice.index], sources, place)
        sweep = replace(sweep, chosen=Chosen(plan.budget, choice, command))
    texts[PAGE] = pareto_page(sweep)
    files = sweep_files(sweep, plan.table) | {name: t.encode() for name, t in texts.items()}
    sweep = replace(sweep, written=replace_files(place, files, "the results"))
    for name in {*TABLES, TARGET_FILE, SETTINGS_FILE} - set(files):
        (place / name).unlink(missing_ok=True)  # an earlier run's, of another grid or budget
    if sweep.failed:
        raise PointsFailed(sweep, f"{place}: {sweep.failed} of {len(sweep.points)} points failed")
    if sweep.chosen is not None and not sweep.chosen.choice.within:
        limits = ", ".join(f"{name}={most:g}" for name, most in plan.budget.items())
        raise PointsFailed(sweep, f"{place}: no point is within the budget {limits}")
    return sweep
