"""One point of a sweep: compiled in memory, run on the evaluation rows, its cost counted.

A bench holds all that points share, the folded program with it; a worker keeps its bench, so that
points which calibrate alike calibrate once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.progress import Say, silent
from cimtool.costs.estimate import Estimate, estimate
from cimtool.deployment.compilation import calibration_rows, fit_rows, layer_names
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.levels import level_notes
from cimtool.hardware.noise.times import time_text
from cimtool.hardware.settings import Settings, check_patterns, check_score_bits
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.calibration_rows import calibration_digests, require_unseen
from cimtool.loading.data import EmbeddingsLike, read_data
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource
from cimtool.passes.calibrate import calibration_key
from cimtool.passes.fold import FoldPass
from cimtool.passes.gallery import SCORE_LAYERS, fit_gallery, program_gallery
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.passes.step import Job
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator
from cimtool.sweeps.references import SAMPLES, Yardstick

MEDIAN, WORST = 50.0, 5.0
"""Percentiles over dies: of what is better when higher; of losses and errors 50 and 95."""

OF_DIES = ("logit_rmse", "top1_agreement_loss", "r1_loss", "r5_loss", "r10_loss")
RECALLS = ("r1_text_to_video", "r1_video_to_text")


@dataclass(frozen=True)
class DieRequest:
    """How many dies a point draws from which seed, and the times at which each is read.

    A time is such as `1h` after programming; None is the earliest that a noise knows.
    """

    trials: int
    times: tuple[str | None, ...]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a point gave: plain values by name, or the sentence that says why it gave nothing.

    `dies` are, for each time, medians and worst twentieths over dies.
    """

    error: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    dies: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"state": "done" if self.error is None else "failed", **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Read what `to_json` returned; KeyError or TypeError for anything else."""
        lists = {name: tuple(values[name]) for name in ("dies", "notes")}
        return cls(values["error"], values["metrics"], values["cost"], **lists)


@dataclass(frozen=True, eq=False)
class Bench:
    """All that the points of a sweep share; calibrated programs are added as they are needed.

    `text` and `video` are the calibration rows, `fit` those that fit a gallery's converters, and
    `data` the evaluation rows.
    """

    folded: Program
    layers: tuple[str, ...]
    dimension: int
    text: Array
    video: Array
    fit: Mapping[str, Array]
    data: Embeddings
    references: Yardstick
    dies: DieRequest | None
    _calibrated: dict[Hashable, Program] = field(default_factory=dict)

    def compiled(self, settings: Settings, note: Callable[[str], None]) -> Program:
        """The program of the last pass, as `compile` makes it."""
        job = Job(settings, self.text, self.video, note)
        _, calibrate, *rest = passes_for(settings)
        key = calibration_key(settings)
        if key not in self._calibrated:
            (stage,) = run_passes((calibrate,), self.folded, job, silent)
            self._calibrated[key] = stage.program
        return run_passes(rest, self._calibrated[key], job, silent)[-1].program


def read_evaluation(
    source: ModelSource,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    seen_rows: bool,
    say: Say,
) -> tuple[Model, Embeddings, Embeddings]:
    """Read a model, its calibration rows and the rows that it is evaluated on.

    Raises CimError for data that rank nothing or (unless `seen_rows`) hold calibration rows.
    """
    model = source.load(say)
    calibrating, evaluated = read_data(calibration, model), read_data(data, model)
    require_rivals(evaluated)
    if not seen_rows:
        known = calibration_digests(*calibration_rows(calibrating, []))
        require_unseen(known, evaluated, model.name)
    return model, calibrating, evaluated


def make_bench(
    model: Model,
    calibration: Embeddings,
    data: Embeddings,
    references: Yardstick,
    dies: DieRequest | None,
    settings: Settings,
    say: Say,
) -> Bench:
    """Fold once for all points; no setting has a part in that, so any will do for `settings`."""
    text, video = calibration_rows(calibration, [])
    (folded,) = run_passes((FoldPass(),), model.program, Job(settings, text, video, silent), say)
    return Bench(
        folded.program,
        tuple(layer_names(model)),
        model.dimension,
        text,
        video,
        fit_rows(calibration),
        data,
        references,
        dies,
    )


def measure(bench: Bench, build: Configuration) -> Outcome:
    """Compile and measure one point; what goes wrong becomes its outcome, so that others go on."""
    try:
        return _measure(bench, build)
    except CimError as error:
        return Outcome(str(error))
    except MemoryError as error:
        return Outcome(f"not enough memory: {error}")
    except Exception as error:  # the outermost frame of a point: others must not end with it
        return Outcome(f"a fault in cimtool itself ({type(error).__name__}: {error})")


def _measure(bench: Bench, build: Configuration) -> Outcome:
    settings, notes = build.settings, list[str]()
    check_patterns(settings, [*bench.layers, *SCORE_LAYERS[settings.score_mapping]])
    check_score_bits(settings, bench.layers)
    notes += level_notes(build.target, settings, bench.layers)
    program = bench.compiled(settings, notes.append)
    if settings.score_mapping != "digital":
        program = with_gallery(bench, program, settings)
    metrics = bench.references.metrics(scored(program, bench.data))
    found = estimate(
        program,
        settings,
        build.target,
        samples=SAMPLES,
        dimension=bench.dimension,
        gallery=len(bench.data.video),
    )
    dies = _dies(bench, bench.dies, program, build, notes) if bench.dies else ()
    return Outcome(None, metrics, cost_of(found), dies, tuple(notes))


def with_gallery(bench: Bench, program: Program, settings: Settings) -> Program:
    """The program with the evaluation videos in its arrays, as `cimtool program` puts them there.

    Raises CimError for a hybrid score, which leaves most pairs without one.
    """
    if settings.score_mapping == "hybrid":
        raise CimError(
            'score_mapping = "hybrid": pairs outside its shortlists have no score, and a sweep '
            'measures drift over all pairs; expected "digital" or "in-memory"'
        )
    simulator = Simulator(program)
    video = simulator.encode("video", bench.data.video)
    queries = {name: simulator.encode(name, rows) for name, rows in bench.fit.items()}
    right = queries.get("video")
    matches = program_gallery(program.score, right, settings) if right else None
    tiled = program_gallery(program.score, video, settings)
    return replace(program, score=fit_gallery(tiled, queries["text"], matches))


def scored(program: Program, data: Embeddings) -> Array:
    """Scores [n, m] of all evaluation pairs; CimError where one is not finite."""
    simulator = Simulator(program)
    text, video = (simulator.encode(m, getattr(data, m)) for m in MODALITIES)
    scores = simulator.score(text, video)
    if not np.isfinite(scores).all():
        raise CimError("a score is not finite; the model is out of float64's range")
    return scores


def cost_of(found: Estimate) -> dict[str, Any]:
    """What a point takes of its target, a query against the evaluation gallery included.

    Energy in pJ and latency in ns are None where the target gives no figures, and lower bounds
    where parts are missing.
    """
    query, plan = found.query, found.layout
    assert query is not None
    return {
        "arrays": plan.arrays,
        "chips": plan.chips,
        "loads": plan.loads,
        "conversions": query.conversions,
        "energy_pj": query.energy.value,
        "energy_missing": "; ".join(query.energy.missing),
        "energy_coverage": query.coverage,
        "latency_ns": query.latency.value,
        "latency_missing": "; ".join(query.latency.missing),
    }


def _dies(
    bench: Bench, request: DieRequest, program: Program, build: Configuration, notes: list[str]
) -> tuple[Mapping[str, Any], ...]:
    """What dies keep at each time; a note and nothing for a target without noise."""
    noise = build.target.noise
    if noise is None:
        notes.append(f'target "{build.target.name}" has no [noise], so no dies were drawn')
        return ()

    found = []
    try:
        for time in request.times:
            conditions = Conditions(noise, noise.seconds(time), seed=request.seed)
            trials = [
                bench.references.metrics(scored(die, bench.data))
                for die in (
                    on_die(program, build.settings, conditions, index).program
                    for index in range(request.trials)
                )
            ]
            found.append({"time": time_text(conditions.seconds), **_percentiles(trials)})
    except CimError as error:
        notes.append(f"no dies were drawn: {error}")
        return ()
    return tuple(found)


def _percentiles(trials: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Median and worst twentieth over dies, each figure by itself."""
    found = {}
    for name in (*OF_DIES, *RECALLS):
        values = [trial[name] for trial in trials]
        worst = WORST if name in RECALLS else 100 - WORST
        found[name] = {
            "median": float(np.percentile(values, MEDIAN)),
            "worst": float(np.percentile(values, worst)),
        }
    return found
