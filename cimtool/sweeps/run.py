"""A sweep: shared work once, then every point that no earlier run has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cimtool.base.errors import ArgumentError, CheckFailed
from cimtool.base.files import replace_files
from cimtool.base.named import nearest
from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import check_trials
from cimtool.deployment.compilation import layer_names
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.noise.times import parse_time
from cimtool.hardware.target import Target
from cimtool.loading.data import EmbeddingsLike, files_of
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource
from cimtool.passes.gallery import SCORE_LAYERS
from cimtool.sweeps.bench import Bench, DieRequest, Outcome, make_bench, read_evaluation
from cimtool.sweeps.choice import cheapest
from cimtool.sweeps.command import SETTINGS_FILE, TARGET_FILE, Sources, compile_command
from cimtool.sweeps.folder import Folder, identity, opened, point_digest
from cimtool.sweeps.grid import LAYERS, Axis, Grid, Point, points, read_grid
from cimtool.sweeps.page import PAGE, pareto_page
from cimtool.sweeps.references import Yardstick, reference_name, references
from cimtool.sweeps.results import TABLES, Chosen, Sweep, TableFormat, check_format, sweep_files
from cimtool.sweeps.workers import Compute, workers
from cimtool.verification.limits import check_metrics


@dataclass(frozen=True)
class Plan:
    """What a sweep computes, where, and what it writes.

    `settings` are the file that all points share. `nameable` says whether every point has a target
    that a command line can name.
    """

    axes: tuple[Axis, ...]
    points: Sequence[Point]
    dies: DieRequest | None
    budget: Mapping[str, float]
    table: TableFormat = "csv"
    jobs: int = 1
    dask: str | None = None
    settings: Path | None = None
    nameable: bool = True

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ArgumentError("{jobs} is {}; expected at least 1", self.jobs)
        check_metrics("budget", self.budget)
        check_format(self.table)


def make_plan(
    grid: Grid,
    target: str | Target | None,
    settings: Path | str | None,
    dies: DieRequest | None,
    budget: Mapping[str, float] | None,
    **options: Any,
) -> Plan:
    """The points of a grid, on a target where that is no key of it; CimError for any mistake."""
    file = None if settings is None else Path(settings)
    axes = read_grid(grid)
    all_points = points(axes, target, file)
    nameable = not isinstance(target, Target)
    return Plan(axes, all_points, dies, budget or {}, settings=file, nameable=nameable, **options)


class PointsFailed(CheckFailed):
    """Points failed, or none is within the budget; `sweep` holds the others."""

    def __init__(self, sweep: Sweep, sentence: str):
        super().__init__(sentence)
        self.sweep = sweep


def die_request(trials: int | None, times: Sequence[str], seed: int) -> DieRequest | None:
    """What was asked of dies, none without `trials`; CimError for what cannot be asked."""
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
    seen_rows: bool = False,
    output: Path | str | None = None,
    say: Say = silent,
) -> Sweep:
    """Compute what is left of a sweep in a folder, and write its results there.

    The folder is `output`, by default `exports/<model>.sweep`. Every point that is done is kept at
    once. Raises CimError where rows of `data` calibrated (unless `seen_rows`), the folder holds
    another sweep or no worker answers, PointsFailed at the end where points failed.
    """
    model, rows, evaluated = read_evaluation(source, calibration, data, seen_rows, say)
    _check_layers(model, plan)
    name = reference_name(model)
    whose = identity(model, rows, evaluated, name)
    place = Path(output) if output else Path("exports") / f"{model.name}.sweep"
    builds = {
        point_digest(whose, point.build, plan.dies): point.build
        for point in plan.points
        if point.build is not None
    }
    with workers(plan.jobs, plan.dask, place) as compute, opened(place, whose) as folder:
        kept = {digest: folder.outcome(digest) for digest in builds}
        done = {digest: outcome for digest, outcome in kept.items() if outcome is not None}
        resumed = len(done)
        found = _references(folder, model, evaluated, name, say)
        left = {digest: build for digest, build in builds.items() if digest not in done}
        if left:
            any_settings = next(iter(left.values())).settings
            bench = make_bench(model, rows, evaluated, found, plan.dies, any_settings, say)
            done |= _computed(compute, bench, left, folder, say)
        outcomes = [
            Outcome(point.refusal)
            if point.build is None
            else done[point_digest(whose, point.build, plan.dies)]
            for point in plan.points
        ]
        sweep = Sweep(
            model=model.name,
            data={
                "file": evaluated.file,
                "texts": len(evaluated.text),
                "videos": len(evaluated.video),
            },
            reference=name,
            baselines=found.baselines(model.head.surrogate),
            axes=plan.axes,
            dies=plan.dies,
            points=plan.points,
            outcomes=outcomes,
            chosen=None,
            resumed=resumed,
            files=model.files,
        )
        return _written(sweep, plan, _sources(source, calibration, plan), place)


def _sources(source: ModelSource, calibration: EmbeddingsLike, plan: Plan) -> Sources | None:
    """The files that a command line could name; None where something came without."""
    files = files_of(calibration)
    if not (source.files and files and plan.nameable):
        return None
    return Sources(source, files, plan.settings)


def _check_layers(model: Model, plan: Plan) -> None:
    """Raise CimError for a pattern of the grid that matches no layer, whatever the mapping."""
    known = [*layer_names(model), *(name for names in SCORE_LAYERS.values() for name in names)]
    for axis in plan.axes:
        if axis.key[0] == LAYERS and not any(fnmatchcase(name, axis.key[1]) for name in known):
            raise ArgumentError(
                "{grid} {}: matches no layer of the model, which has {}{}",
                axis.name,
                ", ".join(known),
                nearest(axis.key[1], known),
            )


def _references(folder: Folder, model: Model, data: Embeddings, name: str, say: Say) -> Yardstick:
    """The references that an earlier run kept, or those computed now."""
    found = folder.references(name)
    if found is None:
        found = references(model, data, say)
        folder.keep_references(found)
    return found


def _computed(
    compute: Compute, bench: Bench, builds: Mapping[str, Configuration], folder: Folder, say: Say
) -> dict[str, Outcome]:
    """Outcomes of points by digest, each kept in the folder as it comes."""
    done: dict[str, Outcome] = {}
    say(f"{len(builds)} points")
    for digest, outcome in compute(bench, builds):
        folder.keep(digest, builds[digest], outcome)
        done[digest] = outcome
        say(f"point {len(done)} of {len(builds)}: {outcome.error or 'done'}")
    return done


def _written(sweep: Sweep, plan: Plan, sources: Sources | None, place: Path) -> Sweep:
    """Choose within the budget, write all files, and fail where points did."""
    texts: dict[str, str] = {}
    if plan.budget:
        choice = cheapest(sweep.outcomes, plan.budget, sweep.units)
        command = ""
        if choice is not None and choice.index is not None and sources is not None:
            command, texts = compile_command(sweep.points[choice.index], sources, place)
        sweep = replace(sweep, chosen=Chosen(plan.budget, choice, command))
    texts[PAGE] = pareto_page(sweep)
    files = sweep_files(sweep, plan.table) | {name: t.encode() for name, t in texts.items()}
    sweep = replace(sweep, written=replace_files(place, files, "the results"))
    for name in {*TABLES, TARGET_FILE, SETTINGS_FILE} - set(files):
        (place / name).unlink(missing_ok=True)  # an earlier run's, of another grid or budget
    if sweep.failed:
        raise PointsFailed(sweep, f"{place}: {sweep.failed} of {len(sweep.points)} points failed")
    if sweep.chosen is not None and sweep.chosen.choice is None:
        limits = ", ".join(f"{name}={most:g}" for name, most in plan.budget.items())
        raise PointsFailed(sweep, f"{place}: no point is within the budget {limits}")
    return sweep
