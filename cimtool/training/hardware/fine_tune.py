"""Fine-tuning: a trained model learns to give its own logits again once it is compiled.

The loss compares the logits that the compiled model would give for all pairs of a batch with those
of the float model, so it needs no labels. Formats, ranges and bias corrections come from a
compilation of the weights at the beginning of each epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cimtool.base.errors import CimError
from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import NoiseOptions, noise_of
from cimtool.deployment.compilation import calibration_rows
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.target import Target
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.data import EmbeddingsLike, read_data
from cimtool.loading.source import ModelSource
from cimtool.passes.step import Job
from cimtool.simulation.die_program import Conditions
from cimtool.training.hardware.compiled import Compiler
from cimtool.training.hardware.page import CompiledEpoch
from cimtool.training.hardware.parameters import tensor_keys
from cimtool.training.hardware.training import FineTuningJob, HardwareTraining
from cimtool.training.optimisation import Optimisation, check_seed
from cimtool.training.saved import check_new
from cimtool.training.trainer import Run, Trainer

OPTIMISATION = Optimisation(epochs=5, batch=128, learning_rate=6e-5, weight_decay=0.0)
"""The usual one; the learning rate falls as a cosine."""


def fine_tune(
    source: ModelSource,
    data: EmbeddingsLike,
    calibration: EmbeddingsLike,
    configuration: Configuration,
    output: Path,
    *,
    settings: Mapping[str, object] = MappingProxyType({}),
    optimisation: Optimisation = OPTIMISATION,
    seed: int = 0,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> Run[CompiledEpoch]:
    """Fine-tune a checkpoint for a target, on rows of `data`.

    `calibration` should be what the result will be compiled with, and `settings` are those given by
    name. Of each epoch's weights those are kept in the folder `output` whose compiled model has the
    least logit RMSE on held-out rows of `data`; with `noise`, on dies of its model at its time. The
    same inputs and number of threads give the same weights. Raises Diverged, with what is best
    kept, where the loss stops being finite, and CimError for any mistake.
    """
    check_new(output, resumable=False)
    check_seed(seed)
    if not isinstance(source.projectors, Path):
        raise CimError(f"{source}: only a checkpoint can be fine-tuned; expected one file")
    model = source.load(say)
    checkpoint = read_checkpoint(source.projectors)
    keys = tensor_keys(model, checkpoint.file)
    rows = read_data(data, model)
    ranges = calibration_rows(read_data(calibration, model), [])
    conditions = _conditions(configuration.target, noise, seed)
    compiler = Compiler(model.program, Job(configuration.settings, *ranges, silent), conditions)
    facts = {
        "start": str(source),
        "hardware": configuration.target.name,
        "epochs": optimisation.epochs,
        "batch": optimisation.batch,
        "learning_rate": optimisation.learning_rate,
        "seed": seed,
        **{name: value for name, value in settings.items() if value is not None},
    }
    if noise is not None:
        facts |= {"noise": str(noise.model or "the target's"), "time": noise.time}
    job = FineTuningJob(checkpoint, keys, compiler, rows, optimisation, seed, facts)
    return Trainer(HardwareTraining(job), optimisation, output, say).run()


def _conditions(target: Target, noise: NoiseOptions | None, seed: int) -> Conditions | None:
    """The conditions of the dies in the loop; None without noise."""
    if noise is None:
        return None
    model = noise_of(target, noise.model)
    return Conditions(model, model.seconds(noise.time), seed=seed)
