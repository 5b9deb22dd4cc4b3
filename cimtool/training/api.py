"""The library's functions of this room: teachers, polynomials, models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cimtool.base.files import keeping_inputs
from cimtool.base.plugins import needing
from cimtool.base.progress import Say, silent
from cimtool.hardware.configuration import Configuration
from cimtool.loading.source import ModelSource
from cimtool.training.fit_page import fit as fit
from cimtool.training.teacher_file import teacher as teacher

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions
    from cimtool.hardware.target import Target
    from cimtool.loading.embeddings import EmbeddingsLike, File
    from cimtool.training.hardware.fine_tune import FineTuningRun
    from cimtool.training.job import TrainingOptions
    from cimtool.training.projectors import ProjectorRun


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

    refuse_strange("train", chosen)
    return train_projectors(data, Path(output), validation, resume, chosen, say)


def refuse_strange(function: str, chosen: TrainingOptions) -> None:
    """Raise TypeError for an argument that no training has."""
    from cimtool.training.job import TrainingOptions

    if strange := chosen.keys() - TrainingOptions.__annotations__:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(strange)!r}")


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
