"""The folder of a grid of trainings: its identity, and a run's folder for each point."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cimtool import __version__
from cimtool.base.files import replace_texts
from cimtool.base.folders import (
    POINTS,
    KindOfWork,
    WorkIdentity,
    read_object,
    read_sealed,
    sealed_text,
)
from cimtool.experiments.training_grid.point import TrainedPoint
from cimtool.training.job import TrainingJob
from cimtool.training.trainer import LAST

FORMAT_VERSION = 2
GRID_OF_TRAININGS = KindOfWork(
    "grid of trainings",
    "grid.json",
    {
        "format_version": "format",
        "cimtool_version": "version of cimtool",
        "data": "data",
        "validation": "validation data",
    },
)
POINT = "point.json"
SECONDS = "seconds.json"
"""The seconds that a point's training took: the one file that differs between equal runs."""

DIGEST_LETTERS = 20


def grid_identity(data: str, validation: str | None) -> WorkIdentity:
    """All that the points of one folder have in common, by name; data by their SHA-256."""
    return {
        "format_version": FORMAT_VERSION,
        "cimtool_version": __version__,
        "data": data,
        "validation": validation or "none",
    }


def job_digest(job: TrainingJob) -> str:
    """The name of a point's folder: a digest of the settings, which decide all of its bytes."""
    text = json.dumps([FORMAT_VERSION, __version__, dict(job.settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


@dataclass(frozen=True)
class PointFolder:
    """The folder of a point, which is that of a run, in that of its grid."""

    grid: Path
    digest: str

    @property
    def path(self) -> Path:
        """The folder."""
        return self.grid / POINTS / self.digest

    @property
    def name(self) -> str:
        """Its name within the grid's folder."""
        return f"{POINTS}/{self.digest}"

    def read(self) -> TrainedPoint | None:
        """The point as an earlier run kept it; None where the point did not finish."""
        values = read_sealed(self.path / POINT)
        found = None
        with suppress(KeyError, TypeError, ValueError):
            found = TrainedPoint.from_json(values)
        return found

    @property
    def seconds(self) -> float | None:
        """Seconds that the training took; None where that is not known."""
        found = (read_object(self.path / SECONDS) or {}).get("seconds")
        return found if isinstance(found, float) else None

    def keep(self, point: TrainedPoint, seconds: float | None) -> None:
        """Write what was measured, and drop what only an unfinished run goes on from."""
        texts = {POINT: sealed_text(point.to_json())}
        if seconds is not None:
            texts[SECONDS] = json.dumps({"seconds": round(seconds, 1)}) + "\n"
        replace_texts(self.path, texts, "the point")
        (self.path / LAST).unlink(missing_ok=True)
