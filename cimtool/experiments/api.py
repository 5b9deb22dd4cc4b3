"""The library's functions of this room: sweep, tune, evaluate, compare targets, train a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cimtool.base.files import keeping_inputs
from cimtool.base.options import takes
from cimtool.base.plugins import needing
from cimtool.base.progress import Say, silent
from cimtool.experiments.evaluate import Evaluation as Evaluation
from cimtool.experiments.evaluate import evaluate as evaluate
from cimtool.experiments.options import TrainGridOptions
from cimtool.experiments.sweep import sweep as sweep
from cimtool.experiments.target_comparison import compare_targets as compare_targets
from cimtool.experiments.tune import tune as tune

if TYPE_CHECKING:
    from cimtool.experiments.training_grid import TrainingGrid


@keeping_inputs
@takes(TrainGridOptions)
def train_grid(options: TrainGridOptions, say: Say = silent) -> TrainingGrid:
    """Train a model for every point of a grid, and compare them on unseen pairs.

    `grid` has values of `loss`, `model`, `batch`, `epochs`, `learning_rate`, `weight_decay`,
    `optimizer`, `seed`, and of options by `model.<field>` and `loss.<field>`. Everything else is as
    in `train`, the same for all points. An option that a point's model or loss does not have is
    left out there. Figures are for the share `test`, which no training sees; without it, for the
    pairs that choose the best epochs. With several seeds, they are means. Results go to `output`;
    points that an earlier run finished are not trained again. Raises CimError for a wrong key or
    value before anything runs, and PointsFailed (a CheckFailed) at the end if points failed.
    """
    with needing("training"):
        from cimtool.experiments.training_grid import train_points

    return train_points(options, say)
