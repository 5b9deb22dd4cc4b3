"""One point: a model compiled in memory, run on the evaluation rows, with its cost.

The evaluator holds everything that points share, such as folded programs. A worker keeps its
evaluator, so points with the same calibration calibrate once, and points that follow one another
and differ in their converters quantize once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.base.plugins import as_plugin_fault
from cimtool.base.progress import Say, silent
from cimtool.base.typed_fields import made_of
from cimtool.bundle.compilation import calibration_rows, fit_rows, layer_names
from cimtool.bundle.simulate import left_by
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.raw_rows import TimesRaw
from cimtool.costs.wider_gallery import GalleryPair
from cimtool.experiments.dies import DieRequest, spread_over_dies
from cimtool.experiments.point_cost import PointCost, cost_of
from cimtool.experiments.points import COMPILED, Point, ScoreChoice
from cimtool.experiments.references import SweepReferences, trained_gaussians
from cimtool.experiments.shortlists import Shortlist
from cimtool.hardware.configuration import Configuration, level_notes
from cimtool.hardware.noise.model import time_text
from cimtool.hardware.settings import Settings, check_layer_bits, check_patterns
from cimtool.ir.heads import Head, assemble
from cimtool.ir.program import Graph, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model, ModelCard
from cimtool.passes.base import Job, Pass
from cimtool.passes.converters import TilePass
from cimtool.passes.fold import FoldPass
from cimtool.passes.gallery import (
    SHORTLIST,
    distance_graph,
    fit_gallery,
    program_gallery,
    score_layers,
)
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.passes.product_bits import ProductExamples
from cimtool.passes.trained_bits import with_trained_bits
from cimtool.reference.metrics import on_grid
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.queries import Queries, Selection
from cimtool.reference.statistics import Gaussians
from cimtool.report.document import Block, Sentence
from cimtool.report.formats import NumberFormat
from cimtool.report.table import Content, interval_cell
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator
from cimtool.verification.ranked_data import raw_products
from cimtool.verification.stages import encode, real_means
from cimtool.verification.worth import Worth, in_larger_gallery
from cimtool.verification.worth_table import larger_gallery, worth_table

PRICED_ITEMS = 128
"""Items at most of a shortlist's two galleries, which give the cost of any number of items."""

DIES_AT_A_TIME = 16
"""Dies whose queries are kept until their intervals are computed on the same resamples."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a point, plain values by name, or the `error` that it ended with.

    `intervals` of the metrics are over resamples of the queries. `worth` compares with raw rows,
    the float score and Monte Carlo, query by query; None for Monte Carlo itself. `dies` has, for
    each time, the values of all dies and their spread. `warnings` are the `notes` that every reader
    should see: cells with few levels, a shortlist, or no dies although dies were requested.
    """

    error: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    dies: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    worth: Worth | None = None

    def verdict(self, subject: str) -> list[Block]:
        """The verdict in the words of `verify`, of a `subject`; nothing if nothing is known."""
        if self.worth is None or not self.worth.standings:
            return []
        energy = self.times_raw
        return [
            Sentence(self.worth.about(subject), "verdict", self.worth.tone),
            *([] if energy is None else [energy.sentence()]),
            *(replace(one, level="shown", name="") for one in worth_table(self.worth)),
            *larger_gallery(self.worth),
        ]

    @property
    def times_raw(self) -> TimesRaw | None:
        """The energy of a query beside that of raw rows; None if one is not known."""
        if self.worth is None or self.cost.get("energy_to_raw") is None:
            return None
        ends = (float(self.cost[f"energy_to_raw{end}"]) for end in ("", "_low", "_high"))
        lower_bound = bool(self.cost["energy_missing"])
        return TimesRaw(Change(*ends), self.worth.ranked_items, lower_bound)

    def cell(self, name: str, form: NumberFormat) -> Content:
        """A metric in a table, with its interval if that is known."""
        value, ends = self.metrics.get(name), self.intervals.get(name)
        if value is None or ends is None:
            return value
        return interval_cell(Change(value, *ends), form)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, as a point's file has them."""
        return {"state": "done" if self.error is None else "failed", **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Read what `to_json` returned; KeyError, TypeError or AttributeError for anything else."""
        parts = {name: values[name] for name in ("error", "metrics")}
        parts["cost"] = asdict(made_of(PointCost, values["cost"]))
        parts |= {name: tuple(values[name]) for name in ("dies", "notes", "warnings")}
        parts["intervals"] = {name: tuple(ends) for name, ends in values["intervals"].items()}
        one = values["worth"]
        parts["worth"] = None if one is None else Worth.from_json(one)
        return made_of(cls, parts)


class MeasuredPairs(NamedTuple):
    """Scores [n, m] of all pairs, and what was measured of the answers query by query.

    With a shortlist texts are answered by the items `listed` [n, m]; `notes` are on it.
    """

    scores: Array
    queries: Queries
    listed: BoolArray | None = None
    notes: tuple[str, ...] = ()


class QuantizedProgram(NamedTuple):
    """A `program` of integers before tiling, its calibrated `source`, and the notes of passes."""

    source: Program
    program: Program
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PointEvaluator:
    """The data that all points of a sweep share; calibrated programs are added when needed.

    `towers` are the projectors, `models` their cards under each score. `text` and `video` are the
    calibration rows, `text_to_video` the right videos if known, `fit` the rows that fit a gallery's
    converters, and `data` the evaluation rows. `items` has their means and variances, if a score
    samples them. The verdict and the cost are for a `gallery` of so many items, or for the
    evaluation videos.
    """

    towers: tuple[Graph, Graph]
    models: Mapping[ScoreChoice, ModelCard]
    text: Array
    video: Array
    text_to_video: IntArray | None
    fit: Mapping[str, Array]
    data: Embeddings
    references: SweepReferences
    dies: DieRequest | None
    gallery: int | None = None
    items: tuple[Gaussians, Gaussians] | None = None
    _folded: dict[ScoreChoice, Program] = field(default_factory=dict)
    _calibrated: dict[Hashable, Program] = field(default_factory=dict)
    _quantized: dict[Hashable, QuantizedProgram] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        models: Mapping[ScoreChoice, Model],
        calibration: Embeddings,
        data: Embeddings,
        references: SweepReferences,
        dies: DieRequest | None,
        gallery: int | None,
    ) -> PointEvaluator:
        """The evaluator of models that share their projectors."""
        rows, fit = calibration_rows(calibration, []), fit_rows(calibration)
        cards = {choice: model.card for choice, model in models.items()}
        first, *_ = models.values()
        sampled = [model for choice, model in models.items() if choice.samples is not None]
        items = trained_gaussians(sampled[0], data) if sampled else None
        right = calibration.text_to_video
        return cls(first.towers, cards, *rows, right, fit, data, references, dies, gallery, items)

    def outcome(self, point: Point) -> Outcome:
        """The outcome of a point whose values do not contradict each other."""
        assert point.build is not None
        return self.evaluate(point.build, point.score)

    def evaluate(self, build: Configuration, score: ScoreChoice = COMPILED) -> Outcome:
        """Compile and measure one build; an error becomes its outcome, so the others go on."""
        try:
            build = self.with_trained_bits(build)
            compute = self._compared if score.samples is None else self._sampled
            queries, found = compute(build, score)
            (intervals,) = self.references.intervals(queries)
            return replace(found, intervals=intervals)
        except Exception as error:  # the outermost frame of a point: the others must go on
            return _failed(error)

    def evaluate_on(
        self, build: Configuration, selections: Sequence[Selection | None]
    ) -> tuple[Outcome, ...]:
        """Compile and score one point once: metrics of each selection of queries (None: all).

        The outcomes have no intervals.
        """
        try:
            measured, found = self._evaluated(self.with_trained_bits(build), COMPILED)
        except Exception as error:  # as above
            return (_failed(error),) * len(selections)
        return tuple(
            replace(found, metrics=self.references.metrics(measured.queries, chosen))
            for chosen in selections
        )

    @property
    def trained(self) -> Program:
        """The trained program of the first score: all share their layers."""
        first, *_ = self.models.values()
        return assemble(*self.towers, first.head)

    def with_trained_bits(self, build: Configuration) -> Configuration:
        """A build with the bits of trained integers in layers; CimError if it asks for fewer."""
        return replace(build, settings=with_trained_bits(build, self.trained))

    def _compared(self, build: Configuration, score: ScoreChoice) -> tuple[Queries, Outcome]:
        """Measurements of all queries, and their outcome with the verdict."""
        measured, found = self._evaluated(build, score)
        larger = None
        if self.gallery is not None and self.data.truth.ranks:
            larger = in_larger_gallery(
                measured.scores, raw_products(self.data), self.data.truth, self.gallery, seed=0,
                listed=measured.listed,
            )  # fmt: skip
        queries, head = measured.queries, self.models[score].head
        return queries, replace(found, worth=self.references.worth(queries, head, larger))

    def _evaluated(self, build: Configuration, score: ScoreChoice) -> tuple[MeasuredPairs, Outcome]:
        """Scores of all pairs, and their outcome."""
        settings, said = build.settings, list[str]()
        model = self.models[score]
        layers = layer_names(assemble(*self.towers, model.head))
        of_score = score_layers(model.head, settings.score_mapping)
        check_patterns(settings, [*layers, *of_score], model.modalities)
        check_layer_bits(settings, layers, of_score)
        few_levels = level_notes(build.target, settings, layers)
        compiled = program = self.compiled(settings, said.append, score)
        if settings.score_mapping != "digital":
            program = self.with_gallery(program, settings)
        shortlist = Shortlist.of(settings, len(self.data.video), self.gallery)
        measured = self._measured(program, model.head, shortlist)
        cost = cost_of(self._estimate(compiled, build, score))
        no_dies: list[str] = []
        dies = self._on_dies(program, build, (model.head, shortlist), no_dies.append)
        of_model = (f"warning: {text}" for text in model.warnings)
        warnings = (*few_levels, *measured.notes, *no_dies)
        notes = (*of_model, *few_levels, *said, *measured.notes, *no_dies)
        metrics = self.references.metrics(measured.queries)
        return measured, Outcome(None, metrics, {}, cost, dies, notes, warnings)

    def _sampled(self, build: Configuration, score: ScoreChoice) -> tuple[Queries, Outcome]:
        """Measurements and outcome of Monte Carlo in float; its cost has the compiled encoding."""
        model = self.models[score]
        assert self.items is not None
        assert score.samples is not None
        assert model.a is not None
        assert model.b is not None
        found = monte_carlo(*self.items, model.a, model.b, score.samples)
        queries = self.references.sampled_queries(found.logit)
        program = self.compiled(build.settings, silent, score)
        cost = cost_of(self._estimate(program, build, score, score.samples), sampled=True)
        return queries, Outcome(None, self.references.metrics(queries), {}, cost)

    def estimated(self, build: Configuration, score: ScoreChoice = COMPILED) -> Estimate:
        """The cost of a build, as `cimtool cost` has it."""
        program = self.compiled(build.settings, silent, score)
        return self._estimate(program, build, score)

    def _estimate(
        self, program: Program, build: Configuration, score: ScoreChoice, samples: int | None = None
    ) -> Estimate:
        """The cost of a compiled program, whose gallery is in the arrays if the build says so.

        Of more items than the evaluation videos two galleries of these tell the cost.
        """
        held, items = len(self.data.video), self.gallery or len(self.data.video)
        drawn = self.references.samples if samples is None else samples
        query = ScoredQuery(self.models[score].dimension, drawn, items)
        if samples is not None or build.settings.score_mapping == "digital":
            return estimate(program, build, query)
        if (shortlist := Shortlist.of(build.settings, held, items)) is not None:
            query = replace(query, gallery=None, shortlist=shortlist.length)
            return self._shortlisting(program, build, query).at(items)

        def stored(copies: int) -> Estimate:
            own = self.with_gallery(program, build.settings, copies)
            return estimate(own, build, replace(query, gallery=copies * held))

        return stored(1) if items == held else GalleryPair(stored(1), stored(2)).at(items)

    def _shortlisting(
        self, program: Program, build: Configuration, query: ScoredQuery
    ) -> GalleryPair:
        """The cost of a shortlist, from calibration items, as `cimtool cost --gallery` has it."""
        rows = self.fit.get("video", self.data.video)[:PRICED_ITEMS]
        once = Simulator(program).encode("video", rows)
        pair = []
        for copies in (1, 2):
            items = {name: np.concatenate([one] * copies) for name, one in once.items()}
            graph = program_gallery(distance_graph(program.score), items, build.settings)
            pair.append(estimate(replace(program, shortlist=graph), build, query))
        one, two = pair
        return GalleryPair(one, two, SHORTLIST)

    def compiled(
        self, settings: Settings, note: Callable[[str], None], score: ScoreChoice = COMPILED
    ) -> Program:
        """The program of the last pass, as `compile` makes it."""
        whole = self._quantized_for(settings, score)
        for sentence in whole.notes:
            note(sentence)
        _, rest = _passes_by_tiling(settings)
        job = replace(self._job(settings, note), source=whole.source)
        return run_passes(rest, whole.program, job, silent)[-1].program

    def _job(self, settings: Settings, note: Callable[[str], None]) -> Job:
        return Job(settings, self.text, self.video, note, text_to_video=self.text_to_video)

    def _quantized_for(self, settings: Settings, score: ScoreChoice) -> QuantizedProgram:
        """The program before tiling, which no setting of converters changes; the last is kept."""
        key = score, settings.without_converters()
        found = self._quantized.get(key)
        if found is None:
            said: list[str] = []
            job = self._job(settings, said.append)
            (_, calibrate, *passes), _ = _passes_by_tiling(settings)
            calibrated = self._calibrated.get((score, settings.calibrator))
            if calibrated is None:
                (stage,) = run_passes((calibrate,), self._fold(score, settings), job, silent)
                self._calibrated[score, settings.calibrator] = calibrated = stage.program
            stages = run_passes(passes, calibrated, job, silent)
            found = QuantizedProgram(calibrated, stages[-1].program, tuple(said))
            self._quantized.clear()
            self._quantized[key] = found
        return found

    def _fold(self, score: ScoreChoice, settings: Settings) -> Program:
        """The folded program of a score, which depends on no setting; the last one is kept."""
        # Threads of a Dask worker share this: never read an entry again, another may remove it.
        folded = self._folded.get(score)
        if folded is None:
            program = assemble(*self.towers, self.models[score].head)
            job = Job(settings, self.text, self.video, silent)
            (stage,) = run_passes((FoldPass(),), program, job, silent)
            self._folded.clear()
            self._calibrated.clear()
            self._folded[score] = folded = stage.program
        return folded

    def with_gallery(self, program: Program, settings: Settings, copies: int = 1) -> Program:
        """The program with the evaluation videos in its arrays, as after `cimtool program`.

        Each video stands there in `copies`, which only a cost needs. Of a hybrid score only the
        distances that draw up its shortlist are there.
        """
        simulator = Simulator(program)
        video = simulator.encode("video", self.data.video)
        video = {name: np.concatenate([rows] * copies) for name, rows in video.items()}
        queries = {name: simulator.encode(name, rows) for name, rows in self.fit.items()}
        right = queries.get("video")
        if settings.score_mapping == "hybrid":
            distances = distance_graph(program.score)
            matches = program_gallery(distances, right, settings) if right else None
            tiled = program_gallery(distances, video, settings)
            shortlist = fit_gallery(tiled, queries["text"], matches, settings.settable)
            return replace(program, shortlist=shortlist)
        examples = ProductExamples(queries["text"], right or video)
        matches = program_gallery(program.score, right, settings, examples) if right else None
        tiled = program_gallery(program.score, video, settings, examples)
        score = fit_gallery(tiled, queries["text"], matches, settings.settable)
        return replace(program, score=score)

    def _measured(self, program: Program, head: Head, shortlist: Shortlist | None) -> MeasuredPairs:
        """Score all evaluation pairs and measure them; CimError if a score is not finite.

        With a shortlist, texts are answered by what it leaves.
        """
        simulator = Simulator(program)
        features = encode(simulator, self.data)
        scores = simulator.score(features["text"], features["video"])
        if not np.isfinite(scores).all():
            raise CimError("a score is not finite; the model is out of float64's range")
        means = real_means(program, features)
        queries = self.references.measured(scores, *means, head)
        if shortlist is None:
            return MeasuredPairs(scores, queries)
        scores = on_grid(scores)
        listed = shortlist.listed(simulator, features["text"])
        answered = self.references.after_shortlist(queries, left_by(listed, scores))
        said = shortlist.note(listed, scores, self.data.called)
        return MeasuredPairs(scores, answered, listed, (said,))

    def _on_dies(
        self,
        program: Program,
        build: Configuration,
        scored: tuple[Head, Shortlist | None],
        note: Say,
    ) -> tuple[Mapping[str, Any], ...]:
        """Metrics of all dies and their spread, for each corner and time of reading.

        Empty, with a note, if the target has no noise or its noise does not know a time.
        """
        noise, request = build.target.noise, self.dies
        if request is None:
            return ()
        if noise is None:
            note(f'target "{build.target.name}" has no [noise], so no dies were drawn')
            return ()
        found = []
        try:
            for corner, time in product(request.corners, request.times):
                own = noise.at_corner(corner)
                conditions = Conditions(own, own.seconds(time), seed=request.seed, corner=corner)
                metrics: list[Mapping[str, float]] = []
                intervals: list[Mapping[str, tuple[float, float]]] = []
                for start in range(0, request.trials, DIES_AT_A_TIME):
                    those = range(start, min(start + DIES_AT_A_TIME, request.trials))
                    drawn = (on_die(program, build.settings, conditions, die) for die in those)
                    measured = [self._measured(die.program, *scored).queries for die in drawn]
                    metrics += [self.references.metrics(one) for one in measured]
                    intervals += self.references.intervals(*measured)
                read = time_text(conditions.seconds), corner
                found.append(spread_over_dies(*read, metrics, intervals))
        except CimError as error:
            note(f"no dies were drawn: {error}")
            return ()
        return tuple(found)


def _passes_by_tiling(settings: Settings) -> tuple[Sequence[Pass], Sequence[Pass]]:
    """The passes before layers are put on arrays, and the others."""
    passes = passes_for(settings)
    before = [*takewhile(lambda step: not isinstance(step, TilePass), passes)]
    return before, passes[len(before) :]


def _failed(error: Exception) -> Outcome:
    """The outcome of a point that ended with an error."""
    error = as_plugin_fault(error)
    if isinstance(error, CimError):
        return Outcome(str(error))
    if isinstance(error, MemoryError):
        return Outcome(f"not enough memory: {error}")
    return Outcome(f"a fault in cimtool itself ({type(error).__name__}: {error})")
