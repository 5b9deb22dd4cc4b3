"""The library's functions of this room: teachers, polynomials, models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cimtool.base.files import keeping_inputs
from cimtool.base.options import takes
from cimtool.base.plugins import needing
from cimtool.base.progress import Say, silent
from cimtool.training.arguments import FineTuneOptions, TrainOptions
from cimtool.training.fit import fit as fit
from cimtool.training.teacher_file import teacher as teacher

if TYPE_CHECKING:
    from cimtool.training.fine_tune import FineTuningRun
    from cimtool.training.projectors import ProjectorRun


@keeping_inputs
@takes(TrainOptions)
def train(options: TrainOptions, say: Say = silent) -> ProjectorRun:
    """Train projectors into the folder `output`: `model.pth`, `last.pth`, the history and its page.

    An `output` that ends in `.pth` is the best checkpoint; its folder is the run's.

    Validates after each epoch on `validation`, or on a share `held_out` (0.1) of the videos, and
    keeps the best; a share `test` is set aside first, as `test.npz`, and some of the other pairs
    are written beside it for a compilation, as `calibration.npz`. `model` (trunk, or that of
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

    return train_projectors(options, say)


@keeping_inputs
@takes(FineTuneOptions)
def fine_tune(options: FineTuneOptions, say: Say = silent) -> FineTuningRun:
    """Fine-tune a checkpoint for a target into the folder `output`: `model.pth`, history and page.

    It learns to give its own float logits again once it is compiled, on rows of `data`; all else,
    `options` too, is as in `compile`. Of each epoch's weights those are kept whose compiled model
    has the least centred logit RMSE on held-out rows of `data`; with `noise`, on dies of its model
    at its time. The same inputs and number of threads give the same weights. Raises Diverged (a
    CheckFailed), with what is best kept, where the loss stops being finite, and CimError for any
    mistake.
    """
    with needing("training"):
        from cimtool.training.fine_tune import fine_tune_model

    return fine_tune_model(options, say)
