"""A run: epoch after epoch into a folder, from where an earlier run was cut off."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import replace_files
from cimtool.base.progress import Say
from cimtool.ir.heads import Head
from cimtool.loading.score import raw
from cimtool.training.history import Epoch, best_epoch, recalls_of
from cimtool.training.job import Job
from cimtool.training.loss import HELD_OUTSIDE, Task
from cimtool.training.model import Model
from cimtool.training.saved import BEST, HISTORY, LAST, RESUME, config, read_saved
from cimtool.training.surrogate import measured_band, unbounded
from cimtool.training.towers import TwoTower
from cimtool.training.train_page import PAGE, history_text, train_page
from cimtool.training.trainer import Diverged, Means, Trainer

OUTSIDE = 0.01
"""Share of held-out pairs beyond the polynomial's band above which another is to be fitted."""


@dataclass(frozen=True)
class Run:
    """A run that has ended: its folder, and every epoch, the start first.

    `lacks_polynomial` says that the model's score is a polynomial, and that it has none yet;
    `remarks` are on the data, the best epoch's polynomial, and the model's own on its last epoch.
    """

    folder: Path
    history: tuple[Epoch, ...]
    lacks_polynomial: bool
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Epoch:
        """The epoch that `model.pth` holds."""
        return best_epoch(self.history)

    @property
    def outgrew_polynomial(self) -> bool:
        """Whether too many of the best epoch's held-out pairs are beyond its polynomial's band."""
        return _outside(self.history) > OUTSIDE

    @property
    def files(self) -> tuple[Path, ...]:
        """What was written."""
        return tuple(self.folder / name for name in (BEST, LAST, HISTORY, PAGE))


def run_job(job: Job, folder: Path, resume: bool, say: Say) -> Run:
    """Train, and keep in `folder` the best and the last checkpoint, the history and its page.

    With `resume` it goes on after the last epoch that `last.pth` has, or starts where there is
    none, and comes to the same bytes as a run that was never cut off; the caller's random state is
    left as it was. Raises Diverged where the loss stops being finite, with the epochs before it
    kept, and CimError for a folder with another run.
    """
    saved = read_saved(folder, job, resume)
    with torch.random.fork_rng(devices=[job.device] if job.device.type == "cuda" else []):
        torch.manual_seed(job.seed)
        trainer = _trainer(job)
        history: list[Epoch] = []
        if saved is None:
            _start(job, folder, trainer, history, say)
        else:
            saved.restore(trainer)
            history += saved.history
            say(f"going on after epoch {history[-1].number}")
        while len(history) <= job.optimisation.epochs:
            try:
                _train_epoch(job, folder, trainer, history, say)
            except Diverged as error:
                raise _stopped(job, folder, history, error) from None
    # Once more, for the settings may ask for other epochs than those of the run that was cut off.
    _write_history(job, folder, history, None)
    own = job.model.remarks(trainer.towers.cpu().eval(), job.held)
    remarks = (*job.remarks, *_outgrown(history), *own)
    return Run(folder, tuple(history), _lacks_polynomial(job), remarks)


def _outside(history: Sequence[Epoch]) -> float:
    return best_epoch(history).watched.get(HELD_OUTSIDE, 0.0)


def _outgrown(history: Sequence[Epoch]) -> tuple[str, ...]:
    share = _outside(history)
    if share <= OUTSIDE:
        return ()
    return (
        f"{share:.1%} of all held-out pairs lie beyond the band that the polynomial was fitted on: "
        "the model has outgrown it, and needs another before it is compiled",
    )


def _lacks_polynomial(job: Job) -> bool:
    head = job.loss.deployed().get("head", job.model.head)
    return Head.named(head, "head").takes_polynomial and job.surrogate is None


def _trainer(job: Job) -> Trainer:
    widths = job.pairs.text.shape[1], job.pairs.video.shape[1]
    with naming(job.files["data"]):
        towers = _built(job.model, *widths)
    if job.start is not None:
        job.start.load(towers, job.model.name)
    task = _task(job, towers)
    with naming(job.files["data"]):
        objective = job.loss.objective(task)
    return Trainer.start(towers, objective, job.optimisation, job.device)


def _built(model: Model, text: int, video: int) -> TwoTower:
    try:
        return model.build(text, video)
    except (RuntimeError, MemoryError):  # torch's allocator has no error of its own
        sizes = ", ".join(f"{name} {value}" for name, value in asdict(model).items())
        raise CimError(
            f'model "{model.name}" for rows of {text} and {video} numbers does not fit in memory; '
            f"expected smaller options ({sizes})"
        ) from None


def _task(job: Job, towers: TwoTower) -> Task:
    towers.eval()
    with torch.no_grad():
        dimension = towers.text_tower(job.pairs.text[:1]).mu.shape[1]
    text, video = job.pairs.text.shape[1], job.pairs.video.shape[1]
    projectors = nn.ModuleList([towers.text_proj, towers.video_proj])
    weights = tuple(one for one in projectors.parameters() if one.ndim == 2)
    task = Task(text, video, dimension, job.pairs.classes, weights=weights, decoder=towers.decoder)
    if job.surrogate is None:
        return task
    divisors = job.layout.statistics(dimension)
    polynomial = raw(job.surrogate.polynomial, divisors)
    if job.surrogate.band is not None:
        band = job.surrogate.band.scaled(*divisors)
    elif job.start is not None:
        with np.errstate(all="ignore"):
            band = measured_band(towers, job.pairs)
        if not np.isfinite([*band.ed, *band.beside]).all():
            raise _not_finite(job)
    else:
        raise unbounded(job.surrogate)
    return replace(task, polynomial=polynomial, band=band)


def _start(job: Job, folder: Path, trainer: Trainer, history: list[Epoch], say: Say) -> None:
    try:
        _finish_epoch(job, folder, trainer, history, None, say)
    except Diverged:
        raise _not_finite(job) from None


def _not_finite(job: Job) -> CimError:
    data, start = job.files["validation"] or job.files["data"], job.files["start"]
    what = "the model" if start is None else start
    sentence = (
        f"{data}: {what} gives scores that are not finite before any training; expected smaller "
        "numbers in its rows"
    )
    return (
        CimError(sentence) if start is None else ArgumentError("{}, or another {start}", sentence)
    )


def _train_epoch(job: Job, folder: Path, trainer: Trainer, history: list[Epoch], say: Say) -> None:
    began = time.perf_counter()
    means = trainer.epoch(job.pairs, job.optimisation.batch, job.loss.per_class)

    def timed(line: str) -> None:
        say(f"{line}; {time.perf_counter() - began:.1f} s")

    _finish_epoch(job, folder, trainer, history, means, timed)


def _finish_epoch(
    job: Job, folder: Path, trainer: Trainer, history: list[Epoch], means: Means | None, say: Say
) -> None:
    """Validate, and write; what goes on from here comes last, so that a kill loses no more."""
    scores, watched = trainer.validate(job.held)
    recalls = recalls_of(scores, job.held, job.loss.needs_labels)
    history.append(Epoch.of(len(history), means, recalls, watched))
    say(history[-1].line(job.optimisation.epochs))
    checkpoint = _checkpoint(job, trainer, history[-1])
    if best_epoch(history) is history[-1]:
        replace_files(folder, {BEST: _bytes(checkpoint)}, "the checkpoint")
    _write_history(job, folder, history, None)
    state = {
        "settings": dict(job.settings),
        "state": trainer.state(),
        "history": [epoch.to_json() for epoch in history],
    }
    replace_files(folder, {LAST: _bytes({**checkpoint, RESUME: state})}, "the checkpoint")


def _checkpoint(job: Job, trainer: Trainer, epoch: Epoch) -> dict[str, Any]:
    """Tensors and plain values, as the loader's layouts read them."""
    towers = trainer.towers
    found: dict[str, Any] = {
        "text_proj": towers.text_proj.state_dict(),
        "video_proj": towers.video_proj.state_dict(),
        "head": job.model.head,
        **job.model.deployed(),
        **job.loss.deployed(),
        "config": config(job.settings),
        "epoch": epoch.number,
        "loss": epoch.loss,
    }
    if job.surrogate is not None:
        found["poly"] = job.surrogate.values()
    return found


def _bytes(values: Mapping[str, Any]) -> bytes:
    # Through memory: torch's own writer turns a full disk into a RuntimeError.
    buffer = io.BytesIO()
    torch.save(_shared(values), buffer)
    return buffer.getvalue()


def _shared(value: Any) -> Any:
    """The same values, on the CPU, with one object for equal texts.

    A pickle refers back to objects that it has written; which texts are one object would else
    differ between a run and one that goes on from a file.
    """
    if isinstance(value, Mapping):
        return {_shared(key): _shared(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_shared, value))
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return sys.intern(value) if isinstance(value, str) else value


def _write_history(job: Job, folder: Path, history: list[Epoch], stopped: str | None) -> None:
    title = f"{job.model.name} trained by {job.loss.name}"
    texts = {
        HISTORY: history_text(job.settings, history, stopped),
        PAGE: train_page(title, job.settings, history, stopped),
    }
    files = {name: text.encode() for name, text in texts.items()}
    replace_files(folder, files, "the history")


def _stopped(job: Job, folder: Path, history: list[Epoch], error: Diverged) -> Diverged:
    kept = best_epoch(history).number
    what = f"epoch {kept}" if kept else "the start"
    text = f"epoch {len(history)}: {error}; {folder / BEST} keeps {what}, the best before"
    _write_history(job, folder, history, text)
    return Diverged(text)
