"""The results of a grid of trainings: rows with intervals, the best, and those that are as good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cimtool import __version__
from cimtool.base.arrays import FloatArray
from cimtool.base.grids import GridKey, Value
from cimtool.experiments.training_grid.folder import FORMAT_VERSION, PointFolder
from cimtool.experiments.training_grid.keys import TrainingPoint
from cimtool.experiments.training_grid.point import TrainedPoint, Unseen
from cimtool.reference.bootstrap import RESAMPLES, Change, Samples, interval, resamples
from cimtool.reference.measures import WAYS
from cimtool.reference.modality_names import Modalities
from cimtool.reference.queries import RANKINGS_BY_KEY, Queries, metrics
from cimtool.reference.students import students
from cimtool.report.result import Result
from cimtool.training.history import MEASURES

JSON_FILE = "results.json"
LEAD = "lead"
"""The mean of both ways of the metric that leads."""

Drawn = Mapping[str, FloatArray]
"""Metrics by name of a point: the value, then that of each resample, [1 + B]."""


@dataclass(frozen=True, eq=False)
class PointResult:
    """A point of a grid: what it was, where it is, and what it came to.

    `trained` is None where it failed, with the sentence in `error`.
    """

    point: TrainingPoint
    folder: PointFolder | None
    trained: TrainedPoint | None
    error: str | None


@dataclass(frozen=True, eq=False)
class TrainingRow:
    """A row of the table: the points that differ in their seed alone, or the raw embeddings.

    `metrics` are means over the seeds with Student's interval or, of one seed, with that of its
    resampled queries. `behind` is what the best row has more of the metric that leads, paired by
    seed or by query; None for the best.
    """

    values: Mapping[str, Value]
    points: tuple[int, ...]
    metrics: Mapping[str, Change]
    behind: Change | None = None

    @property
    def as_good(self) -> bool:
        """True where it is not known that the best row is better."""
        return self.behind is not None and not self.behind.low > 0


@dataclass(frozen=True, eq=False, repr=False)
class TrainingGrid(Result, shown_by="cimtool.experiments.training_grid.page"):
    """A model trained for every point of a grid, in the order of the grid.

    `rows` are those of points that did not all fail, `best` the number of one of them, `raw` the
    row of the embeddings as they are. `by_class` says that mAP leads, and not R@1. The figures are
    of pairs that were `set_aside`, or else of those that chose the best epochs. `modalities`
    are the names of both sides.
    """

    data: str
    grid: Sequence[GridKey]
    common: Mapping[str, Any]
    points: Sequence[PointResult]
    rows: Sequence[TrainingRow]
    best: int | None
    raw: TrainingRow | None
    by_class: bool
    set_aside: bool
    queries: Mapping[str, int]
    modalities: Modalities
    resumed: int
    written: Sequence[Path] = ()

    @property
    def failed(self) -> int:
        """The number of points that gave nothing."""
        return sum(one.error is not None for one in self.points)

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len({one.point.seed for one in self.points})

    @property
    def lead(self) -> str:
        """The title of the metric that leads."""
        return MEASURES["map" if self.by_class else "r1"]

    def trained(self, row: TrainingRow) -> list[TrainedPoint]:
        """The points of a row that did not fail."""
        every = (self.points[index].trained for index in row.points)
        return [one for one in every if one is not None]

    def price(self, row: TrainingRow) -> tuple[int, int]:
        """The weights that are deployed, and the pairs that training went through."""
        first = self.trained(row)[0]
        return first.weights, first.epochs * first.pairs

    def to_json(self) -> dict[str, Any]:
        """Plain values by name: the same in however many runs."""
        return {
            "format_version": FORMAT_VERSION,
            "cimtool_version": __version__,
            "data": self.data,
            "grid": {key.name: list(key.values) for key in self.grid},
            "common": dict(self.common),
            "set_aside": self.set_aside,
            "queries": dict(self.queries),
            "modalities": list(self.modalities),
            "resamples": RESAMPLES,
            "lead": self.lead,
            "points": [_point_json(index, one) for index, one in enumerate(self.points)],
            "rows": [_row_json(one) for one in self.rows],
            "raw": None if self.raw is None else _row_json(self.raw),
            "best": self.best,
        }

    def files(self) -> dict[str, bytes]:
        """The results as files by name."""
        return {JSON_FILE: (json.dumps(self.to_json(), indent=1) + "\n").encode()}


def _point_json(index: int, one: PointResult) -> dict[str, Any]:
    values: dict[str, Any] = {"point": index, "values": dict(one.point.values)}
    if one.trained is None or one.folder is None:
        return values | {"state": "failed", "error": one.error}
    trained = {k: v for k, v in one.trained.to_json().items() if k != "queries"}
    return values | {"state": "done", "folder": one.folder.name, **trained}


def _row_json(row: TrainingRow) -> dict[str, Any]:
    return {
        "values": dict(row.values),
        "points": list(row.points),
        "figures": {name: _plain(one) for name, one in row.metrics.items()},
        "behind": None if row.behind is None else _plain(row.behind),
        "as_good": row.as_good,
    }


def _plain(change: Change) -> dict[str, float | None]:
    return {name: one if np.isfinite(one) else None for name, one in asdict(change).items()}


def compared_rows(
    results: Sequence[PointResult], unseen: Mapping[int, Unseen], by_class: bool
) -> tuple[list[TrainingRow], int | None, TrainingRow | None]:
    """Return the rows of points that are done, the number of the best, and that of raw rows.

    Points of one seed are measured on the same resamples of the same pairs, so that differences are
    paired. Of rows that lead equally the one that is cheaper is the best.
    """
    drawn: dict[int, dict[int | None, Drawn]] = {}  # by seed, then by point; None is raw
    for seed, pairs in unseen.items():
        done: dict[int | None, Queries] = {
            index: one.trained.queries
            for index, one in enumerate(results)
            if one.trained is not None and one.point.seed == seed
        }
        if done:
            if pairs.raw is not None:
                done[None] = pairs.raw
            drawn[seed] = _drawn(done, pairs, by_class)
    variants: dict[Any, list[int]] = {}
    for index, one in enumerate(results):
        if one.trained is not None:
            variants.setdefault(one.point.variant, []).append(index)
    several = len({one.point.seed for one in results}) > 1

    def of(points: Sequence[int]) -> dict[int, Drawn]:
        return {results[i].point.seed: drawn[results[i].point.seed][i] for i in points}

    by_seed = [of(points) for points in variants.values()]
    if not by_seed:
        return [], None, None
    rows = [
        TrainingRow(dict(variant), tuple(points), _metrics(found, several))
        for (variant, points), found in zip(variants.items(), by_seed, strict=True)
    ]
    prices = []
    for row in rows:
        first = results[row.points[0]].trained
        assert first is not None
        prices.append((first.weights, first.epochs * first.pairs))
    best = min(range(len(rows)), key=lambda i: (-rows[i].metrics[LEAD].value, prices[i], i))

    def beside(row: TrainingRow, found: Mapping[int, Drawn]) -> TrainingRow:
        behind = _behind(by_seed[best], found, several)
        return TrainingRow(row.values, row.points, row.metrics, behind)

    raws = {seed: one[None] for seed, one in drawn.items() if None in one}
    raw_row = beside(TrainingRow({}, (), _metrics(raws, several)), raws) if raws else None
    others = [
        row if index == best else beside(row, found)
        for index, (row, found) in enumerate(zip(rows, by_seed, strict=True))
    ]
    return others, best, raw_row


def _drawn(
    asked: Mapping[int | None, Queries], pairs: Unseen, by_class: bool
) -> dict[int | None, Drawn]:
    """The metrics of each of some rows, in the data as they are and in all resamples."""
    right, videos = pairs.truth.text_to_video, pairs.truth.videos
    blocks: dict[int | None, list[dict[str, FloatArray]]] = {name: [] for name in asked}
    name = "map" if by_class else "r1"
    for samples in chain([Samples.once(pairs.texts, videos)], resamples(right, videos, 0)):
        for row, queries in asked.items():
            found = metrics(queries, samples)
            found[LEAD] = (found[f"{name}_{WAYS[0]}"] + found[f"{name}_{WAYS[1]}"]) / len(WAYS)
            blocks[row].append(found)
    return {
        row: {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
        for row, parts in blocks.items()
    }


def _metrics(found: Mapping[int, Drawn], several: bool) -> dict[str, Change]:
    names = next(iter(found.values()))
    changes = {n: _change([one[n] for one in found.values()], several) for n in names}
    # Student's interval knows no bounds of a share.
    shares = {LEAD, *(key for key, metric in RANKINGS_BY_KEY.items() if metric.share)}
    return {n: _bounded(one) if n in shares else one for n, one in changes.items()}


def _bounded(share: Change) -> Change:
    return Change(share.value, *(float(np.clip(x, 0, 1)) for x in (share.low, share.high)))


def _behind(best: Mapping[int, Drawn], found: Mapping[int, Drawn], several: bool) -> Change | None:
    """The lead of the best row over another in the seeds that both have; None without any."""
    both = [best[seed][LEAD] - found[seed][LEAD] for seed in best if seed in found]
    return _change(both, several) if both else None


def _change(values: Sequence[FloatArray], several: bool) -> Change:
    """A figure of each seed, as it is and in resamples, as one with its interval."""
    if several:
        return students([float(one[0]) for one in values])
    (one,) = values
    ends = interval(one[1:])
    return Change(float(one[0]), ends.low, ends.high)
