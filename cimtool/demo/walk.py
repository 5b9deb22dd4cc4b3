"""The demo: the public commands one after the other, from what is installed to a report."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cimtool import api
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import check_folder, check_output, check_room, require_outside_bundles
from cimtool.base.folders import LOCK, alone_in
from cimtool.base.partial import partial_folder
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import check_place
from cimtool.bundle.compilation import bundle_name
from cimtool.demo.data import (
    PACKAGES,
    DemoFiles,
    DemoSettings,
    collect_pairs,
    installed_sources,
    write_embeddings,
    write_pretrained,
)
from cimtool.demo.encoder import NAME as ENCODER
from cimtool.demo.encoder import Encoder, find_encoder
from cimtool.demo.sources import DocumentedFunction
from cimtool.demo.uncertainty import QueryFigures, query_figures
from cimtool.report.result import Result
from cimtool.training.arguments import LabelKind
from cimtool.training.fit import Fit
from cimtool.training.fit_page import advice
from cimtool.training.items import Items, model_items
from cimtool.training.options import MOST_EPOCHS, check_count
from cimtool.training.teacher_file import (
    Teacher,
    make_teacher,
    sigmoid_of,
    write_teacher,
)

NAME = "demo"
SAMPLED, FIRST, LAST = "sampled.npz", "first.npz", "last.npz"
"""Labelled pairs: of the teacher by Monte Carlo and exactly, and of the deployed model exactly."""

FIRST_POLY = "first-poly.json"
"""The polynomial that is trained on."""

TEACHER_LOSS, POLY_LOSS = "sampled-nce", "info-nce-poly"
"""The loss of the teacher, which samples, and InfoNCE of the polynomial in place of samples."""

UNFINISHED = "unfinished-"
"""Beginning of the name of a folder of artefacts until all of them are made."""

FORMAT = 10  # raised when the same settings come to mean other artefacts
MANIFEST = "manifest.json"
DISTRIBUTIONS = ("numpy", "scipy", "scikit-learn", "torch")
"""Sources of the corpus, and the trainer."""


@dataclass(frozen=True)
class DemoResult:
    """The demo's artefacts and what they were made by, the bundle's folder, scores and report.

    `stages` puts the retrieval of every stage side by side, from the raw embeddings to the bundle.
    `queries` says what a query's variance means if several items may be right for it.
    """

    settings: DemoSettings
    files: DemoFiles
    bundle: Path
    scores: Path
    report: Result
    stages: Result
    queries: QueryFigures | None = None


RowKind = Literal["encoder", "tf-idf"]
"""Rows of a pretrained encoder, or rows that the demo makes itself."""


def run_demo(
    target: str,
    epochs: int,
    cache: Path,
    out: Path,
    announce: Say,
    say: Say = silent,
    rows: RowKind | None = None,
) -> DemoResult:
    """Train a model unless `cache` has it; then compile, simulate, verify and evaluate it.

    `announce` is told of each part of the walk in one line, `say` what happens within. Without
    `rows` they are the encoder's if it is installed. Raises
    CimError for an unknown target, epochs below 1 or beyond MOST_EPOCHS, or a place that cannot be
    written, CheckFailed if a bit differs.
    """
    name = bundle_name(NAME, target)
    bundle, scores = out / name, out / f"{name}.scores.npz"
    check_count("epochs", epochs, 1, MOST_EPOCHS)
    check_place(bundle)
    check_output(scores, ".npz")
    with alone_in(out, NAME, f".{name}{LOCK}"):
        settings = settings_for(epochs, rows, announce)
        files = prepare_demo(cache, settings, installed_sources(), announce)
        announce(f"compiling for {target}")
        api.compile(
            files.projectors,
            files.poly,
            calibration=files.calibration,
            target=target,
            output=bundle,
            say=say,
        )
        announce("simulating all pairs of the evaluation set")
        found = api.simulate(bundle, files.eval, output=scores, say=say)
        announce("verifying every stage and every bit on the same pairs")
        report = api.verify(bundle, files.eval, qrels=files.judged(files.eval), say=say)
        counts = ", ".join(map(str, settings.samples))
        announce(
            f"evaluating every stage on {settings.few_rows} of them, Monte Carlo at K = {counts}"
        )
        stages = api.evaluate(
            files.few,
            api.ModelSource(files.teacher, files.poly.with_name(FIRST_POLY)),
            api.ModelSource(files.projectors, files.poly),
            bundle,
            qrels=files.judged(files.few),
            samples=settings.samples,
            say=say,
        )
        queries = None
        if settings.pretrained:
            announce("measuring what the variance of a query means")
            source = api.ModelSource(files.projectors, files.poly)
            queries = query_figures(source, files.eval, found["scores"])
        return DemoResult(settings, files, bundle, scores, report, stages, queries)


def settings_for(epochs: int, rows: RowKind | None, announce: Say) -> DemoSettings:
    """The settings for these rows, which are announced; CimError if the encoder is not there.

    None is the encoder if it is installed.
    """
    there = rows != "tf-idf" and find_encoder() is not None
    if rows == "tf-idf" or (rows is None and not there):
        why = "" if rows else f": {ENCODER} is not installed (demo-requirements.txt)"
        announce(f"rows of TF-IDF and SVD, which nobody trained{why}")
        return DemoSettings(epochs)
    if not there:
        raise ArgumentError(
            "{rows} is encoder, and {} is not installed; expected the wheels of "
            "demo-requirements.txt, or {rows} tf-idf",
            ENCODER,
        )
    announce(f"rows of {ENCODER}")
    return DemoSettings.of_encoder(epochs)


def prepare_demo(
    cache: Path, settings: DemoSettings, sources: Sequence[Path], announce: Say
) -> DemoFiles:
    """Return the artefacts of these settings and sources, made below `cache` unless they are there.

    Takes minutes at first and nothing afterwards: each combination of settings and installed
    versions has a folder of its own, which appears only once it is complete. Raises CimError if
    `cache` cannot be written or is in a bundle, or a folder in it has lost files.
    """
    text = json.dumps(_inputs(settings, sources), indent=2) + "\n"
    finished = cache / hashlib.sha256(text.encode()).hexdigest()[:12]
    if finished.exists():
        return _cached(finished, announce)
    require_outside_bundles(finished)
    check_folder(cache)
    check_room(finished, settings.least_bytes)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with partial_folder(cache, UNFINISHED) as beside:
            work = beside / finished.name
            work.mkdir()
            _make(DemoFiles.under(work), settings, sources, announce)
            (work / MANIFEST).write_text(text, encoding="utf-8")
            work.rename(finished)
    except BrokenPipeError:  # of what `announce` writes to
        raise
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
    made = ENCODER if settings.pretrained else "TF-IDF and SVD"
    announce(f"{len(pairs)} pairs: {made} to {settings.width} dimensions")
    count = _write_rows(pairs, files, settings)
    train: dict[str, Any] = {
        "epochs": settings.epochs,
        "batch": settings.batch,
        "qrels": files.judged(files.train),
        "say": announce,
    }
    announce(f"training a teacher by sampling on {count} pairs, of which a tenth validates")
    api.train(
        files.train,
        files.teacher.parent,
        loss=TEACHER_LOSS,
        options=settings.options,
        learning_rate=settings.rate,
        **train,
    )
    folder = files.poly.parent
    first = folder / FIRST_POLY
    items = model_items(api.ModelSource(files.teacher), files.train, silent)
    label = partial(_labelled, matched=settings.matched, announce=announce)
    label(items, "exact", settings.first_pairs, folder / FIRST)
    found = _fitted(files.teacher, files, FIRST, first, settings, announce)
    sampled = label(items, "mc", settings.sampled_pairs, folder / SAMPLED)
    del items
    announce(_distances(found, api.fit(sampled)))
    announce("training on the polynomial, from the teacher")
    api.train(
        files.train,
        files.projectors.parent,
        start=files.teacher,
        poly=first,
        loss=POLY_LOSS,
        options=settings.poly_options,
        learning_rate=settings.poly_rate,
        **train,
    )
    items = model_items(api.ModelSource(files.projectors), files.train, silent)
    label(items, "exact", settings.last_pairs, folder / LAST)
    del items
    _fitted(files.projectors, files, LAST, files.poly, settings, announce)


def _write_rows(
    pairs: Sequence[DocumentedFunction], files: DemoFiles, settings: DemoSettings
) -> int:
    """Write the rows of the settings, and count those that train."""
    if not settings.pretrained:
        return write_embeddings(pairs, files, settings)
    installed = find_encoder()
    if installed is None:
        raise CimError(f"{ENCODER} is not installed; expected it for these settings")
    return write_pretrained(pairs, files, settings, Encoder(installed).rows)


def _labelled(
    items: Items, kind: LabelKind, pairs: int, file: Path, *, matched: float, announce: Say
) -> Teacher:
    """Label pairs as `cimtool teacher` does, of items that are encoded once for several labels."""
    sigmoid, _ = sigmoid_of(items.file, items.a, items.b, {})
    how = "exactly" if kind == "exact" else f"by Monte Carlo at K = {sigmoid.K}"
    announce(f"labelling {pairs:,} pairs {how}")
    made = make_teacher(items, pairs, matched, kind, sigmoid)
    write_teacher(made, file)
    return made


def _fitted(
    projectors: Path,
    files: DemoFiles,
    labels: str,
    poly: Path,
    settings: DemoSettings,
    announce: Say,
) -> Fit:
    """Fit polynomials to labelled pairs, and write the cheapest that is enough."""
    announce("fitting polynomials")
    found = api.fit(
        poly.with_name(labels),
        projectors=projectors,
        data=files.few,
        qrels=files.judged(files.few),
        output=poly,
    )
    announce(advice(found.comparison, found.form, found.asked))
    return found


def _distances(found: Fit, by_samples: Fit) -> str:
    """The errors of polynomials by exact and by sampled labels, on exact held-out labels."""
    held = found.held
    own, other = (
        float(np.sqrt(np.square(poly.evaluate(held.ed, held.vd) - held.logit).mean()))
        for poly in (found.polynomial, by_samples.polynomial)
    )
    return (
        f"logit RMSE on {len(held):,} held-out pairs: {own:.2g} of {found.form.name} by exact "
        f"labels, {other:.2g} of degree {by_samples.polynomial.degree} by sampled ones"
    )
