"""The walk of a sweep: shared work once, then every point that no earlier run has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from cimtool.base.errors import ArgumentError, CheckFailed
from cimtool.base.files import replace_files
from cimtool.base.named import nearest
from cimtool.base.progress import Say
from cimtool.bundle.dies import MOST_TRIALS
from cimtool.deployment.compilation import calibration_rows, layer_names
from cimtool.hardware.noise.times import parse_time
from cimtool.loading.calibration_rows import calibration_digests, require_unseen
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.loading.model import Model
from cimtool.passes.gallery import SCORE_LAYERS
from cimtool.sweeps.bench import Bench, DieRequest, Outcome, make_bench
from cimtool.sweeps.choice import cheapest
from cimtool.sweeps.command import SETTINGS_FILE, TARGET_FILE, Sources, compile_command
from cimtool.sweeps.folder import Folder, identity, opened, point_digest
from cimtool.sweeps.grid import LAYERS, Axis, Build, Point
from cimtool.sweeps.page import PAGE, pareto_page
from cimtool.sweeps.references import Yardstick, reference_name, references
from cimtool.sweeps.results import TABLES, Chosen, Sweep, TableFormat, sweep_files
from cimtool.sweeps.workers import Compute, workers


@dataclass(frozen=True)
class Plan:
    """What a sweep computes, where, and what it writes.

    `sources` are the files that a command line could name, None where the model came without.
    """

    axes: tuple[Axis, ...]
    points: Sequence[Point]
    dies: DieRequest | None
    budget: Mapping[str, float]
    table: TableFormat
    jobs: int
    dask: str | None
    sources: Sources | None


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
    if not 1 <= trials <= MOST_TRIALS:
        raise ArgumentError("{trials} is {}; expected 1 to {} dies", trials, MOST_TRIALS)
    if seed < 0:
        raise ArgumentError("{seed} is {}; expected a number of at least 0", seed)
    seconds = [parse_time(time) for time in times]
    if len(set(seconds)) < len(seconds):
        raise ArgumentError("{times}: {} has one twice; expected each time once", ", ".join(times))
    return DieRequest(trials, tuple(times) or (None,), seed)


def check_evaluation(
    model: Model, calibration: Embeddings, data: Embeddings, allow_seen: bool
) -> None:
    """Raise CimError for data that ranks nothing, or (unless allowed) holds calibration rows."""
    require_rivals(data)
    if not allow_seen:
        require_unseen(calibration_digests(*calibration_rows(calibration, [])), data, model.name)


def run_sweep(
    model: Model,
    calibration: Embeddings,
    data: Embeddings,
    plan: Plan,
    place: Path,
    say: Say,
) -> Sweep:
    """Compute what is left of a sweep in the folder `place`, and write its results there.

    Every point that is done is kept at once. Raises CimError where the folder holds another sweep
    or no worker answers, PointsFailed at the end where points failed.
    """
    _check_layers(model, plan)
    name = reference_name(model)
    whose = identity(model, calibration, data, name)
    builds = {
        point_digest(whose, point.build, plan.dies): point.build
        for point in plan.points
        if point.build is not None
    }
    with workers(plan.jobs, plan.dask, place) as compute, opened(place, whose) as folder:
        kept = {digest: folder.outcome(digest) for digest in builds}
        done = {digest: outcome for digest, outcome in kept.items() if outcome is not None}
        resumed = len(done)
        found = _references(folder, model, data, name, say)
        left = {digest: build for digest, build in builds.items() if digest not in done}
        if left:
            any_settings = next(iter(left.values())).settings
            bench = make_bench(model, calibration, data, found, plan.dies, any_settings, say)
            done |= _computed(compute, bench, left, folder, say)
        outcomes = [
            Outcome(point.refusal)
            if point.build is None
            else done[point_digest(whose, point.build, plan.dies)]
            for point in plan.points
        ]
        sweep = Sweep(
            model=model.name,
            data={"file": data.file, "texts": len(data.text), "videos": len(data.video)},
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
        return _written(sweep, plan, place)


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
    compute: Compute, bench: Bench, builds: Mapping[str, Build], folder: Folder, say: Say
) -> dict[str, Outcome]:
    """Outcomes of points by digest, each kept in the folder as it comes."""
    done: dict[str, Outcome] = {}
    say(f"{len(builds)} points")
    for digest, outcome in compute(bench, builds):
        folder.keep(digest, builds[digest], outcome)
        done[digest] = outcome
        say(f"point {len(done)} of {len(builds)}: {outcome.error or 'done'}")
    return done


def _written(sweep: Sweep, plan: Plan, place: Path) -> Sweep:
    """Choose within the budget, write all files, and fail where points did."""
    texts: dict[str, str] = {}
    if plan.budget:
        choice = cheapest(sweep.outcomes, plan.budget, sweep.units)
        command = ""
        if choice is not None and choice.index is not None and plan.sources is not None:
            command, texts = compile_command(sweep.points[choice.index], plan.sources, place)
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
