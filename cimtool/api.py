"""The library: compile a model, load a bundle, encode, score and verify, with or without files.

A function that joins several rooms or needs torch stands here, and imports late what few callers
need. Any other is its room's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cimtool.base.extras import needing
from cimtool.base.files import (
    REPORT_FILES,
    check_folder,
    keeping_inputs,
    require_kept,
)
from cimtool.base.progress import Say, silent
from cimtool.bundle import placement_view as _placement_view  # noqa: F401  (views of results)
from cimtool.bundle import render as _bundle_render  # noqa: F401
from cimtool.bundle.compilation import Compilation as Compilation
from cimtool.bundle.compilation import compile as compile
from cimtool.bundle.compilation import prepare as prepare
from cimtool.bundle.matcher import Matcher as Matcher
from cimtool.bundle.matcher import load as load
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.simulate import simulate as simulate
from cimtool.costs import render as _costs_render  # noqa: F401
from cimtool.costs.estimate import cost as cost
from cimtool.experiments import render as _experiments_render  # noqa: F401
from cimtool.experiments import render_sweep as _sweep_render  # noqa: F401
from cimtool.experiments.evaluate import Evaluation as Evaluation
from cimtool.experiments.evaluate import evaluate as evaluate
from cimtool.experiments.sweep import sweep as sweep
from cimtool.experiments.tune import tune as tune
from cimtool.galleries import render as _galleries_render  # noqa: F401
from cimtool.galleries.cams import program_cam as program_cam
from cimtool.galleries.encoding import encode as encode
from cimtool.galleries.gallery_changes import change_gallery as change_gallery
from cimtool.galleries.programming import program as program
from cimtool.galleries.search import search as search
from cimtool.hardware.configuration import Configuration
from cimtool.loading.calibration_rows import seen_rows
from cimtool.loading.embeddings import read_data as read_data
from cimtool.loading.qrels import judged_data
from cimtool.loading.source import ModelSource as ModelSource
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.training.fit_page import fit as fit
from cimtool.training.teacher_file import teacher as teacher

if TYPE_CHECKING:
    from cimtool.base.grids import Grid
    from cimtool.bundle.dies import NoiseOptions
    from cimtool.experiments.training_grid import TrainingGrid
    from cimtool.hardware.target import Target
    from cimtool.loading.embeddings import EmbeddingsLike, File
    from cimtool.training.hardware.fine_tune import FineTuningRun
    from cimtool.training.job import TrainingOptions
    from cimtool.training.projectors import ProjectorRun
    from cimtool.verification.compare import BundleComparison
    from cimtool.verification.references import ReferenceKind
    from cimtool.verification.report import Report


@keeping_inputs
def verify(
    bundle: File,
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: File | None = None,
    baseline: File | None = None,
    tolerance: Mapping[str, float] | None = None,
    junit: File | None = None,
    noise: NoiseOptions | None = None,
    chip: File | None = None,
    qrels: File | None = None,
    allow_calibration_rows: bool = False,
    drop_calibration_rows: bool = False,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With a file `qrels` right is what it grades above 0. Drift is against the exact score, or with
    `reference="mc"` against Monte Carlo of `samples` a side (default: 10). With `noise` the report
    has rows of the median die and of the worst in twenty, at the earliest time and at the one asked
    for; with `chip`, the folder of a measured one, a row of that. Rows that the bundle was
    calibrated on are refused, or with `allow_calibration_rows` measured too, or with
    `drop_calibration_rows` left out. Writes `report.html`, `report.json` and `report.md` into
    `report` (default: the bundle's folder), and the checks as JUnit XML into a file `junit`, of
    which an earlier one is removed at once.
    With `baseline`, the `report.json` of an earlier run on the same data, the runs are paired query
    by query, and what is surely worse by more than its `tolerance` fails.
    Raises CheckFailed where a bit differs, a metric is over its limit in `max_drift`, or worse than
    in the baseline.
    """
    from cimtool.verification.earlier import earlier_of
    from cimtool.verification.junit import remove_earlier
    from cimtool.verification.references import References
    from cimtool.verification.run import verify_bundle

    if junit is not None:
        remove_earlier(Path(junit))
    references, opened = References(reference, samples, seed), open_bundle(bundle)
    folder = opened.folder if report is None else Path(report)
    earlier = earlier_of(baseline, tolerance, folder)
    check_folder(folder)
    for name in REPORT_FILES:
        require_kept(folder / name)
    return verify_bundle(
        opened,
        read_data(judged_data(data, qrels, opened.model.modalities), opened.model),
        references,
        max_drift,
        folder,
        say,
        noise,
        seen_rows(allow_calibration_rows, drop_calibration_rows),
        None if chip is None else Path(chip),
        earlier,
        None if junit is None else Path(junit),
    )


def compare(
    bundles: Sequence[File],
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    qrels: File | None = None,
    allow_calibration_rows: bool = False,
    drop_calibration_rows: bool = False,
    say: Say = silent,
) -> BundleComparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    With a file `qrels` right is what it grades above 0. Raises CheckFailed where a bit differs.
    """
    from cimtool.verification.compare import compare_bundles
    from cimtool.verification.references import References

    references = References(reference, samples, seed)
    opened = [open_bundle(bundle) for bundle in bundles]
    rows = [read_data(judged_data(data, qrels, one.model.modalities), one.model) for one in opened]
    seen = seen_rows(allow_calibration_rows, drop_calibration_rows)
    return compare_bundles(opened, rows, references, say, seen)


@keeping_inputs
def train(
    data: EmbeddingsLike,
    output: File,
    *,
    validation: EmbeddingsLike | None = None,
    resume: bool = False,
    say: Say = silent,
    **chosen: Unpack[TrainingOptions],
) -> ProjectorRun:
    """Train projectors into the folder `output`: `model.pth`, `last.pth`, the history and its page.

    Validates after each epoch on `validation`, or on a share `held_out` (0.1) of the videos, and
    keeps the best; a share `test` is set aside first, as `test.npz`. `model` (trunk, or that of
    `start`) and `loss` (info-nce-poly with `poly` or one in `start`, else info-nce) are names;
    `options` their fields by `model.<field>` and `loss.<field>`. `optimizer` is adamw or sgd,
    `device` `cpu`, `cuda` or `cuda:N`. What else is None is the loss's own. With `resume` it goes
    on after the last epoch that `last.pth` has, or starts where there is none, and comes to the
    same bytes as a run that was never cut off; the caller's random state is left as it was. Raises
    Diverged (a CheckFailed) where the loss stops being finite, with the epochs before it kept, and
    CimError for a folder with another run.
    """
    with needing("training"):
        from cimtool.training.projectors import train_projectors

    _refuse_strange("train", chosen)
    return train_projectors(data, Path(output), validation, resume, chosen, say)


def _refuse_strange(function: str, chosen: TrainingOptions) -> None:
    """Raise TypeError for an argument that no training has."""
    from cimtool.training.job import TrainingOptions

    if strange := chosen.keys() - TrainingOptions.__annotations__:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(strange)!r}")


@keeping_inputs
def train_grid(
    data: EmbeddingsLike,
    output: File,
    *,
    grid: Grid,
    validation: EmbeddingsLike | None = None,
    say: Say = silent,
    **chosen: Unpack[TrainingOptions],
) -> TrainingGrid:
    """Train a model for every point of a grid, and compare them on unseen pairs.

    `grid` has values of `loss`, `model`, `batch`, `epochs`, `learning_rate`, `weight_decay`,
    `optimizer`, `seed`, and of options by `model.<field>` and `loss.<field>`; all else is as in
    `train`, the same for all points. An option that a point's model or loss does not have is left
    out there. Figures are of the pairs of a share `test`, which no training sees, or else of those
    that choose the best epochs; of several seeds they are means. Results go to `output`, where
    points that an earlier run has done are not trained again. Raises CimError, before anything
    runs, for a key or a value that is wrong, PointsFailed (a CheckFailed) at the end where
    points failed.
    """
    with needing("training"):
        from cimtool.experiments import render_training as _render  # noqa: F401  (its page)
        from cimtool.experiments.training_grid import train_points

    _refuse_strange("train_grid", chosen)
    return train_points(data, Path(output), validation, grid, chosen, say)


@keeping_inputs
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
) -> FineTuningRun:
    """Fine-tune a checkpoint for a target into the folder `output`: `model.pth`, history and page.

    It learns to give its own float logits again once it is compiled, on rows of `data`; all else,
    `options` too, is as in `compile`. Of each epoch's weights those are kept whose compiled model
    has the least centred logit RMSE on held-out rows of `data`; with `noise`, on dies of its model
    at its time. The same inputs and number of threads give the same weights. Raises Diverged (a
    CheckFailed), with what is best kept, where the loss stops being finite, and CimError for any
    mistake.
    """
    with needing("training"):
        from cimtool.training.hardware.fine_tune import OPTIMISATION, fine_tune_model

    source, flags = ModelSource.of(projectors, poly, options)
    configuration = Configuration.of(target, settings, flags)
    chosen = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate}
    optimisation = OPTIMISATION.given(chosen)
    where = Path(output)
    return fine_tune_model(
        source, configuration, data, calibration, where, optimisation, seed, noise, flags, say
    )
