"""A sweep: many settings of one model, the drift and the cost of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from cimtool.base.errors import ArgumentError
from cimtool.base.files import keeping_inputs, text_bytes
from cimtool.base.grids import GridKey
from cimtool.base.modality_names import layer_matches
from cimtool.base.named import nearest
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.base.threads import one_blas_thread
from cimtool.bundle.compilation import layer_names
from cimtool.experiments.budgets import (
    COSTS,
    OBJECTIVE,
    SCORE_COSTS,
    Choice,
    DriftBudget,
    cheapest,
    front,
    with_objective,
)
from cimtool.experiments.compiled import Outcome, PointEvaluator
from cimtool.experiments.dies import (
    SPREAD,
    DieRequest,
    Yield,
    YieldDifference,
    die_request,
    when_read,
    yield_differences,
    yields_of,
)
from cimtool.experiments.engine import (
    TABLES,
    ExperimentKind,
    GridResult,
    PointsFailed,
    check_format,
    check_workers,
    table_file,
    values_name,
    values_text,
    workers,
    write_results,
)
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.options import SweepOptions
from cimtool.experiments.points import (
    LAYERS,
    SCORE_KEYS,
    SETTINGS_FILE,
    TARGET_FILE,
    Point,
    Sources,
    compile_command,
    points,
    read_grid,
)
from cimtool.experiments.references import (
    Remarks,
    SweepReferences,
    kept_references,
    reference_name,
)
from cimtool.experiments.rows import IDENTITY, check_gallery, measured_identity, measured_rows
from cimtool.experiments.scores import ScoredModels, check_scores, fitted_in, scored_models
from cimtool.hardware.keys import ScoreMapping
from cimtool.hardware.noise.spec import load_noise
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings, files_of
from cimtool.loading.source import ModelSource
from cimtool.passes.gallery import score_layers
from cimtool.reference.limits import check_measurable
from cimtool.reference.montecarlo import check_samples
from cimtool.report.document import Block, sentences

SWEEP = ExperimentKind("sweep", "sweep.json", 11, IDENTITY, Outcome.from_json)


@dataclass(frozen=True, repr=False, kw_only=True)
class Sweep(GridResult[Point, Outcome], shown_by="cimtool.experiments.render_sweep"):
    """All points of a sweep, in the order of the grid.

    `baselines` are the metrics of scores without hardware, with their intervals. `remarks` are
    shown beside all figures. With an `objective`, it chooses, and points have it as a cost. `files`
    of the model come with their SHA-256. `resumed` counts points of an earlier run.
    """

    page = "pareto.html"

    model: str
    data: Mapping[str, Any]
    reference: str
    baselines: Mapping[str, Mapping[str, float]]
    baseline_intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    remarks: Remarks
    dies: DieRequest | None
    objective: CostObjective | None = None
    files: Sequence[tuple[str, str]] = ()
    chosen: Choice | None = None

    @property
    def sampled(self) -> set[int]:
        """The indices of Monte Carlo points, which are not compiled."""
        return {index for index, one in enumerate(self.points) if one.score.samples is not None}

    @property
    def by_class(self) -> bool:
        """True if classes or judgements define right items, so that their metrics lead."""
        return bool(self.data.get("by_class"))

    @property
    def first(self) -> list[str]:
        """Sentences that a reader must see before any figure."""
        return self.remarks.first

    @property
    def verdict(self) -> list[Block]:
        """The verdict on the chosen point; without one, on the point that is nearest to exact.

        Nothing if the float score is broken, or the points have no error.
        """
        index = None if self.chosen is None else self.chosen.index
        subject = "The chosen point"
        if index is None:
            errors = {
                i: one.metrics[error]
                for i, one in enumerate(self.outcomes)
                for error in ("centred_rmse", "float_centred_rmse")
                if error in one.metrics and one.worth is not None
            }
            if not errors:
                return []
            index, subject = min(errors, key=lambda i: errors[i]), "The nearest point"
        if self.remarks.faults:
            return []
        values = values_text(self.points[index].named)
        return self.outcomes[index].verdict(f"{subject}, {index} ({values}),")

    @property
    def costs(self) -> Mapping[str, str]:
        """The costs that distinguish points, by name, the objective first, if there is one.

        Multiplications are among them if scores differ.
        """
        known = SCORE_COSTS if any(key.path[0] in SCORE_KEYS for key in self.grid) else COSTS
        if self.objective is None:
            return known
        return {OBJECTIVE: f"objective {self.objective.text}", **known}

    @property
    def fronts(self) -> dict[str, list[int]]:
        """The points on each Pareto front of drift and a cost, by the cost's name."""
        return {cost: front(self.outcomes, cost, self.units) for cost in self.costs}

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits that dies must keep; empty if the reference is a broken float score."""
        founded = self.chosen is not None and not self.remarks.broken_reference
        return self.chosen.budget.limits if self.chosen is not None and founded else {}

    @cached_property
    def yields(self) -> list[tuple[Yield, ...]]:
        """The yield of each point at each time; empty without dies or a budget."""
        return [yields_of(outcome.dies, self.limits) for outcome in self.outcomes]

    @cached_property
    def yield_differences(self) -> tuple[YieldDifference, ...]:
        """The point of the highest yield compared with each other point, on the same dies."""
        chosen = None if self.chosen is None else self.chosen.index
        return yield_differences([one.dies for one in self.outcomes], self.limits, chosen)

    @cached_property
    def yield_times(self) -> list[str]:
        """The times and corners at which any point has a yield."""
        return list(dict.fromkeys(one.when for yields in self.yields for one in yields))

    @property
    def units(self) -> list[str]:
        """The kind of array of each point."""
        return [point.unit for point in self.points]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on workers, or on the number of runs."""
        yields = self.yields
        return {
            **SWEEP.versions,
            "model": self.model,
            "files": {Path(name).name: digest for name, digest in self.files},
            "verdict": sentences(self.verdict),
            "warnings": self.first,
            "data": dict(self.data),
            "reference": self.reference,
            "baselines": {name: dict(values) for name, values in self.baselines.items()},
            "baseline_intervals": {
                name: {key: list(ends) for key, ends in values.items()}
                for name, values in self.baseline_intervals.items()
            },
            "objective": None if self.objective is None else dict(self.objective.weights),
            "grid": {key.name: list(key.values) for key in self.grid},
            "dies": None if self.dies is None else vars(self.dies),
            "points": [
                {
                    "point": index,
                    "values": point.named,
                    # The notes include the warnings.
                    **{k: v for k, v in outcome.to_json().items() if k != "warnings"},
                    "yields": [one.to_json() for one in yields[index]],
                }
                for index, point, outcome in self.numbered()
            ],
            "yield_differences": [one.to_json() for one in self.yield_differences],
            "pareto": self.fronts,
            "budget": None if self.chosen is None else self.chosen.to_json(),
            "notes": list(self.remarks.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per point, all with the same columns; None if there is no value."""
        yields = self.yields
        rows = [
            {"point": index, **point.named, **_flat(outcome, yields[index])}
            for index, point, outcome in self.numbered()
        ]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        columns.sort(key=LAST.__contains__)
        return [{name: row.get(name) for name in columns} for row in rows]


LAST = ("error", "notes")
"""Columns of long texts, after all others."""


def _flat(outcome: Outcome, yields: Sequence[Yield]) -> dict[str, Any]:
    row: dict[str, Any] = {"state": outcome.to_json()["state"], **outcome.metrics}
    for name, ends in outcome.intervals.items():
        row |= dict(zip((f"{name}_low", f"{name}_high"), ends, strict=True))
    worth = outcome.worth
    if worth is not None and worth.of_raw is not None:
        loss = worth.of_raw.loss
        row |= {"loss_from_raw": loss.value, "loss_from_raw_low": loss.low}
        row |= {"loss_from_raw_high": loss.high}
    row |= outcome.cost
    for values in outcome.dies:
        time = _column(when_read(values))
        for name, found in values.items():
            if isinstance(found, Mapping):
                row |= {f"{name}_{time}_{which}": found[which] for which in SPREAD}
    for one in yields:
        name = f"yield_{_column(one.when)}"
        share = one.share
        row |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
        row[f"{name}_in_doubt"] = one.in_doubt
    return row | {"error": outcome.error, "notes": "; ".join(outcome.notes)}


def _column(when: str) -> str:
    """A time and a corner in the name of a column: `1h_ss`."""
    return when.replace(", ", "_").replace(" ", "")


@keeping_inputs
@takes(SweepOptions)
@one_blas_thread
def sweep(options: SweepOptions, say: Say = silent) -> Sweep:
    """Compile a model for every point of a grid, and measure drift and cost of each on `data`.

    `grid` has values of settings (`weight_bits`), of `target`, of keys of the target's file
    (`target.rows_active`), and of the score: `head`, `degree` of a polynomial that is fitted to the
    `teacher`, and `samples` of Monte Carlo beside the points. `trials` draws dies with the noise of
    `noise_model` or of the target, and reads them at each of `corners` and `times`. `jobs`
    processes or the Dask cluster at `dask` compute the points. Results go to `output` (default
    `exports/<model>.sweep`). Each point is kept as soon as it is done, and later runs do not
    compute it again. A `budget` with `trials` gives each point a yield: the share of dies within
    the budget. The chosen point needs a yield of `min_yield` or more (None: its median die is
    within). Within the budget the cheapest is chosen: by the `objective`, a cost or a sum such as
    "query_energy=1,arrays=0.5" of shares of what the first point costs; without one by the energy
    of a query, else by conversions, else by arrays. With a file `qrels`, items that it grades above
    0 are right. `distractors` are more items, right for no text. The verdict and the costs are for
    a `gallery` of so many items, and the verdict beside Monte Carlo with `samples`. Raises CimError
    if rows of `data` calibrated (unless they are allowed or dropped), the folder holds another
    sweep or no worker answers; PointsFailed (a CheckFailed) at the end if points failed or none is
    within the `budget`.
    """
    with swept(options, SWEEP, say) as (found, known, place):
        budget = DriftBudget(options.budget or {}, options.min_yield)
        return _written(found, options, budget, known, place)


@contextmanager
def swept(
    options: SweepOptions, kind: ExperimentKind[Outcome], say: Say
) -> Iterator[tuple[Sweep, ScoredModels, Path]]:
    """Measure all points, and hold the folder of this `kind` to write results into.

    Yields the points without a choice among them, the models of their scores, and the folder.
    """
    dies, budget, keys, made = _asked(options)
    objective = None if options.objective is None else CostObjective.of(options.objective)
    source = ModelSource.of(options).for_rows(options.calibration)
    check_scores(keys, source.head, source.poly, options.teacher)
    known = scored_models(source, made, options.teacher, say)
    rows, data = measured_rows(known.first, options)
    of_logit = any(one.head.predicts_logit for one in known.models.values())
    check_measurable("budget", budget.limits, data.truth, data.file, of_logit)
    _check_layers(known, keys)
    name = reference_name(known.first, len(known.models))
    whose = measured_identity(known.projectors, known.reference, rows, data)
    place = Path(options.output or Path("exports") / f"{known.first.name}.{kind.noun}")
    asked = options.samples, options.gallery
    digests = [_digest(one, known, whose, dies, asked) for one in made]
    builds = {digest: one for digest, one in zip(digests, made, strict=True) if digest is not None}
    with workers(options, place) as compute, kind.opened(place, whose, compute) as folder:
        models = [known.first, *known.models.values()]
        scores = kept_references(place, models, data, say, name, options.samples)

        def evaluator(left: Mapping[str, Point]) -> PointEvaluator:
            scored = {point.score: known.models[point.score] for point in left.values()}
            return PointEvaluator.of(scored, rows, data, scores, dies, options.gallery)

        done = folder.outcomes(builds, evaluator, say)
        baselines, intervals = scores.baseline_metrics(known.heads)
        outcomes = [
            Outcome(point.refusal) if digest is None else done[digest]
            for digest, point in zip(digests, made, strict=True)
        ]
        if objective is not None:
            outcomes = with_objective(outcomes, objective, [point.unit for point in made])
        found = Sweep(
            model=known.first.name,
            data=_described(data, scores, options.gallery),
            reference=name,
            baselines=baselines,
            baseline_intervals=intervals,
            remarks=Remarks.of(known.compiled, rows, data, scores),
            grid=keys,
            dies=dies,
            points=made,
            outcomes=outcomes,
            objective=objective,
            resumed=folder.resumed,
            files=known.files,
        )
        yield found, known, place


def _asked(
    options: SweepOptions,
) -> tuple[DieRequest | None, DriftBudget, tuple[GridKey, ...], list[Point]]:
    """Dies, budget, keys and points; CimError for a mistake that shows before data are read."""
    check_samples(options.samples)
    check_gallery(options.gallery)
    dies = die_request(options.trials, options.times, options.seed, options.corners)
    noise = options.noise_model
    if noise is not None and dies is None:
        raise ArgumentError("{noise_model} applies only to dies; expected {trials} with it")
    budget = DriftBudget(options.budget or {}, options.min_yield)
    budget.check(options.trials)
    keys = read_grid(options.grid)
    drawn = None if noise is None else load_noise(noise)
    made = points(keys, options.target, _settings_of(options), drawn)
    _check_corners(dies, made)
    check_workers(options)
    check_format(options.table)
    return dies, budget, keys, made


def _settings_of(options: SweepOptions) -> Path | None:
    return None if options.settings is None else Path(options.settings)


def _digest(
    point: Point,
    known: ScoredModels,
    whose: Mapping[str, str],
    dies: DieRequest | None,
    asked: tuple[int, int | None],
) -> str | None:
    """The name of a point's file; None if its values contradict each other.

    `asked` are the samples and the gallery of the verdict.
    """
    if point.build is None:
        return None
    target, settings = point.build.target.to_json(), point.build.settings.to_json()
    drawn = None if dies is None else asdict(dies)
    score = known.identity(point.score)
    return values_name({**SWEEP.versions, **whose}, target, settings, score, drawn, asked)


def _described(data: Embeddings, scores: SweepReferences, gallery: int | None) -> dict[str, Any]:
    """The evaluation rows as plain values, and the items that a query is priced against."""
    return {
        "file": data.file,
        "modalities": data.called,
        "texts": len(data.text),
        "videos": len(data.video),
        "gallery": gallery or len(data.video),
        "by_class": data.truth.by_class,
        "queries": scores.own.counts,
    }


def _written(
    found: Sweep, options: SweepOptions, budget: DriftBudget, known: ScoredModels, place: Path
) -> Sweep:
    """Choose a point within the budget, and write the results; PointsFailed as in `sweep`."""
    texts = dict(known.fitted_files)
    if budget.limits:
        found, more = _chosen(found, options, budget, known, place)
        texts |= more
    files = {name: text_bytes(text) for name, text in texts.items()}
    table = table_file(found.rows(), options.table)
    earlier = (*TABLES, TARGET_FILE, SETTINGS_FILE, *(one.name for one in fitted_in(place)))
    found = write_results(found, place, table | files, earlier)
    if found.chosen is not None and not found.chosen.within:
        if broken := found.remarks.broken_reference:
            raise PointsFailed(found, f"{place}: no point is within {budget.text}: {broken}")
        raise PointsFailed(found, f"{place}: no point is within the budget {budget.text}")
    return found


def _chosen(
    found: Sweep, options: SweepOptions, budget: DriftBudget, known: ScoredModels, place: Path
) -> tuple[Sweep, dict[str, str]]:
    """The sweep with its cheapest point within the budget, and the files of that command line."""
    deciding = tuple(COSTS) if found.objective is None else (OBJECTIVE,)
    chosen = cheapest(found.outcomes, budget, found.units, found.sampled, deciding)
    texts = dict[str, str]()
    if found.remarks.broken_reference:
        chosen = Choice(budget, None, None, 0)
    files = files_of(options.calibration)
    if chosen.index is not None and files and not isinstance(options.target, Target):
        point = found.points[chosen.index]
        source = known.source(point.score, place)
        if source.files:
            own = Sources(source, files, _settings_of(options), options.noise_model)
            command, texts = compile_command(point, own, place)
            chosen = replace(chosen, command=command)
    return replace(found, chosen=chosen), texts


def _check_corners(dies: DieRequest | None, made: Sequence[Point]) -> None:
    """Raise CimError for a corner that the noise of no point has."""
    noises = [one.build.target.noise for one in made if one.build is not None]
    known = [noise for noise in noises if noise is not None]
    for corner in () if dies is None else dies.corners:
        if known and not any(noise.has_corner(corner) for noise in known):
            known[0].at_corner(corner)


def _check_layers(scored: ScoredModels, grid: Sequence[GridKey]) -> None:
    """Raise CimError for a pattern of the grid that matches no layer under any score mapping."""
    names: list[str] = []
    for model in scored.models.values():
        names += layer_names(model.program)
        for mapping in get_args(ScoreMapping):
            names += score_layers(model.head, mapping)
    known = list(dict.fromkeys(names))
    for key in grid:
        if key.path[0] == LAYERS and not any(layer_matches(name, key.path[1]) for name in known):
            raise ArgumentError(
                "{grid} {}: matches no layer of the model, which has {}{}",
                key.name,
                ", ".join(known),
                nearest(key.path[1], known),
            )
