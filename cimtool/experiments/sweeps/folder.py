"""The folder of a sweep: its identity, its references, and a small file a finished point."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool import __version__
from cimtool.base.arrays import Array
from cimtool.base.files import replace_files, replace_texts
from cimtool.base.folders import POINTS, KindOfWork, WorkIdentity, read_sealed, sealed_text
from cimtool.bundle.compilation import calibration_rows, fit_rows
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.experiments.sweeps.evaluator import DieRequest, Outcome
from cimtool.experiments.sweeps.grid import Point
from cimtool.experiments.sweeps.references import SweepReferences
from cimtool.hardware.configuration import Configuration
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.reference.truth import Truth

FORMAT_VERSION = 6
SWEEP = "sweep.json"
REFERENCES = "references.safetensors"
DIGEST_LETTERS = 20


def sweep_identity(
    model: Model, calibration: Embeddings, data: Embeddings, reference: str
) -> dict[str, str | int]:
    """All that the points of one folder have in common, by name: versions, digests of contents.

    `model` is under a head that does not depend on the grid, where its points may have several.
    """
    constants = ConstantTable()
    program = program_text(model.program, constants)
    score = json.dumps([model.a, model.b, model.head.to_json()])
    return {
        "format_version": FORMAT_VERSION,
        "cimtool_version": __version__,
        "model": _digest("".join([program, score, *constants.names]).encode()),
        "calibration": _digest(*calibration_rows(calibration, []), *fit_rows(calibration).values()),
        "data": _digest(data.text, data.video, data.truth.text_to_video, *_classes(data)),
        "reference": reference,
    }


def _classes(data: Embeddings) -> tuple[bytes | Array, ...]:
    """The rest of what decides which items are right."""
    parts: list[bytes | Array] = [b"alone" * data.alone]
    parts += [] if data.labels is None else [data.labels]
    parts += [] if data.compared is None else list(data.compared.arrays.values())
    judged = data.judged
    parts += [] if judged is None else [judged.text, judged.video, judged.grade]
    return tuple(parts)


def _digest(*parts: bytes | Array) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return digest.hexdigest()[:DIGEST_LETTERS]


def point_digest(
    whose: WorkIdentity, build: Configuration, score: Mapping[str, Any], dies: DieRequest | None
) -> str:
    """The name of a point's file: a digest of everything that decides its outcome.

    `score` are the plain values of a head with its constants, or of samples.
    """
    drawn = None if dies is None else asdict(dies)
    values = [dict(whose), build.target.to_json(), build.settings.to_json(), dict(score), drawn]
    return _digest(json.dumps(values, sort_keys=True).encode())


NAMES = {
    "format_version": "format",
    "cimtool_version": "version of cimtool",
    "model": "model",
    "calibration": "calibration data",
    "data": "evaluation data",
    "reference": "reference",
}


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one model's sweep on one set of data."""

    path: Path

    def references(self, name: str, truth: Truth) -> SweepReferences | None:
        """The references that an earlier run kept; None where there are none."""
        return SweepReferences.of_file(name, truth, self.path / REFERENCES)

    def keep_references(self, references: SweepReferences) -> None:
        """Write the references, all or nothing."""
        replace_files(self.path, {REFERENCES: references.to_bytes()}, "the references")

    def outcomes(self, digests: Iterable[str]) -> dict[str, Outcome]:
        """The outcomes of an earlier run, but for points that did not finish or failed."""
        found = {}
        for digest in digests:
            values = read_sealed(self.path / POINTS / f"{digest}.json")
            with suppress(KeyError, TypeError, AttributeError):
                found[digest] = Outcome.from_json(values)
        return {digest: outcome for digest, outcome in found.items() if outcome.error is None}

    def keep(self, digest: str, point: Point, outcome: Outcome) -> None:
        """Write a point's file, all or nothing."""
        assert point.build is not None
        made_of = {
            "target": point.build.target.name,
            "settings": point.build.settings.to_json(),
            "score": asdict(point.score),
        }
        text = sealed_text(made_of | outcome.to_json())
        replace_texts(self.path / POINTS, {f"{digest}.json": text}, "the point")


@contextmanager
def opened(path: Path, whose: WorkIdentity) -> Iterator[SweepFolder]:
    """Open or make the folder, for this process alone until the end.

    Raises CimError where it holds another sweep or something else, and where another process is at
    work in it.
    """
    with KindOfWork("sweep", SWEEP, NAMES).opened(path, whose):
        yield SweepFolder(path)
