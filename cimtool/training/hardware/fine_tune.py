"""Fine-tuning: a trained model learns to give its own logits again once it is compiled.

The loss compares the logits that the compiled model would give for all pairs of a batch with those
of the float model, so it needs no labels. Formats, ranges and bias corrections come from a
compilation of the weights at the beginning of each epoch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import noise_of
from cimtool.deployment.compilation import calibration_rows, trained_model
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.data import Data, read_data
from cimtool.passes.step import Job
from cimtool.simulation.die_program import Conditions
from cimtool.training.hardware.compiled import Compiler
from cimtool.training.hardware.loop import Epoch, FineTuning, fine_tuned
from cimtool.training.hardware.parameters import tensor_keys, with_tensors


@dataclass(frozen=True)
class DieNoise:
    """Dies in the loop: of a noise model by name or file, None for the target's own, at a time."""

    model: Path | str | None = None
    time: str | None = None


@dataclass(frozen=True, eq=False)
class FineTuned:
    """The best weights as a checkpoint with the keys of that which they came from.

    `history` holds the start and each epoch; `stopped` says why it ended early, if it did.
    """

    content: Mapping[str, Any]
    history: tuple[Epoch, ...]
    stopped: str | None

    def to_bytes(self) -> bytes:
        """The checkpoint as a file, which loads with `weights_only=True`."""
        buffer = io.BytesIO()  # torch's own writer turns a full disk into a RuntimeError
        torch.save(dict(self.content), buffer)
        return buffer.getvalue()


def fine_tune(
    projectors: Path | str,
    poly: Path | str | None = None,
    *,
    data: Data,
    calibration: Data,
    target: str | Target = "ideal",
    options: FineTuning | None = None,
    noise: DieNoise | None = None,
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    say: Say = silent,
    **flags: object,
) -> FineTuned:
    """Fine-tune a checkpoint for a target, on rows of `data`; all else is as in `compile`.

    `calibration` should be what the result will be compiled with. Of each epoch's weights those
    are kept whose compiled model has the least logit RMSE on held-out rows of `data`. The same
    inputs and number of threads give the same weights. Raises CimError for any mistake.
    """
    options = options or FineTuning()
    chosen = target if isinstance(target, Target) else load_target(target)
    resolved = resolve(chosen, Path(settings) if settings else None, flags)
    named = Path(layer_map) if layer_map else None
    model = trained_model(Path(projectors), poly, a, b, named, say, head)
    checkpoint = read_checkpoint(Path(projectors))
    keys = tensor_keys(model, checkpoint.file)
    rows = read_data(data, model)
    ranges = calibration_rows(read_data(calibration, model), [])
    conditions = _conditions(chosen, noise, options.seed)
    compiler = Compiler(model.program, Job(resolved, *ranges, silent), conditions)
    best = fine_tuned(compiler, rows, options, say)
    new = {}
    for modality, layers in best.weights.items():
        for node, (weight, bias) in layers.items():
            own = keys[modality][node]
            new[own.weight] = weight
            if own.bias is not None:
                new[own.bias] = bias
    return FineTuned(with_tensors(checkpoint.content, new), best.history, best.stopped)


def _conditions(target: Target, noise: DieNoise | None, seed: int) -> Conditions | None:
    """What the dies in the loop are drawn from; None without noise."""
    if noise is None:
        return None
    model = noise_of(target, noise.model)
    return Conditions(model, model.seconds(noise.time), seed=seed)
