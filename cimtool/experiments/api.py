"""The library's functions of this room: sweep, tune, evaluate, train a grid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cimtool.base.files import keeping_inputs
from cimtool.base.plugins import needing
from cimtool.base.progress import Say, silent
from cimtool.experiments.evaluate import Evaluation as Evaluation
from cimtool.experiments.evaluate import evaluate as evaluate
from cimtool.experiments.sweep import sweep as sweep
from cimtool.experiments.tune import tune as tune
from cimtool.training.api import refuse_strange

if TYPE_CHECKING:
    from cimtool.base.grids import Grid
    from cimtool.experiments.training_grid import TrainingGrid
    from cimtool.loading.embeddings import EmbeddingsLike, File
    from cimtool.training.job import TrainingOptions


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
        from cimtool.experiments.training_grid import train_points

    refuse_strange("train_grid", chosen)
    return train_points(data, Path(output), validation, grid, chosen, say)
