"""The demo: the public commands one after the other, from what is installed to a report."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import check_place
from cimtool.hardware.target import load_target
from cimtool.training.demo_data import (
    PACKAGES,
    DemoFiles,
    collect_pairs,
    installed_sources,
    write_embeddings,
)
from cimtool.verification.report import Report

NAME = "demo"
CACHE = Path("demo-cache")
OUT = Path("exports")
TEACHER = "teacher.npz"

FORMAT = 4  # raised when the same settings come to mean other artefacts
MANIFEST = "manifest.json"
DISTRIBUTIONS = ("numpy", "scipy", "scikit-learn", "torch")
"""Sources of the corpus, and the trainer."""


@dataclass(frozen=True)
class DemoSettings:
    """All that the artefacts depend on, beside what is installed; `options` are `train`'s."""

    epochs: int
    eval_rows: int = 1500
    calibration_rows: int = 512
    width: int = 1024
    teacher_pairs: int = 300_000
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoResult:
    """The demo's artefacts and what they were made by, the bundle's folder, scores and report."""

    settings: DemoSettings
    files: DemoFiles
    bundle: Path
    scores: Path
    report: Report


def run_demo(
    target: str, epochs: int, cache: Path, out: Path, announce: Say, say: Say = silent
) -> DemoResult:
    """Train a model unless `cache` has it; then compile, simulate and verify it under `out`.

    `announce` is told of each part of the walk in one line, `say` what happens within. Raises
    CimError for an unknown target, epochs below 1 or a place that cannot be written, CheckFailed
    where a bit differs.
    """
    hardware = load_target(target)
    name = f"{NAME}@{hardware.name}"
    bundle, scores = out / name, out / f"{name}.scores.npz"
    check_place(bundle)
    settings = DemoSettings(epochs)
    files = prepare_demo(cache, settings, installed_sources(), announce)
    announce(f"compiling for {hardware.name}")
    api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target=hardware,
        output=bundle,
        say=say,
    )
    announce("simulating all pairs of the evaluation set")
    api.simulate(bundle, files.eval, output=scores, say=say)
    announce("verifying every stage and every bit on the same pairs")
    report = api.verify(bundle, files.eval, say=say)
    return DemoResult(settings, files, bundle, scores, report)


def prepare_demo(
    cache: Path, settings: DemoSettings, sources: Sequence[Path], announce: Say
) -> DemoFiles:
    """Return the artefacts of these settings and sources, made below `cache` unless they are there.

    Takes minutes at first and nothing afterwards: each combination of settings and installed
    versions has a folder of its own, which appears only once it is complete. Raises CimError if
    epochs are below 1, `cache` cannot be written or a folder in it has lost files.
    """
    if settings.epochs < 1:
        raise CimError(f"epochs is {settings.epochs}; expected 1 or more")
    text = json.dumps(_inputs(settings, sources), indent=2) + "\n"
    finished = cache / hashlib.sha256(text.encode()).hexdigest()[:12]
    if finished.exists():
        return _cached(finished, announce)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as beside:
            work = Path(beside) / finished.name
            work.mkdir()
            _make(DemoFiles.under(work), settings, sources, announce)
            (work / MANIFEST).write_text(text, encoding="utf-8")
            work.rename(finished)
    except OSError as error:
        if finished.exists():  # another run made the same ones meanwhile
            return _cached(finished, announce)
        raise CimError(f"demo data cannot be written to {cache}: {error.strerror}") from error
    return DemoFiles.under(finished)


def _cached(finished: Path, announce: Say) -> DemoFiles:
    files = DemoFiles.under(finished)
    if missing := files.missing():
        raise CimError(f"{finished} lacks {', '.join(missing)}; delete it to have it made again")
    announce(f"using the trained model in {finished}")
    return files


def _inputs(settings: DemoSettings, sources: Sequence[Path]) -> dict[str, object]:
    """Plain values that decide the artefacts, whose digest names their folder."""
    packages = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {
        "format": FORMAT,
        "settings": asdict(settings),
        "python": platform.python_version(),
        "packages": packages,
        "sources": [str(path) for path in sources],
    }


def _make(files: DemoFiles, settings: DemoSettings, sources: Sequence[Path], announce: Say) -> None:
    announce(f"reading functions and their docstrings from {', '.join(('Python', *PACKAGES))}")
    pairs = collect_pairs(sources)
    announce(f"{len(pairs)} pairs: TF-IDF and SVD to {settings.width} dimensions")
    count = write_embeddings(
        pairs, files, settings.width, settings.eval_rows, settings.calibration_rows
    )
    announce(f"training two projectors on {count} pairs, of which a tenth validates")
    api.train(
        files.train,
        files.projectors.parent,
        epochs=settings.epochs,
        options=settings.options,
        say=announce,
    )
    announce(f"fitting the polynomial to {settings.teacher_pairs:,} exact labels")
    teacher = files.poly.with_name(TEACHER)
    api.teacher(
        files.projectors,
        files.train,
        labels="exact",
        matched=0.5,
        pairs=settings.teacher_pairs,
        output=teacher,
    )
    api.fit(teacher, output=files.poly)
