"""The folder of a run: its files, what an earlier run left there, and whether one may go on."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import PARTIAL, unwritable
from cimtool.loading.checkpoint import BROKEN
from cimtool.training.history import EpochT, best_epoch

BEST, LAST, HISTORY, PAGE = "model.pth", "last.pth", "history.json", "training.html"
RESUME = "resume"
"""Key of `last.pth` that holds the state of the run beside the checkpoint."""


@dataclass(frozen=True, eq=False)
class Saved(Generic[EpochT]):
    """The trainer's state after the last epoch of the history, as `last.pth` holds it."""

    file: Path
    state: Mapping[str, Any]
    history: tuple[EpochT, ...]


def earlier_files(folder: Path) -> list[str]:
    """Names of the files of an earlier run in a folder; CimError where it is a file."""
    if folder.exists() and not folder.is_dir():
        raise CimError(f"{folder}: is a file; expected a folder, or none")
    return [name for name in (BEST, LAST, HISTORY) if (folder / name).exists()]


def check_new(folder: Path, resumable: bool) -> None:
    """Raise CimError where a folder holds an earlier run."""
    if found := earlier_files(folder):
        held = f"{folder}: holds {', '.join(found)} of an earlier run"
        if resumable:
            raise ArgumentError("{}; expected {resume}, or another folder", held)
        raise CimError(f"{held}; expected another folder")


def read_saved(
    folder: Path, settings: Mapping[str, Any], files: Mapping[str, str | None], epoch: type[EpochT]
) -> Saved[EpochT] | None:
    """Read what a run with these settings goes on from in a folder; None where it starts.

    `files` are those of which `settings` has a digest, `epoch` the rows of its history. Clears
    what a killed run was about to write. Raises CimError for a folder with another run.
    """
    saved = None
    found = earlier_files(folder)
    if LAST in found:
        saved = _read_last(folder / LAST, settings, files, epoch)
        _require_best(folder / BEST, saved, settings)
    elif found:
        _require_start(folder, settings, found)
    _clear(folder)
    return saved


def _read_last(
    file: Path, settings: Mapping[str, Any], files: Mapping[str, str | None], epoch: type[EpochT]
) -> Saved[EpochT]:
    with foreign(file):
        values = _content(file)[RESUME]
        before, state = values["settings"], values["state"]
        history = tuple(map(epoch.from_json, values["history"]))
        if not history or "model" not in before:
            raise ValueError(history)
    _require_same(file, before, settings, files)
    return Saved(file, state, history)


def _require_best(file: Path, saved: Saved[EpochT], settings: Mapping[str, Any]) -> None:
    """Raise CimError unless `file` is the best epoch so far, or one that is still to come.

    The latter where a kill came between it and `last.pth`: it will be written again, the same.
    """
    best, last = best_epoch(saved.history).number, saved.history[-1].number
    epoch = _epoch_of(file, settings)
    if epoch != best and not (epoch is not None and last < epoch <= settings["epochs"]):
        what = "is missing or of another run" if epoch is None else f"is epoch {epoch}"
        found = f"{file}: {what}, and the best of {saved.file.name} is epoch {best}"
        if epoch and epoch > last:
            raise ArgumentError("{}; expected {epochs} {} or more", found, epoch)
        raise CimError(f"{found}; expected another folder")


def _require_start(folder: Path, settings: Mapping[str, Any], found: list[str]) -> None:
    """Without `last.pth` only this very run is overwritten, killed as it wrote its start."""
    if _epoch_of(folder / BEST, settings) != 0:
        raise CimError(
            f"{folder}: holds {', '.join(found)} without {LAST}, so there is nothing to go on "
            "from; expected another folder"
        )


def _epoch_of(file: Path, settings: Mapping[str, Any]) -> int | None:
    """The epoch that a checkpoint holds; None where it is none of a run with these settings."""
    try:
        content = _content(file)
        epoch = content["epoch"] if content["config"] == config(settings) else None
    except (OSError, *BROKEN):
        return None
    return epoch if isinstance(epoch, int) else None


def _content(file: Path) -> Mapping[str, Any]:
    content = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise TypeError(content)
    return content


@contextmanager
def foreign(file: Path) -> Iterator[None]:
    """Raise CimError for a file that cannot be read, or does not hold what a run wrote."""
    try:
        yield
    except (OSError, *BROKEN):
        raise CimError(f"{file}: is not what a run wrote; expected another folder") from None


def config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a checkpoint holds: all but how many epochs were asked for."""
    return {name: value for name, value in settings.items() if name != "epochs"}


def _require_same(
    last: Path,
    settings: Mapping[str, Any],
    asked: Mapping[str, Any],
    files: Mapping[str, str | None],
) -> None:
    """Only the number of epochs may be another one."""
    before, now = config(settings), config(asked)
    for name in [*now, *(name for name in before if name not in now)]:
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if name not in files:
            raise CimError(
                f"{last}: was trained with {name} = {one}, and is asked to go on with {other}; "
                "expected the same, or another folder"
            )
        then = "without" if one is None else "with" if other is None else "with another"
        wanted = "without it" if other is None else f"with {files[name]}"
        raise ArgumentError(
            "{}: was trained {} {}, and is asked to go on {}; expected the same, or another folder",
            last, then, Argument(name), wanted,
        )  # fmt: skip


def _clear(folder: Path) -> None:
    for partial in folder.glob(f"{PARTIAL}*"):
        try:
            shutil.rmtree(partial)
        except OSError as error:
            raise unwritable(partial, error) from error


def checkpoint_bytes(values: Mapping[str, Any]) -> bytes:
    """A checkpoint's file, which loads with `weights_only=True`; equal values give equal bytes."""
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
