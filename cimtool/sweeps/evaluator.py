"""One point of a sweep: compiled in memory, run on the evaluation rows, its cost counted.

The evaluator holds all that points share, the folded program with it; a worker keeps its evaluator,
so that points which calibrate alike calibrate once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import MEDIAN, WORST
from cimtool.costs.estimate import Estimate, estimate
from cimtool.deployment.compilation import calibration_rows, fit_rows, layer_names
from cimtool.hardware.configuration import Configuration, level_notes
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.noise.times import time_text
from cimtool.hardware.settings import Settings, check_patterns, check_score_bits
from cimtool.ir.program import Program
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.digests import digests_of
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, read_data, require_rivals
from cimtool.loading.model import Model, ModelCard
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.passes.calibrate import calibration_key
from cimtool.passes.fold import FoldPass
from cimtool.passes.gallery import fit_gallery, program_gallery, score_layers
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.limits import LIMITS
from cimtool.reference.queries import WAYS, Queries, Selection
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator
from cimtool.sweeps.references import SAMPLES, SweepReferences
from cimtool.verification.stages import encode, real_means

WORST_OF_DIES = dict.fromkeys(LIMITS, 100 - WORST) | {f"r1_{way}": WORST for way in WAYS}
"""The percentile over dies of each metric that is the worst twentieth."""


@dataclass(frozen=True)
class DieRequest:
    """The number of dies a point draws, their seed, and the times at which each is read.

    A time is such as `1h` after programming; None is the earliest that a noise knows.
    """

    trials: int
    times: tuple[str | None, ...]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The figures of a point, plain values by name, or the sentence that says why it has none.

    `intervals` are those of the metrics over resamples of the queries; `dies` are, for each time,
    medians and worst twentieths over dies. `warnings` are the `notes` that every reader should see:
    few levels of cells, or no dies where they were asked for.
    """

    error: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    dies: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, as a point's file has them."""
        return {"state": "done" if self.error is None else "failed", **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Read what `to_json` returned; KeyError or TypeError for anything else."""
        lists = {name: tuple(values[name]) for name in ("dies", "notes", "warnings")}
        intervals = {name: (low, high) for name, (low, high) in values["intervals"].items()}
        return cls(values["error"], values["metrics"], intervals, values["cost"], **lists)


@dataclass(frozen=True, eq=False)
class PointEvaluator:
    """All that the points of a sweep share; calibrated programs are added as they are needed.

    `text` and `video` are the calibration rows, `fit` those that fit a gallery's converters, and
    `data` the evaluation rows.
    """

    folded: Program
    layers: tuple[str, ...]
    model: ModelCard
    text: Array
    video: Array
    fit: Mapping[str, Array]
    data: Embeddings
    references: SweepReferences
    dies: DieRequest | None
    _calibrated: dict[Hashable, Program] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        calibration: Embeddings,
        data: Embeddings,
        references: SweepReferences,
        dies: DieRequest | None,
        settings: Settings,
        say: Say,
    ) -> PointEvaluator:
        """Fold once for all points; no setting has a part in that, so any `settings` will do."""
        rows, layers = calibration_rows(calibration, []), tuple(layer_names(model))
        (folded,) = run_passes((FoldPass(),), model.program, Job(settings, *rows, silent), say)
        fit = fit_rows(calibration)
        return cls(folded.program, layers, model.card, *rows, fit, data, references, dies)

    def evaluate(self, build: Configuration) -> Outcome:
        """Compile and measure one point; an error becomes its outcome, so that others go on."""
        try:
            queries, found = self._evaluated(build)
            return replace(found, intervals=self.references.intervals(queries))
        except Exception as error:  # the outermost frame of a point: others must not end with it
            return _failed(error)

    def evaluate_on(
        self, build: Configuration, selections: Sequence[Selection | None]
    ) -> tuple[Outcome, ...]:
        """Compile and score one point once: metrics of each selection of queries, None being all.

        Without intervals.
        """
        try:
            queries, found = self._evaluated(build)
        except Exception as error:  # as above
            return (_failed(error),) * len(selections)
        return tuple(
            replace(found, metrics=self.references.metrics(queries, chosen))
            for chosen in selections
        )

    def _evaluated(self, build: Configuration) -> tuple[Queries, Outcome]:
        """Measurements of all queries, and the outcome of all of them."""
        settings, said = build.settings, list[str]()
        check_patterns(
            settings, [*self.layers, *score_layers(self.model.head, settings.score_mapping)]
        )
        check_score_bits(settings, self.layers)
        few_levels = level_notes(build.target, settings, self.layers)
        program = self.compiled(settings, said.append)
        if settings.score_mapping != "digital":
            program = self._with_gallery(program, settings)
        queries = self._measured(program)
        found = estimate(
            program,
            settings,
            build.target,
            samples=SAMPLES,
            dimension=self.model.dimension,
            gallery=len(self.data.video),
        )
        no_dies: list[str] = []
        dies = self._on_dies(self.dies, program, build, no_dies.append) if self.dies else ()
        of_model = (f"warning: {text}" for text in self.model.warnings)
        notes, warnings = (*of_model, *few_levels, *said, *no_dies), (*few_levels, *no_dies)
        metrics, cost = self.references.metrics(queries), cost_of(found)
        return queries, Outcome(None, metrics, {}, cost, dies, notes, warnings)

    def compiled(self, settings: Settings, note: Callable[[str], None]) -> Program:
        """The program of the last pass, as `compile` makes it."""
        job = Job(settings, self.text, self.video, note)
        _, calibrate, *rest = passes_for(settings)
        key = calibration_key(settings)
        if key not in self._calibrated:
            (stage,) = run_passes((calibrate,), self.folded, job, silent)
            self._calibrated[key] = stage.program
        return run_passes(rest, self._calibrated[key], job, silent)[-1].program

    def _with_gallery(self, program: Program, settings: Settings) -> Program:
        """The program with the evaluation videos in its arrays, as `cimtool program` puts them.

        Raises CimError for a hybrid score, which leaves most pairs without one.
        """
        if settings.score_mapping == "hybrid":
            raise CimError(
                'score_mapping = "hybrid": pairs outside its shortlists have no score, and a sweep '
                'measures drift over all pairs; expected "digital" or "in-memory"'
            )
        simulator = Simulator(program)
        video = simulator.encode("video", self.data.video)
        queries = {name: simulator.encode(name, rows) for name, rows in self.fit.items()}
        right = queries.get("video")
        matches = program_gallery(program.score, right, settings) if right else None
        tiled = program_gallery(program.score, video, settings)
        return replace(program, score=fit_gallery(tiled, queries["text"], matches))

    def _measured(self, program: Program) -> Queries:
        """Measure all evaluation pairs query by query; CimError where a score is not finite."""
        simulator = Simulator(program)
        features = encode(simulator, self.data)
        scores = simulator.score(features["text"], features["video"])
        if not np.isfinite(scores).all():
            raise CimError("a score is not finite; the model is out of float64's range")
        return self.references.measured(scores, *real_means(program, features))

    def _on_dies(
        self, request: DieRequest, program: Program, build: Configuration, note: Say
    ) -> tuple[Mapping[str, Any], ...]:
        """Metrics over dies at each time; a note and nothing for a target without noise."""
        noise = build.target.noise
        if noise is None:
            note(f'target "{build.target.name}" has no [noise], so no dies were drawn')
            return ()
        try:
            return tuple(self._at_times(request, noise, program, build.settings))
        except CimError as error:
            note(f"no dies were drawn: {error}")
            return ()

    def _at_times(
        self, request: DieRequest, noise: Noise, program: Program, settings: Settings
    ) -> Iterator[dict[str, Any]]:
        """Median and worst twentieth over dies of each metric by itself, a time at a time."""
        for time in request.times:
            conditions = Conditions(noise, noise.seconds(time), seed=request.seed)
            trials = [
                self.references.metrics(
                    self._measured(on_die(program, settings, conditions, index).program)
                )
                for index in range(request.trials)
            ]
            found: dict[str, Any] = {"time": time_text(conditions.seconds)}
            for name, worst in WORST_OF_DIES.items():
                if name not in trials[0]:
                    continue
                values = [trial[name] for trial in trials]
                median, last = (float(np.percentile(values, at)) for at in (MEDIAN, worst))
                found[name] = {"median": median, "worst": last}
            yield found


def _failed(error: Exception) -> Outcome:
    """The outcome of a point that an error ended."""
    if isinstance(error, CimError):
        return Outcome(str(error))
    if isinstance(error, MemoryError):
        return Outcome(f"not enough memory: {error}")
    return Outcome(f"a fault in cimtool itself ({type(error).__name__}: {error})")


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
        known = digests_of(*calibration_rows(calibrating, []))
        require_unseen(known, evaluated, model.name)
    return model, calibrating, evaluated


def cost_of(found: Estimate) -> dict[str, Any]:
    """The cost of a point on its target, a query against the evaluation gallery included.

    Energy in pJ and latency in ns are None where the target gives no figures, and lower bounds
    where parts are missing.
    """
    query, plan = found.query, found.floorplan
    assert query is not None
    return {
        "arrays": plan.arrays,
        "chips": plan.chips,
        "loads": plan.loads,
        "conversions": query.conversions,
        "energy_pj": query.energy_pj.value,
        "energy_missing": "; ".join(query.energy_pj.missing),
        "energy_coverage": query.coverage,
        "latency_ns": query.latency_ns.value,
        "latency_missing": "; ".join(query.latency_ns.missing),
    }
