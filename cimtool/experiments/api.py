"""The library's functions of this room: sweep, tune, evaluate, train a grid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.base.extras import needing
from cimtool.base.files import check_folder, keeping_inputs, require_kept
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.experiments.evaluation import render as _evaluation_render  # noqa: F401
from cimtool.experiments.evaluation.run import (
    Evaluation,
    EvaluationChoices,
    check_sampling,
    evaluate_pairs,
)
from cimtool.experiments.evaluation.subjects import sources_of, subjects_of
from cimtool.experiments.evaluation.trec import QRELS
from cimtool.experiments.options import EvaluateOptions, TrainGridOptions
from cimtool.experiments.sweeps.run import sweep as sweep
from cimtool.experiments.tuning import render as _tuning_render  # noqa: F401
from cimtool.experiments.tuning.run import tune as tune
from cimtool.loading.qrels import judged_rows
from cimtool.loading.source import ModelOptions

if TYPE_CHECKING:
    from cimtool.experiments.training_grid.results import TrainingGrid


@keeping_inputs
@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions, say: Say = silent) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder; `poly` and the options of `model` (`a`, `b`, `layer_map`,
    `head`) are of projectors, but for a ModelSource, which has its own; `head` is also of the
    embeddings (cosine or euclidean). With
    `leave_one_out`, or where `data` are items of one modality (`rows`), right is what has an item's
    label, the item itself left out; with a file `qrels` right is what it grades above 0. Each of
    `samples` adds Monte Carlo with so many a side for projectors whose a and b are known. Raw
    embeddings come last where both are equally wide; without `what` they are of each pair of the
    arrays `modalities`, and projectors and bundles know theirs. Runs and qrels are written into the
    folder `trec`. Differences are to the first of several.
    """
    check_sampling(options.resamples, options.seed, options.samples)
    sources = sources_of(options.what, {"poly": options.poly, **options.part(ModelOptions)})
    folder = None if options.trec is None else Path(options.trec)
    if folder is not None:
        check_folder(folder)
        for name in QRELS:
            require_kept(folder / name)
    subjects = subjects_of(
        options.data,
        sources,
        options.head,
        options.modalities,
        options.samples,
        options.calibration_rows,
        say,
    )
    judged = [replace(one, data=judged_rows(one.data, options.qrels)) for one in subjects]
    choices = EvaluationChoices(options.leave_one_out, options.resamples, options.seed, folder, say)
    return evaluate_pairs(judged, choices)


@keeping_inputs
@takes(TrainGridOptions)
def train_grid(options: TrainGridOptions, say: Say = silent) -> TrainingGrid:
    """Train a model for every point of a grid, and compare them on unseen pairs.

    `grid` has values of `loss`, `model`, `batch`, `epochs`, `learning_rate`, `weight_decay`,
    `optimizer`, `seed`, and of options by `model.<field>` and `loss.<field>`; all else is as in
    `train`, the same for all points. An option that a point's model or loss does not have is left
    out there. Figures are of the pairs of a share `test`, which no training sees, or else of those
    that choose the best epochs; of several seeds they are means. Results go to `output`, where
    points that an earlier run has done are not trained again. Raises CimError, before anything
    runs, for a key or a value that is wrong, TrainingsFailed (a CheckFailed) at the end where
    points failed.
    """
    with needing("training"):
        from cimtool.experiments.training_grid.run import train_points

    return train_points(options, say)
