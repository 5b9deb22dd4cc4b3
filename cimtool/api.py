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
from cimtool.loading.embeddings import read_data as read_data
from cimtool.loading.source import ModelOptions
from cimtool.reference.montecarlo import DEFAULT_SAMPLES

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions
    from cimtool.costs.estimate import Estimate
    from cimtool.deployment.programming import program as program
    from cimtool.evaluation.run import Evaluation
    from cimtool.loading.embeddings import EmbeddingsLike, File
    from cimtool.loading.source import Projectors
    from cimtool.sweeps.run import sweep as sweep
    from cimtool.training.fit_page import fit as fit
    from cimtool.training.hardware.fine_tune import fine_tune as fine_tune
    from cimtool.training.projectors import train as train
    from cimtool.training.teacher_file import teacher as teacher
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
    "train": "cimtool.training.projectors",
    "fine_tune": "cimtool.training.hardware.fine_tune",
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
