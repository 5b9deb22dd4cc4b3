"""The training loop: epochs of steps, validation, the best epoch, and a folder to go on from."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from cimtool.base.errors import Argument, ArgumentError, CheckFailed, CimError
from cimtool.base.files import (
    TRAINED_MODEL,
    check_folder,
    replace_files,
    replace_texts,
    require_kept,
    require_outside_bundles,
    unwritable,
)
from cimtool.base.folders import alone_in
from cimtool.base.json_files import parse_json
from cimtool.base.partial import PARTIAL
from cimtool.base.progress import Countdown, PartDone, Say
from cimtool.base.typed_fields import made_of
from cimtool.loading.checkpoint import BROKEN, load_torch
from cimtool.report.result import Result
from cimtool.training.history import EpochT, Means, best_epoch, history_text
from cimtool.training.loss import Terms
from cimtool.training.options import Optimisation

BEST, LAST, HISTORY, PAGE = TRAINED_MODEL, "last.pth", "history.json", "training.html"
TEST, CALIBRATION = "test.npz", "calibration.npz"
RESUME = "resume"
"""Key of `last.pth` that holds the state of the run beside the checkpoint."""


@dataclass(frozen=True, eq=False)
class SavedRun(Generic[EpochT]):
    """The trainer's state after the last epoch of the history, as `last.pth` holds it."""

    file: Path
    state: Mapping[str, Any]
    history: tuple[EpochT, ...]


@dataclass(frozen=True)
class RunPlace:
    """The folder of a run, and the name of its best checkpoint there."""

    folder: Path
    best: str = BEST

    @classmethod
    def of(cls, output: Path) -> RunPlace:
        """The place that a user names by a folder, or by the best checkpoint: a name in `.pth`.

        Raises CimError for the name of the last epoch's checkpoint.
        """
        if output.name == LAST:
            raise CimError(f"{output}: is the name of the last epoch; expected another name")
        if output.suffix == Path(BEST).suffix and not output.is_dir():
            return cls(output.parent, output.name)
        return cls(output)

    @property
    def model(self) -> Path:
        """The best checkpoint."""
        return self.folder / self.best

    def earlier_files(self) -> list[str]:
        """Names of the files of an earlier run; CimError if the folder is a file."""
        if self.folder.exists() and not self.folder.is_dir():
            raise CimError(f"{self.folder}: is a file; expected a folder, or no file")
        check_folder(self.folder)
        return [name for name in (self.best, LAST, HISTORY) if (self.folder / name).exists()]


@contextmanager
def alone_to_train(place: RunPlace) -> Iterator[None]:
    """Keep other trainings out of a folder, which is made if it is missing, until the end.

    Raises CimError if another one is at work there, and for a place that cannot be written.
    """
    place.earlier_files()
    require_outside_bundles(place.folder)
    with alone_in(place.folder, "training"):
        yield


def check_new(place: RunPlace, resumable: bool) -> None:
    """Raise CimError if a folder holds an earlier run."""
    if found := place.earlier_files():
        held = f"{place.folder}: holds {', '.join(found)} of an earlier run"
        if resumable:
            raise ArgumentError("{}; expected {resume}, or another folder", held)
        raise CimError(f"{held}; expected another folder")


def read_saved(
    place: RunPlace,
    settings: Mapping[str, Any],
    files: Mapping[str, str | None],
    epoch: type[EpochT],
) -> SavedRun[EpochT] | None:
    """Read what a run with these settings continues from in a folder; None if it starts anew.

    `files` are those of which `settings` has a digest, `epoch` the rows of its history. Clears
    what a killed run was about to write. Raises CimError for a folder with another run.
    """
    saved, folder = None, place.folder
    names = place.earlier_files()
    if LAST in names:
        file = folder / LAST
        with foreign(file):
            values = _content(file)[RESUME]
            before, rows = values["settings"], parse_json(values["history"])
            history = [made_of(epoch, one) for one in rows]
            saved = SavedRun(file, values["state"], tuple(history))
            if not history or "model" not in before:
                raise ValueError(before)
            json.dumps(before)  # a TypeError for what is no plain value
            best_epoch(history)  # a KeyError where an epoch lacks what the best is chosen by
            _require_same(file, before, settings, files)
        _require_best(place.model, saved, settings)
    elif names and _epoch_of(place.model, settings) != 0:  # not this run, killed at its start
        raise CimError(
            f"{folder}: holds {', '.join(names)} without {LAST}, so there is nothing to continue "
            "from; expected another folder"
        )
    for partial in folder.glob(f"{PARTIAL}*"):
        try:
            shutil.rmtree(partial)
        except OSError as error:
            raise unwritable(partial, error) from error
    return saved


def _require_best(file: Path, saved: SavedRun[EpochT], settings: Mapping[str, Any]) -> None:
    """Raise CimError unless `file` is the best epoch so far, or one that is still to come.

    The latter if a kill came between it and `last.pth`. It will be written again, the same.
    """
    best, last = best_epoch(saved.history).number, saved.history[-1].number
    epoch = _epoch_of(file, settings)
    if epoch != best and not (epoch is not None and last < epoch <= settings["epochs"]):
        what = "is missing or of another run" if epoch is None else f"is epoch {epoch}"
        found = f"{file}: {what}, and the best of {saved.file.name} is epoch {best}"
        if epoch and epoch > last:
            raise ArgumentError("{}; expected {epochs} {} or more", found, epoch)
        raise CimError(f"{found}; expected another folder")


def _epoch_of(file: Path, settings: Mapping[str, Any]) -> int | None:
    """The epoch of a checkpoint.

    None if the checkpoint is from a run with other settings, or cannot be read.
    """
    try:
        content = _content(file)
        epoch = content["epoch"] if content["config"] == config(settings) else None
    except (CimError, *BROKEN):
        return None
    return epoch if isinstance(epoch, int) else None


def _content(file: Path) -> Mapping[str, Any]:
    content = load_torch(file)
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
                f"{last}: was trained with {name} = {one}, but is asked to continue with {other}; "
                "expected the same, or another folder"
            )
        then = "without" if one is None else "with" if other is None else "with another"
        wanted = "without it" if other is None else f"with {files[name]}"
        raise ArgumentError(
            "{}: was trained {} {}, but is asked to continue {}; expected the same, or another "
            "folder",
            last, then, Argument(name), wanted,
        )  # fmt: skip


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


BatchT = TypeVar("BatchT")

CPU = torch.device("cpu")

OPTIMIZERS: Mapping[str, type[torch.optim.AdamW] | type[torch.optim.SGD]] = {
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


class Diverged(CheckFailed):
    """The loss, or what the model gives, is no longer finite."""


class Trainable(ABC, Generic[BatchT, EpochT]):
    """A model in training with its data and its objective; `settings` are plain values.

    A run can be continued if all that changes is in `modules`, in the optimizer or in torch's
    generators.
    """

    settings: Mapping[str, Any]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Plain values for the history beside settings and epochs."""
        return {}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The modules, by name, that a run continues from; empty if none can."""
        return {}

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the run by name, written with its start."""
        return {}

    @abstractmethod
    def parameters(self) -> Iterable[Tensor]:
        """The tensors that are optimised."""

    def schedule(
        self, optimizer: torch.optim.Optimizer
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        """The learning rate by step; None if it stays as it is."""
        return None

    @abstractmethod
    def batches(self) -> Iterator[BatchT]:
        """Draw the batches of an epoch."""

    @abstractmethod
    def terms(self, batch: BatchT) -> Terms:
        """The loss of a batch."""

    def resting(self) -> Iterable[Tensor]:
        """The tensors that do not move in the step of the last `terms`, whose turn it is not."""
        return ()

    @abstractmethod
    def validated(self, number: int, means: Means) -> EpochT:
        """Measure held-out rows after epoch `number` (0: the start), of which `means` are known.

        Raises CimError if nothing can be measured before any training, Diverged afterwards.
        """

    @abstractmethod
    def checkpoint(self, epoch: EpochT) -> dict[str, Any]:
        """The model of this moment: tensors and plain values, as the loader's layouts read them."""

    @abstractmethod
    def page(self, history: Sequence[EpochT], stopped: str | None) -> str:
        """The page of a run as one HTML document."""


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators, and leave them in the end as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True, repr=False)
class Run(Result, Generic[EpochT], shown_by="cimtool.training.page"):
    """A run that has ended: its folder, what was written there, and every epoch, start first.

    `model` is the checkpoint of the best epoch.
    """

    folder: Path
    model: Path
    files: tuple[Path, ...]
    history: tuple[EpochT, ...]

    @property
    def best(self) -> EpochT:
        """The epoch that `model` holds."""
        return best_epoch(self.history)


@dataclass(eq=False)
class Trainer(Generic[BatchT, EpochT]):
    """Trains a model into a folder: the best epoch, the last, the history and its page."""

    trainable: Trainable[BatchT, EpochT]
    optimisation: Optimisation
    place: RunPlace
    say: Say
    device: torch.device = CPU

    def __post_init__(self) -> None:
        self.optimizer = OPTIMIZERS[self.optimisation.optimizer](
            list(self.trainable.parameters()),
            lr=self.optimisation.learning_rate,
            weight_decay=self.optimisation.weight_decay,
            fused=True,  # one pass over memory a step: at small batches it is most of the time
        )
        self.schedule = self.trainable.schedule(self.optimizer)
        self.history: list[EpochT] = []
        self.stepped = False
        self.countdown, self.trained = Countdown(self.say), 0

    def run(self, saved: SavedRun[EpochT] | None = None) -> Run[EpochT]:
        """Train until the last epoch, from the start or after the last epoch of `saved`.

        Raises Diverged if the loss stops being finite, with the epochs before it kept, and
        CimError, before anything runs, if a file that it writes would replace one that it reads.
        """
        folder, best = self.place.folder, self.place.best
        for name in (best, LAST, HISTORY, PAGE, *(self.trainable.files if saved is None else ())):
            require_kept(folder / name)
        if saved is None:
            self._finish_epoch(Means())
        else:
            self._restore(saved)
            self.say(f"going on after epoch {self.history[-1].number}")
        while len(self.history) <= self.optimisation.epochs:
            began = time.perf_counter()
            try:
                self._finish_epoch(self.epoch(), began)
            except Diverged as error:
                number = best_epoch(self.history).number
                which = f"epoch {number}" if number else "the start"
                kept = f"{self.place.model} keeps {which}"
                text = f"epoch {len(self.history)}: {error}; {kept}, the best before"
                self._write_history(text)
                raise Diverged(text) from None
        # Once more: the settings may ask for other epochs than those of the run that was cut off.
        self._write_history(None)
        written = (best, LAST, *self.trainable.files, HISTORY, PAGE)
        files = tuple(folder / name for name in written if (folder / name).exists())
        return Run(folder, self.place.model, files, tuple(self.history))

    def epoch(self) -> Means:
        """Step once for each batch; raises Diverged at the first loss that is not finite."""
        count = 0
        total = 0.0
        sums: tuple[dict[str, float], dict[str, float]] = {}, {}
        for batch in self.trainable.batches():
            terms = self.trainable.terms(batch)
            loss = terms.total
            if not math.isfinite(loss.item()):
                what = f"the loss is {loss.item()}"
                if self.stepped:
                    raise Diverged(f"training diverged: {what}; try a smaller learning rate")
                raise Diverged(
                    f"{what} before the first step; expected other data, start or options"
                )
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            for tensor in self.trainable.resting():
                tensor.grad = None
            self.optimizer.step()
            self.stepped = True
            if self.schedule is not None:
                self.schedule.step()
            count += 1
            total += loss.item()
            for into, values in zip(sums, (terms.loss, terms.watched), strict=True):
                for name, value in values.items():
                    into[name] = into.get(name, 0.0) + value.item()
        means = [{name: value / count for name, value in one.items()} for one in sums]
        return Means(total / count, *means)

    def _finish_epoch(self, means: Means, began: float | None = None) -> None:
        """Validate, and write; what goes on from here comes last, so that a kill loses no more."""
        epoch = self.trainable.validated(len(self.history), means)
        self.history.append(epoch)
        said = epoch.line(self.optimisation.epochs)
        if began is None:
            self.say(PartDone(said))
        else:
            self.trained += 1
            every = self.trained + self.optimisation.epochs - epoch.number
            said += f"; {time.perf_counter() - began:.1f} s"
            self.countdown.tell(PartDone(said), self.trained, every)
        checkpoint = self.trainable.checkpoint(epoch)
        if best_epoch(self.history) is epoch:
            content = {self.place.best: checkpoint_bytes(checkpoint)}
            if not epoch.number:
                content |= self.trainable.files
            replace_files(self.place.folder, content, "the checkpoint")
        self._write_history(None)
        if not self.trainable.modules:
            return
        state: dict[str, Any] = {k: one.state_dict() for k, one in self.trainable.modules.items()}
        state |= {"optimizer": self.optimizer.state_dict(), "generator": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["device_generator"] = torch.cuda.get_rng_state(self.device)
        last = {
            "settings": dict(self.trainable.settings),
            "state": state,
            # One text: its values are more than a checkpoint of others may have.
            "history": json.dumps([epoch.to_json() for epoch in self.history]),
        }
        content = {LAST: checkpoint_bytes({**checkpoint, RESUME: last})}
        replace_files(self.place.folder, content, "the checkpoint")

    def _restore(self, saved: SavedRun[EpochT]) -> None:
        with foreign(saved.file):
            for name, module in self.trainable.modules.items():
                module.load_state_dict(saved.state[name])
            self.optimizer.load_state_dict(saved.state["optimizer"])
            torch.set_rng_state(saved.state["generator"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(saved.state["device_generator"], self.device)
        self.history += saved.history
        self.stepped = len(self.history) > 1

    def _write_history(self, stopped: str | None) -> None:
        model = self.trainable
        text = history_text(model.settings, self.history, stopped, model.facts)
        texts = {HISTORY: text, PAGE: model.page(self.history, stopped)}
        replace_texts(self.place.folder, texts, "the history")
