"""What an earlier run left in a folder, and whether this run may go on from it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import PARTIAL, unwritable
from cimtool.loading.checkpoint import BROKEN
from cimtool.training.history import Epoch, best_epoch
from cimtool.training.job import Job
from cimtool.training.trainer import Trainer

BEST, LAST, HISTORY = "model.pth", "last.pth", "history.json"
RESUME = "resume"
"""What `last.pth` holds beside the checkpoint."""


@dataclass(frozen=True, eq=False)
class Saved:
    """What `last.pth` goes on from: the trainer's state after the last epoch of the history."""

    file: Path
    state: Mapping[str, Any]
    history: tuple[Epoch, ...]

    def restore(self, trainer: Trainer) -> None:
        """Put the state into a trainer; CimError where it does not fit."""
        try:
            trainer.restore(self.state)
        except BROKEN:
            raise _foreign(self.file) from None


def read_saved(folder: Path, job: Job, resume: bool) -> Saved | None:
    """Return what to go on from; None for a run that starts, for which nothing else may be there.

    Clears what a killed run was about to write. Raises CimError for a folder with another run.
    """
    if folder.exists() and not folder.is_dir():
        raise CimError(f"{folder}: is a file; expected a folder, or none")
    found = [name for name in (BEST, LAST, HISTORY) if (folder / name).exists()]
    if found and not resume:
        raise ArgumentError(
            "{}: holds {} of an earlier run; expected {resume}, or another folder",
            folder,
            ", ".join(found),
        )
    saved = None
    if LAST in found:
        saved = _read_last(folder / LAST, job)
        _require_best(folder / BEST, saved, job)
    elif found:
        _require_start(folder, job, found)
    if resume:
        _clear(folder)
    return saved


def _read_last(file: Path, job: Job) -> Saved:
    try:
        values = _content(file)[RESUME]
        settings, state = values["settings"], values["state"]
        history = tuple(map(Epoch.from_json, values["history"]))
        if not history or "model" not in settings:
            raise _foreign(file)
    except (OSError, *BROKEN):
        raise _foreign(file) from None
    _require_same(file, settings, job)
    return Saved(file, state, history)


def _require_best(file: Path, saved: Saved, job: Job) -> None:
    """Raise CimError unless `file` is the best epoch so far, or one that is still to come.

    The latter where a kill came between it and `last.pth`: it will be written again, the same.
    """
    best, last = best_epoch(saved.history).number, saved.history[-1].number
    try:
        content = _content(file)
        epoch = content["epoch"] if content["config"] == config(job.settings) else None
    except (OSError, *BROKEN, CimError):
        epoch = None
    if epoch != best and not (isinstance(epoch, int) and last < epoch <= job.optimisation.epochs):
        what = "is missing or of another run" if epoch is None else f"is epoch {epoch}"
        found = f"{file}: {what}, and the best of {saved.file.name} is epoch {best}"
        if epoch and epoch > last:
            raise ArgumentError("{}; expected {epochs} {} or more", found, epoch)
        raise CimError(f"{found}; expected another folder")


def _content(file: Path) -> Mapping[str, Any]:
    content = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise _foreign(file)
    return content


def _foreign(file: Path) -> CimError:
    return CimError(f"{file}: is not what a run wrote; expected another folder")


def _require_start(folder: Path, job: Job, found: list[str]) -> None:
    """Without `last.pth` only this very run is overwritten, killed as it wrote its start."""
    try:
        content = _content(folder / BEST)
        same = content["epoch"] == 0 and content["config"] == config(job.settings)
    except (OSError, *BROKEN, CimError):
        same = False
    if not same:
        raise CimError(
            f"{folder}: holds {', '.join(found)} without {LAST}, so there is nothing to go on "
            "from; expected another folder"
        )


def config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a checkpoint holds: all but how many epochs were asked for."""
    return {name: value for name, value in settings.items() if name != "epochs"}


def _require_same(last: Path, before: Mapping[str, Any], job: Job) -> None:
    """Only the number of epochs may be another one."""
    now = config(job.settings)
    for name in [*now, *(name for name in config(before) if name not in now)]:
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if name not in job.files:
            raise CimError(
                f"{last}: was trained with {name} = {one}, and is asked to go on with {other}; "
                "expected the same, or another folder"
            )
        then = "without" if one is None else "with" if other is None else "with another"
        asked = "without it" if other is None else f"with {job.files[name]}"
        raise ArgumentError(
            "{}: was trained {} {}, and is asked to go on {}; expected the same, or another folder",
            last, then, Argument(name), asked,
        )  # fmt: skip


def _clear(folder: Path) -> None:
    for partial in folder.glob(f"{PARTIAL}*"):
        try:
            shutil.rmtree(partial)
        except OSError as error:
            raise unwritable(partial, error) from error
