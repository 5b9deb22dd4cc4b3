"""The library: compile a model, load a bundle, encode, score and verify, with or without files.

A function that joins several rooms stands here. One of a single room is that room's own, and is
imported when it is called for, as are the rooms that few callers need.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cimtool.base.progress import Say, silent
from cimtool.bundle.matcher import Matcher as Matcher
from cimtool.bundle.matcher import load as load
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.simulate import simulate as simulate
from cimtool.deployment.compilation import Compilation as Compilation
from cimtool.deployment.compilation import compile as compile
from cimtool.deployment.compilation import prepare as prepare
from cimtool.hardware.configuration import Configuration
from cimtool.loading.data import read_data as read_data
from cimtool.loading.source import ModelOptions, ModelSource, split_model_options
from cimtool.reference.montecarlo import DEFAULT_SAMPLES

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions
    from cimtool.costs.estimate import Estimate
    from cimtool.deployment.programming import program as program
    from cimtool.evaluation.run import Evaluation
    from cimtool.hardware.target import Target
    from cimtool.loading.data import EmbeddingsLike, File
    from cimtool.loading.source import Projectors
    from cimtool.sweeps.run import sweep as sweep
    from cimtool.training.fit_page import fit as fit
    from cimtool.training.history import CompiledEpoch
    from cimtool.training.projectors import ProjectorRun
    from cimtool.training.teacher_file import teacher as teacher
    from cimtool.training.trainer import Run
    from cimtool.tuning.run import tune as tune
    from cimtool.verification.compare import Comparison
    from cimtool.verification.references import ReferenceKind
    from cimtool.verification.report import Report

ROOMS = {
    "program": "cimtool.deployment.programming",
    "sweep": "cimtool.sweeps.run",
    "tune": "cimtool.tuning.run",
    "teacher": "cimtool.training.teacher_file",
    "fit": "cimtool.training.fit_page",
}
"""Modules of the functions that are imported late."""


def __getattr__(name: str) -> Any:
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(ROOMS[name]), name)


def verify(
    bundle: File,
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: File | None = None,
    noise: NoiseOptions | None = None,
    allow_calibration_rows: bool = False,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    Drift is against the exact score, or with `reference="mc"` against Monte Carlo of `samples` a
    side (default: 10). With `noise` the report has rows of the median die and of the worst in
    twenty, at the earliest time and at the one asked for. Rows that the bundle was calibrated on
    are refused unless `allow_calibration_rows`. Writes `report.html`, `report.json` and
    `report.md` into `report` (default: the bundle's folder). Raises CheckFailed where a bit differs
    or a metric is over its limit in `max_drift`.
    """
    from cimtool.verification.references import References
    from cimtool.verification.run import verify_bundle

    references = References(reference, samples, seed)
    opened = open_bundle(bundle)
    return verify_bundle(
        opened,
        read_data(data, opened.model),
        references,
        max_drift,
        Path(report or bundle),
        say,
        noise,
        allow_calibration_rows,
    )


def compare(
    bundles: Sequence[File],
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    allow_calibration_rows: bool = False,
    say: Say = silent,
) -> Comparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    Raises CheckFailed where a bit differs.
    """
    from cimtool.verification.compare import compare_bundles
    from cimtool.verification.references import References

    references = References(reference, samples, seed)
    opened = [open_bundle(bundle) for bundle in bundles]
    rows = [read_data(data, one.model) for one in opened]
    return compare_bundles(opened, rows, references, say, allow_calibration_rows)


def cost(
    bundle: File,
    *,
    gallery: int | None = None,
    samples: int = DEFAULT_SAMPLES,
    operating_point: str | None = None,
) -> Estimate:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    With `gallery` also of a query scored against so many items, beside Monte Carlo with `samples` a
    side (default: 10). Figures are the target's at `operating_point` (default: its
    first); CimError for one that it does not have.
    """
    return open_bundle(bundle).estimate(samples, gallery, operating_point)


def train(
    data: EmbeddingsLike,
    output: File,
    *,
    validation: EmbeddingsLike | None = None,
    model: str | None = None,
    loss: str | None = None,
    poly: File | None = None,
    start: File | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    held_out: float | None = None,
    seed: int = 0,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    resume: bool = False,
    say: Say = silent,
) -> ProjectorRun:
    """Train projectors into the folder `output`: `model.pth`, `last.pth`, the history and its page.

    Validates after each epoch on `validation`, or on a share `held_out` (0.1) of the videos, and
    keeps the best. `model` (trunk, or that of `start`) and `loss` (info-nce-poly with `poly` or one
    in `start`, else info-nce) are names; `options` their fields by `model.<field>` and
    `loss.<field>`. `device` is `cpu`, `cuda` or `cuda:N`. What else is None is the loss's own.
    Raises Diverged (a CheckFailed) where the loss stops being finite.
    """
    from cimtool.training.job import TrainingOptions, make_job
    from cimtool.training.projectors import train_projectors

    chosen = TrainingOptions(
        model=model,
        loss=loss,
        poly=Path(poly) if poly else None,
        start=Path(start) if start else None,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        held_out=held_out,
        seed=seed,
        device=device or "cpu",
        options=options,
    )
    return train_projectors(make_job(data, validation, chosen), Path(output), resume, say)


def fine_tune(
    projectors: File,
    poly: File | None = None,
    *,
    data: EmbeddingsLike,
    calibration: EmbeddingsLike,
    target: str | Target,
    output: File,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    noise: NoiseOptions | None = None,
    settings: File | None = None,
    say: Say = silent,
    **options: Any,
) -> Run[CompiledEpoch]:
    """Fine-tune a checkpoint for a target into the folder `output`: `model.pth`, history and page.

    It learns to give its own float logits again once it is compiled, on rows of `data`; all else,
    `options` too, is as in `compile`. With `noise` dies are in the loop. Kept is what errs least on
    held-out rows. Raises Diverged (a CheckFailed), with that kept, where the loss stops being
    finite.
    """
    from cimtool.training.hardware.fine_tune import OPTIMISATION
    from cimtool.training.hardware.fine_tune import fine_tune as fine_tuned

    model, flags = split_model_options(options)
    return fine_tuned(
        ModelSource(projectors, poly, **model),
        data,
        calibration,
        Configuration.of(target, settings, flags),
        Path(output),
        settings=flags,
        optimisation=OPTIMISATION.given(epochs=epochs, batch=batch, learning_rate=learning_rate),
        seed=seed,
        noise=noise,
        say=say,
    )


def evaluate(
    data: EmbeddingsLike,
    *what: Projectors,
    poly: File | None = None,
    leave_one_out: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    allow_calibration_rows: bool = False,
    say: Say = silent,
    **model: Unpack[ModelOptions],
) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder; `poly` and the options of `model` (`a`, `b`, `layer_map`,
    `head`) are of projectors, `head` also of the embeddings (cosine or euclidean). With
    `leave_one_out`, or where `data` are items of one modality (`rows`), right is what has an item's
    label, the item itself left out. Differences are to the first of several.
    """
    from cimtool.evaluation.run import check_sampling, evaluate_subjects
    from cimtool.evaluation.subjects import subjects_of

    check_sampling(resamples, seed)
    subjects = subjects_of(data, what, poly, model, allow_calibration_rows, say)
    return evaluate_subjects(subjects, leave_one_out, resamples, seed, say)
