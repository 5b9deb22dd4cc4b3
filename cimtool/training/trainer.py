"""The training loop: epochs of AdamW, validation, the best epoch, and a folder to go on from."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cimtool.base.errors import CheckFailed
from cimtool.base.files import replace_files
from cimtool.base.progress import Say
from cimtool.training.history import EpochT, Means, best_epoch, history_text
from cimtool.training.loss import Terms
from cimtool.training.optimisation import Optimisation
from cimtool.training.saved import (
    BEST,
    HISTORY,
    LAST,
    PAGE,
    RESUME,
    Saved,
    checkpoint_bytes,
    foreign,
)

BatchT = TypeVar("BatchT")

CPU = torch.device("cpu")


class Diverged(CheckFailed):
    """The loss, or what the model gives, is no longer finite."""


class Trainable(ABC, Generic[BatchT, EpochT]):
    """A model in training with its data and its objective; `settings` are plain values.

    A run can be gone on with where `state` returns one.
    """

    settings: Mapping[str, Any]

    @abstractmethod
    def parameters(self) -> Iterable[Tensor]:
        """The tensors that are optimised."""

    def schedule(
        self, optimizer: torch.optim.Optimizer
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        """The learning rate by step; None where it stays as it is."""
        return None

    @abstractmethod
    def batches(self) -> Iterator[BatchT]:
        """Draw the batches of an epoch."""

    @abstractmethod
    def terms(self, batch: BatchT) -> Terms:
        """The loss of a batch."""

    @abstractmethod
    def validated(self, number: int, means: Means | None) -> EpochT:
        """Measure held-out rows after epoch `number`, of which `means` are known (0: None).

        Raises CimError where nothing can be measured before any training, Diverged afterwards.
        """

    @abstractmethod
    def checkpoint(self, epoch: EpochT) -> dict[str, Any]:
        """The model of this moment: tensors and plain values, as the loader's layouts read them."""

    @abstractmethod
    def page(self, history: Sequence[EpochT], stopped: str | None) -> str:
        """The page of a run as one HTML document."""

    def state(self) -> dict[str, Any] | None:
        """All that changes in training but optimizer and torch's generators, for `restore`."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        raise NotImplementedError


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators, and leave them in the end as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Run(Generic[EpochT]):
    """A run that has ended: its folder, what was written there, and every epoch, start first."""

    folder: Path
    files: tuple[Path, ...]
    history: tuple[EpochT, ...]

    @property
    def best(self) -> EpochT:
        """The epoch that `model.pth` holds."""
        return best_epoch(self.history)


class Trainer(Generic[BatchT, EpochT]):
    """Trains a model into a folder: the best epoch, the last, the history and its page."""

    def __init__(
        self,
        trainable: Trainable[BatchT, EpochT],
        optimisation: Optimisation,
        folder: Path,
        say: Say,
        device: torch.device = CPU,
    ) -> None:
        self.trainable = trainable
        self.epochs = optimisation.epochs
        self.folder = folder
        self.say = say
        self.device = device
        self.optimizer = torch.optim.AdamW(
            list(trainable.parameters()),
            lr=optimisation.learning_rate,
            weight_decay=optimisation.weight_decay,
        )
        self.schedule = trainable.schedule(self.optimizer)
        self.history: list[EpochT] = []

    def run(self, saved: Saved[EpochT] | None = None) -> Run[EpochT]:
        """Train until the last epoch, from the start or after the last epoch of `saved`.

        Raises Diverged where the loss stops being finite, with the epochs before it kept.
        """
        if saved is None:
            self._finish_epoch(None, self.say)
        else:
            self._restore(saved)
            self.say(f"going on after epoch {self.history[-1].number}")
        while len(self.history) <= self.epochs:
            try:
                self._train_epoch()
            except Diverged as error:
                raise self._stopped(error) from None
        # Once more, for the settings may ask for other epochs than those of the run that was cut
        # off.
        self._write_history(None)
        names = [name for name in (BEST, LAST, HISTORY, PAGE) if (self.folder / name).exists()]
        return Run(self.folder, tuple(self.folder / name for name in names), tuple(self.history))

    def epoch(self) -> Means:
        """Step once for each batch; raises Diverged at the first loss that is not finite."""
        count = 0
        total = 0.0
        sums: tuple[dict[str, float], dict[str, float]] = {}, {}
        for batch in self.trainable.batches():
            terms = self.trainable.terms(batch)
            loss = terms.total
            if not math.isfinite(loss.item()):
                raise self._diverged(f"the loss is {loss.item()}")
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
            count += 1
            total += loss.item()
            for into, values in zip(sums, (terms.loss, terms.watched), strict=True):
                for name, value in values.items():
                    into[name] = into.get(name, 0.0) + value.item()
        means = [{name: value / count for name, value in one.items()} for one in sums]
        return Means(total / count, *means)

    def _diverged(self, what: str) -> Diverged:
        if not self.optimizer.state:  # nothing is known of a parameter before the first step
            return Diverged(f"{what} before the first step; expected other data, start or options")
        return Diverged(f"training diverged: {what}; try a smaller learning rate")

    def _train_epoch(self) -> None:
        began = time.perf_counter()
        means = self.epoch()

        def timed(line: str) -> None:
            self.say(f"{line}; {time.perf_counter() - began:.1f} s")

        self._finish_epoch(means, timed)

    def _finish_epoch(self, means: Means | None, say: Say) -> None:
        """Validate, and write; what goes on from here comes last, so that a kill loses no more."""
        epoch = self.trainable.validated(len(self.history), means)
        self.history.append(epoch)
        say(epoch.line(self.epochs))
        checkpoint = self.trainable.checkpoint(epoch)
        if best_epoch(self.history) is epoch:
            replace_files(self.folder, {BEST: checkpoint_bytes(checkpoint)}, "the checkpoint")
        self._write_history(None)
        state = self._state()
        if state is not None:
            last = {
                "settings": dict(self.trainable.settings),
                "state": state,
                "history": [epoch.to_json() for epoch in self.history],
            }
            content = {LAST: checkpoint_bytes({**checkpoint, RESUME: last})}
            replace_files(self.folder, content, "the checkpoint")

    def _state(self) -> dict[str, Any] | None:
        own = self.trainable.state()
        if own is None:
            return None
        found = {
            **own, "optimizer": self.optimizer.state_dict(), "generator": torch.get_rng_state()
        }  # fmt: skip
        if self.device.type == "cuda":
            found["device_generator"] = torch.cuda.get_rng_state(self.device)
        return found

    def _restore(self, saved: Saved[EpochT]) -> None:
        with foreign(saved.file):
            self.trainable.restore(saved.state)
            self.optimizer.load_state_dict(saved.state["optimizer"])
            torch.set_rng_state(saved.state["generator"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(saved.state["device_generator"], self.device)
        self.history += saved.history

    def _write_history(self, stopped: str | None) -> None:
        texts = {
            HISTORY: history_text(self.trainable.settings, self.history, stopped),
            PAGE: self.trainable.page(self.history, stopped),
        }
        files = {name: text.encode() for name, text in texts.items()}
        replace_files(self.folder, files, "the history")

    def _stopped(self, error: Diverged) -> Diverged:
        best = best_epoch(self.history).number
        kept = f"{self.folder / BEST} keeps {f'epoch {best}' if best else 'the start'}"
        text = f"epoch {len(self.history)}: {error}; {kept}, the best before"
        self._write_history(text)
        return Diverged(text)
