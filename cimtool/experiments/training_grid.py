"""A grid of trainings: a model for each point, compared on pairs that no point trains on.

A key is an argument of a training (`loss`, `model`, `batch`, `seed`, ...) or an option of the model
or the loss (`model.width`, `loss.tau`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.folders import POINTS
from cimtool.base.grids import Grid, GridKey, KeyPath, KeyReader, Value, value_text
from cimtool.base.intervals import Change
from cimtool.base.modality_names import Modalities
from cimtool.base.named import nearest, unknown
from cimtool.base.progress import Say, prefixed
from cimtool.experiments.engine import (
    ExperimentKind,
    Failed,
    GridResult,
    PointFolder,
    values_name,
    write_results,
)
from cimtool.experiments.options import TrainGridOptions
from cimtool.experiments.trained_points import TrainedPoint, Unseen, train_point
from cimtool.loading.embeddings import embeddings_in
from cimtool.reference.bootstrap import RESAMPLES, Samples, interval, resamples, students
from cimtool.reference.measures import WAYS
from cimtool.reference.queries import RANKINGS_BY_KEY, Queries, metrics, share_queries
from cimtool.training.arguments import TrainingOptions
from cimtool.training.history import MEASURES
from cimtool.training.job import (
    Start,
    TrainingJob,
    data_digest,
    kinds_of,
    make_job,
    modalities_for,
    read_start,
)
from cimtool.training.loss import Loss
from cimtool.training.model import ProjectorModel
from cimtool.training.options import KINDS, Optimisation, Options, check_seed, kind_of_option
from cimtool.training.trainer import LAST, RunPlace

TRAININGS = ExperimentKind(
    "grid of trainings",
    "grid.json",
    3,
    {"data": "data", "validation": "validation data"},
    TrainedPoint.from_json,
)

SEED = "seed"
EXAMPLE = "such as batch=16,64"

FAMILIES: Mapping[str, type[ProjectorModel] | type[Loss]] = {"model": ProjectorModel, "loss": Loss}
OPTIMISATION = tuple(asdict(Optimisation()))
ARGUMENTS = (*FAMILIES, *OPTIMISATION, SEED)
"""The arguments of a training that a grid may have."""

Kinds = tuple[type[ProjectorModel], type[Loss]]


@dataclass(frozen=True)
class TrainingPoint:
    """One combination: its values in the grid's order, and the arguments of its training.

    Both leave out options that its model or loss does not have.
    """

    values: tuple[tuple[str, Value], ...]
    wanted: TrainingOptions

    @property
    def named(self) -> dict[str, Value]:
        """The values by their keys."""
        return dict(self.values)

    @property
    def seed(self) -> int:
        """The seed."""
        return self.wanted.seed or 0

    @property
    def variant(self) -> tuple[tuple[str, Value], ...]:
        """All values except the seed; a row is the mean over the seeds of a variant."""
        return tuple(pair for pair in self.values if pair[0] != SEED)


def read_training_grid(grid: Grid) -> tuple[GridKey, ...]:
    """Check every key and value of a grid by itself; CimError for the first wrong one."""
    return KeyReader(_path, _check_value, EXAMPLE).read(grid)


def _path(name: str) -> KeyPath:
    if name in ARGUMENTS:
        return (name,)
    try:
        return kind_of_option(name)
    except CimError:
        known = [*ARGUMENTS, *(f"{kind}.KEY" for kind in KINDS)]
        raise ArgumentError("{grid} {}", unknown("key", name, known)) from None


def _check_value(path: KeyPath, value: Value, name: str) -> None:
    key = path[0]
    if len(path) > 1:
        return  # checked later, with the models and losses of the points
    if key in FAMILIES:
        FAMILIES[key].named(str(value), f"grid {key}")
        return
    try:
        usual = 0 if key == SEED else asdict(Optimisation())[key]
        allowed = int if isinstance(usual, int) else int | float
        if not isinstance(usual, str) and (
            isinstance(value, bool) or not isinstance(value, allowed)
        ):
            expected = "an integer" if isinstance(usual, int) else "a number"
            raise ArgumentError("{} is {}; expected {}", Argument(key), value_text(value), expected)
        if key == SEED:
            check_seed(int(value))
        else:
            Optimisation(**{key: value})  # type: ignore[arg-type]
    except CimError as error:
        raise ArgumentError("{grid}: {}", error) from None


def training_points(
    keys: Sequence[GridKey], common: TrainingOptions, start: Start | None
) -> list[TrainingPoint]:
    """All combinations of a grid; the last key's values change fastest.

    `common` has the arguments of all points, `start` the checkpoint that they name. If only some
    models or losses have an option, or take a polynomial, the other points leave it out; points
    that become equal are merged. Raises CimError if a key is given twice, if no point has an
    option, or if no point can have its value.
    """
    options = dict(common.options or {})
    for key in keys:
        name = key.name
        if len(key.path) > 1 and name in options:
            raise ArgumentError("{grid} {} and {options} {} are both given", name, name)
        if len(key.path) == 1 and getattr(common, name) is not None:
            raise ArgumentError("{grid} {} and {} are both given", name, Argument(name))
    names = [key.name for key in keys]
    combined = [
        tuple(zip(names, values, strict=True))
        for values in itertools.product(*(key.values for key in keys))
    ]
    kinds: dict[Any, Kinds] = {}
    for pairs in combined:
        chosen: Any = {name: value for name, value in pairs if name in FAMILIES}
        kinds[pairs] = kinds_of(replace(common, **chosen), start)
    every = list(dict.fromkeys(kinds.values()))
    _check_options(keys, options, every)
    poly = common.poly
    if poly is not None and not any(loss.needs_polynomial for _, loss in every):
        raise ArgumentError("{poly} is given, and no loss of {grid} has a polynomial")
    found: dict[Any, TrainingPoint] = {}
    for pairs in combined:
        point = _point(pairs, common, kinds[pairs])
        found.setdefault(point.values, point)
    return list(found.values())


def _check_options(keys: Sequence[GridKey], options: Mapping[str, Any], every: list[Kinds]) -> None:
    """Raise CimError for an option that no point has, or a value that none can have."""
    given = [("grid", key.name, one) for key in keys if len(key.path) > 1 for one in key.values]
    given += [("options", name, value) for name, value in options.items()]
    for argument, key, value in given:
        kind, name = kind_of_option(key)
        index = list(FAMILIES).index(kind)
        types: list[type[Options]] = list(dict.fromkeys(one[index] for one in every))
        having = [one for one in types if name in one.model_fields]
        if not having:
            said = f"{kind} {', '.join(one.name for one in types)}"
            fields = list(dict.fromkeys(field for one in types for field in one.model_fields))
            raise ArgumentError(
                "{} {}: is not an option of {}: {}{}",
                Argument(argument), key, said, ", ".join(fields) or "none", nearest(name, fields),
            )  # fmt: skip
        errors = []
        for one in having:
            try:
                one(**{name: value})
            except CimError as error:
                errors.append(error)
        if len(errors) == len(having):
            raise ArgumentError("{}: {}", Argument(argument), errors[0])


def _point(
    pairs: Sequence[tuple[str, Value]], common: TrainingOptions, kinds: Kinds
) -> TrainingPoint:
    fields = {one.kind: one.model_fields for one in kinds}

    def has(key: str) -> bool:
        if key in ARGUMENTS:
            return True
        kind, name = kind_of_option(key)
        return name in fields[kind]

    values = tuple(pair for pair in pairs if has(pair[0]))
    options = {k: v for k, v in (common.options or {}).items() if has(k)}
    options |= {key: value for key, value in values if key not in ARGUMENTS}
    plain: Any = {key: value for key, value in values if key in ARGUMENTS}
    poly = common.poly if kinds[1].needs_polynomial else None
    return TrainingPoint(values, replace(common, **plain, poly=poly, options=options))


LEAD = "lead"
"""The leading metric, averaged over both ways."""

Drawn = Mapping[str, FloatArray]
"""Metrics of a point by name: [1 + B], the value and then the value of each resample."""


@dataclass(frozen=True, eq=False)
class TrainingRow:
    """A row of the table: points that differ only in their seed, or the raw embeddings.

    `metrics` are means over the seeds with Student's interval. With one seed, the interval is over
    resampled queries. `behind` is the best row's lead in the leading metric, paired by seed or by
    query; None for the best row.
    """

    values: Mapping[str, Value]
    points: tuple[int, ...]
    metrics: Mapping[str, Change]
    behind: Change | None = None

    @property
    def as_good(self) -> bool:
        """True if it is not known that the best row is better."""
        return self.behind is not None and not self.behind.low > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""

        def plain(change: Change) -> dict[str, float | None]:
            return {name: one if np.isfinite(one) else None for name, one in vars(change).items()}

        return {
            "values": dict(self.values),
            "points": list(self.points),
            "figures": {name: plain(one) for name, one in self.metrics.items()},
            "behind": None if self.behind is None else plain(self.behind),
            "as_good": self.as_good,
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TrainingGrid(
    GridResult[TrainingPoint, TrainedPoint | Failed], shown_by="cimtool.experiments.render_training"
):
    """A model trained for every point of a grid, in the order of the grid.

    `rows` leave out variants that failed with every seed; `best` is the number of the best row, and
    `raw` the row of raw embeddings. If `by_class`, mAP leads, else R@1. Figures are for pairs that
    were `set_aside`, or else for the pairs that chose the best epochs. `modalities` are the names
    of both sides, `folders` the folders of the points' runs.
    """

    page = "grid.html"

    data: str
    common: Mapping[str, Any]
    folders: Sequence[Path | None]
    rows: Sequence[TrainingRow]
    best: int | None
    raw: TrainingRow | None
    by_class: bool
    set_aside: bool
    queries: Mapping[str, int]
    modalities: Modalities

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len({one.seed for one in self.points})

    @property
    def lead(self) -> str:
        """The title of the leading metric."""
        return MEASURES["map" if self.by_class else "r1"]

    def trained(self, row: TrainingRow) -> list[TrainedPoint]:
        """The points of a row that did not fail."""
        every = (self.outcomes[index] for index in row.points)
        return [one for one in every if isinstance(one, TrainedPoint)]

    def price(self, row: TrainingRow) -> tuple[int, int]:
        """The price of a row's points."""
        return self.trained(row)[0].price

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; they do not depend on the number of runs."""
        points: list[dict[str, Any]] = []
        for index, point, outcome in self.numbered():
            values = {"point": index, "values": point.named}
            if (folder := self.folders[index]) is not None and isinstance(outcome, TrainedPoint):
                values |= {"state": "done", "folder": f"{POINTS}/{folder.name}"}
            found = outcome.to_json()
            found.pop("queries", None)
            points.append(values | found)
        return {
            **TRAININGS.versions,
            "data": self.data,
            "grid": {key.name: list(key.values) for key in self.grid},
            "common": dict(self.common),
            "set_aside": self.set_aside,
            "queries": dict(self.queries),
            "modalities": list(self.modalities),
            "resamples": RESAMPLES,
            "lead": self.lead,
            "points": points,
            "rows": [one.to_json() for one in self.rows],
            "raw": None if self.raw is None else self.raw.to_json(),
            "best": self.best,
        }


def compared_rows(
    points: Sequence[TrainingPoint],
    outcomes: Sequence[TrainedPoint | Failed],
    unseen: Mapping[int, Unseen],
    by_class: bool,
) -> tuple[list[TrainingRow], int | None, TrainingRow | None]:
    """Return the rows of finished points, the number of the best row, and the raw row.

    Points of one seed are measured on the same resamples of the same pairs, so differences are
    paired. If several rows lead equally, the cheapest is the best.
    """
    trained = {i: one for i, one in enumerate(outcomes) if isinstance(one, TrainedPoint)}
    drawn: dict[int, dict[int | None, Drawn]] = {}  # by seed, then by point; None is raw
    for seed, pairs in unseen.items():
        done: dict[int | None, Queries] = {
            index: one.queries for index, one in trained.items() if points[index].seed == seed
        }
        if done:
            if pairs.raw is not None:
                done[None] = pairs.raw
            drawn[seed] = _drawn(done, pairs, by_class)
    variants: dict[Any, list[int]] = {}
    for index in trained:
        variants.setdefault(points[index].variant, []).append(index)
    if not variants:
        return [], None, None
    several = len({one.seed for one in points}) > 1
    by_seed = [
        {points[index].seed: drawn[points[index].seed][index] for index in those}
        for those in variants.values()
    ]
    index, one = next(iter(trained.items()))
    shares = share_queries(one.queries, unseen[points[index].seed].truth.text_to_video)
    shares[LEAD] = min(shares[f"{'map' if by_class else 'r1'}_{way}"] for way in WAYS)
    rows = [
        TrainingRow(dict(variant), tuple(those), _metrics(found, several, shares))
        for (variant, those), found in zip(variants.items(), by_seed, strict=True)
    ]
    prices = [trained[row.points[0]].price for row in rows]
    best = min(range(len(rows)), key=lambda i: (-rows[i].metrics[LEAD].value, prices[i], i))

    def beside(row: TrainingRow, found: Mapping[int, Drawn]) -> TrainingRow:
        """The row with the best row's lead over it, in the seeds that both have."""
        own = by_seed[best]
        both = [own[seed][LEAD] - found[seed][LEAD] for seed in own if seed in found]
        return replace(row, behind=_change(both, several) if both else None)

    raws = {seed: one[None] for seed, one in drawn.items() if None in one}
    raw_row = beside(TrainingRow({}, (), _metrics(raws, several, shares)), raws) if raws else None
    others = [
        row if index == best else beside(row, found)
        for index, (row, found) in enumerate(zip(rows, by_seed, strict=True))
    ]
    return others, best, raw_row


def _drawn(
    asked: Mapping[int | None, Queries], pairs: Unseen, by_class: bool
) -> dict[int | None, Drawn]:
    """The metrics of each point, on the data as they are and on all resamples."""
    right, videos = pairs.truth.text_to_video, pairs.truth.videos
    blocks: dict[int | None, list[dict[str, FloatArray]]] = {name: [] for name in asked}
    name = "map" if by_class else "r1"
    for samples in itertools.chain(
        [Samples.once(pairs.texts, videos)], resamples(right, videos, 0)
    ):
        for row, queries in asked.items():
            found = metrics(queries, samples)
            found[LEAD] = (found[f"{name}_{WAYS[0]}"] + found[f"{name}_{WAYS[1]}"]) / len(WAYS)
            blocks[row].append(found)
    return {
        row: {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
        for row, parts in blocks.items()
    }


def _metrics(
    found: Mapping[int, Drawn], several: bool, shares: Mapping[str, int]
) -> dict[str, Change]:
    names = next(iter(found.values()))
    changes = {
        n: _change([one[n] for one in found.values()], several, shares.get(n)) for n in names
    }
    for name in (LEAD, *(key for key, metric in RANKINGS_BY_KEY.items() if metric.share)):
        if name in changes:  # Student's interval can leave the range of a share
            one = changes[name]
            ends = (float(np.clip(end, 0, 1)) for end in (one.low, one.high))
            changes[name] = Change(one.value, *ends)
    return changes


def _change(values: Sequence[FloatArray], several: bool, queries: int | None = None) -> Change:
    """The figure over seeds with its interval; `values` have, per seed, value and resamples.

    A share is a mean over so many `queries`.
    """
    if several:
        return students([float(one[0]) for one in values])
    (one,) = values
    ends = interval(one[1:], queries)
    return Change(float(one[0]), ends.low, ends.high)


def train_points(common: TrainGridOptions, say: Say) -> TrainingGrid:
    """Train a model for every point of a grid into a folder, and compare them.

    Raises CimError if a key or a value is wrong, or if no point can be trained, and PointsFailed
    at the end if some points failed.
    """
    data, folder, validation = common.data, Path(common.output), common.validation
    if RunPlace.of(folder).folder != folder:
        raise ArgumentError(
            "{}: is the name of one checkpoint; expected a folder with {grid}", folder
        )
    keys = read_training_grid(common.grid)
    file = common.start
    start = None if file is None else read_start(Path(file))
    points = training_points(keys, common, start)
    modalities = modalities_for(common, start)
    rows = embeddings_in(data, modalities)
    held = None if validation is None else embeddings_in(validation, modalities)
    whose = {"data": data_digest(rows), "validation": "none" if held is None else data_digest(held)}

    def made() -> Iterator[TrainingJob | CimError]:
        """The job of each point, made when its turn comes, or the error that prevents it."""
        for point in points:
            try:
                yield make_job(rows, held, point.wanted)
            except CimError as error:
                yield error

    jobs, failed = made(), list[CimError]()
    first = next(jobs)
    while isinstance(first, CimError):  # find a job before anything is written
        failed.append(first)
        if len(failed) == len(points):
            raise failed[0]
        first = next(jobs)
    unseen: dict[int, Unseen] = {}
    outcomes, folders, resumed = list[TrainedPoint | Failed](), list[Path | None](), 0
    with TRAININGS.opened(folder, whose) as kept:
        every = itertools.chain(failed, [first], jobs)
        del first  # so that its rows are freed after training, like those of other jobs
        for number, (point, job) in enumerate(zip(points, every, strict=True), 1):
            if isinstance(job, CimError):
                outcomes.append(Failed(str(job)))
                folders.append(None)
                continue
            if point.seed not in unseen:
                unseen[point.seed] = Unseen.of(job.unseen)
            digest = values_name(TRAININGS.versions, dict(job.settings))
            known = kept.known(digest)
            if known is not None and unseen[point.seed].measured_in(known.queries):
                outcome: TrainedPoint | Failed = known
                resumed += 1
            else:
                own = prefixed(say, f"point {number} of {len(points)}")
                outcome = _trained(job, kept, folder / POINTS / digest, own)
            if isinstance(outcome, TrainedPoint):  # only an unfinished run needs this file
                (folder / POINTS / digest / LAST).unlink(missing_ok=True)
            outcomes.append(outcome)
            folders.append(folder / POINTS / digest)
        by_class = all(one.truth.by_class for one in unseen.values())
        table, best, raw = compared_rows(points, outcomes, unseen, by_class)
        asked = next(iter(unseen.values()))
        options: dict[str, Any] = {**common.part(TrainingOptions)}
        options |= options.pop("options", None) or {}
        options |= {"validation": True} if validation is not None else {}
        found = TrainingGrid(
            data=rows.file,
            grid=keys,
            common={
                name: Path(value).name if name in ("poly", "start") else value
                for name, value in options.items()
                if value is not None
            },
            points=points,
            outcomes=outcomes,
            folders=folders,
            rows=table,
            best=best,
            raw=raw,
            by_class=by_class,
            set_aside=bool(common.test),
            queries={"texts": asked.texts, "videos": asked.truth.videos},
            modalities=rows.called,
            resumed=resumed,
        )
        return write_results(found, folder)


def _trained(
    job: TrainingJob, kept: PointFolder[TrainedPoint], place: Path, say: Say
) -> TrainedPoint | Failed:
    """Train, measure and keep a point; if it fails, return the error's sentence."""
    try:
        found = train_point(job, place, say)
    except CimError as error:
        say(str(error))
        return Failed(str(error))
    kept.keep(place.name, {"settings": dict(job.settings)}, found)
    return found
