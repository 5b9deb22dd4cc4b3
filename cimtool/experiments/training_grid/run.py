"""A grid of trainings: checked as a whole, then every point that no earlier run has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cimtool.base.errors import CheckFailed, CimError
from cimtool.base.files import replace_files, text_bytes
from cimtool.base.progress import Say, prefixed
from cimtool.experiments.options import TrainGridOptions
from cimtool.experiments.training_grid.folder import (
    GRID_OF_TRAININGS,
    PointFolder,
    grid_identity,
    job_digest,
)
from cimtool.experiments.training_grid.keys import (
    TrainingPoint,
    read_training_grid,
    training_points,
)
from cimtool.experiments.training_grid.page import PAGE, grid_page
from cimtool.experiments.training_grid.point import Unseen, train_point
from cimtool.experiments.training_grid.results import PointResult, TrainingGrid, compared_rows
from cimtool.loading.embeddings import Embeddings, embeddings_in
from cimtool.training.arguments import TrainingOptions
from cimtool.training.job import (
    data_digest,
    make_job,
    modalities_for,
    read_start,
)
from cimtool.training.trainer import LAST


class TrainingsFailed(CheckFailed):
    """Points of a grid of trainings failed; `found` holds the others."""

    def __init__(self, found: TrainingGrid, sentence: str):
        super().__init__(sentence)
        self.found = found


def train_points(common: TrainGridOptions, say: Say) -> TrainingGrid:
    """Train a model for every point of a grid into a folder, and compare them.

    Raises CimError where a key or a value is wrong, or no point can be trained, and TrainingsFailed
    at the end where some could not.
    """
    data, folder, validation = common.data, Path(common.output), common.validation
    keys = read_training_grid(common.grid)
    file = common.start
    start = None if file is None else read_start(Path(file))
    points = training_points(keys, common, start)
    modalities = modalities_for(common, start)
    rows = embeddings_in(data, modalities)
    held = None if validation is None else embeddings_in(validation, modalities)
    checked, unseen = _checked(rows, held, points, folder)
    whose = grid_identity(data_digest(rows), None if held is None else data_digest(held))
    results, resumed = [], 0
    with GRID_OF_TRAININGS.opened(folder, whose):
        for number, (point, place) in enumerate(zip(points, checked, strict=True), 1):
            if isinstance(place, CimError):
                results.append(PointResult(point, None, None, str(place)))
                continue
            found = place.read()
            if found is not None and unseen[point.seed].measured_in(found.queries):
                (place.path / LAST).unlink(missing_ok=True)
                results.append(PointResult(point, place, found, None))
                resumed += 1
                continue
            own = prefixed(say, f"point {number} of {len(points)}")
            results.append(_trained(rows, held, point, place, own))
        by_class = all(one.truth.by_class for one in unseen.values())
        table, best, raw = compared_rows(results, unseen, by_class)
        first = next(iter(unseen.values()))
        found_grid = TrainingGrid(
            data=rows.file,
            grid=keys,
            common=_plain(common, validation is not None),
            points=results,
            rows=table,
            best=best,
            raw=raw,
            by_class=by_class,
            set_aside=bool(common.test),
            queries={"texts": first.texts, "videos": first.truth.videos},
            modalities=rows.called,
            resumed=resumed,
        )
        files = found_grid.files() | {PAGE: text_bytes(grid_page(found_grid))}
        found_grid = replace(found_grid, written=replace_files(folder, files, "the results"))
    if found_grid.failed:
        raise TrainingsFailed(
            found_grid, f"{folder}: {found_grid.failed} of {len(points)} points failed"
        )
    return found_grid


def _checked(
    rows: Embeddings, held: Embeddings | None, points: Sequence[TrainingPoint], folder: Path
) -> tuple[list[PointFolder | CimError], dict[int, Unseen]]:
    """The folder of each point, or the error for one that cannot be trained; what a seed measures.

    Raises the error of the first where none can.
    """
    found: list[PointFolder | CimError] = []
    unseen: dict[int, Unseen] = {}
    for point in points:
        try:
            job = make_job(rows, held, point.wanted)
        except CimError as error:
            found.append(error)
            continue
        found.append(PointFolder(folder, job_digest(job)))
        if point.seed not in unseen:
            unseen[point.seed] = Unseen.of(job.unseen)
    if not unseen:
        raise next(one for one in found if isinstance(one, CimError))
    return found, unseen


def _trained(
    rows: Embeddings, held: Embeddings | None, point: TrainingPoint, place: PointFolder, say: Say
) -> PointResult:
    """Train and measure a point, and keep it; its sentence where it fails."""
    try:
        found, seconds = train_point(make_job(rows, held, point.wanted), place.path, say)
    except CimError as error:
        say(str(error))
        return PointResult(point, None, None, str(error))
    place.keep(found, seconds)
    return PointResult(point, place, found, None)


def _plain(common: TrainingOptions, validation: bool) -> dict[str, Any]:
    """The arguments that all points have, as plain values."""
    given: dict[str, Any] = {**common.part(TrainingOptions)}
    given |= given.pop("options", None) or {}
    given |= {"validation": True} if validation else {}
    return {
        name: Path(value).name if name in ("poly", "start") else value
        for name, value in given.items()
        if value is not None
    }
