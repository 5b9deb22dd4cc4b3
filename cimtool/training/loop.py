"""Training of two projectors: AdamW on symmetric InfoNCE over each batch's pairs."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cimtool.base.arrays import Array
from cimtool.reference.statistics import Gaussians
from cimtool.training.loss import Task
from cimtool.training.losses.info_nce import InfoNce
from cimtool.training.models.trunk import Trunk
from cimtool.training.optimisation import Optimisation
from cimtool.training.pairs import Pairs, check_batches
from cimtool.training.towers import TwoTower
from cimtool.training.trainer import Trainer


@dataclass(frozen=True)
class TrainSettings:
    """How projectors are trained; `a` is the sigmoid's slope in `-a ed`."""

    epochs: int
    batch: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    temperature: float = 0.7
    a: float = 0.1
    hidden: int = 2048
    width: int = 1024
    seed: int = 0

    @property
    def optimisation(self) -> Optimisation:
        """The optimizer's part."""
        return Optimisation(self.epochs, self.batch, self.learning_rate, self.weight_decay)


def train(
    text: Array, video: Array, settings: TrainSettings, progress: Callable[[str], None]
) -> TwoTower:
    """Train two `Trunk` projectors on aligned rows `text`, `video`, float32 `[n, in]`.

    They come back in eval mode. The same rows, settings and number of threads give the same
    weights; the caller's random state is left as it was. `progress` is told of each epoch in one
    line. Raises CimError if there are fewer rows than a batch or the loss diverges.
    """

    def towers() -> TwoTower:
        widths = text.shape[1], video.shape[1]
        return TwoTower(*(Trunk(width, settings.hidden, settings.width) for width in widths))

    return train_towers(towers, text, video, settings, progress)


def train_towers(
    make: Callable[[], TwoTower],
    text: Array,
    video: Array,
    settings: TrainSettings,
    progress: Callable[[str], None],
) -> TwoTower:
    """Train the projectors of any layout that `make` initialises, as `train` does.

    Of the settings, `hidden` and `width` are not looked at.
    """
    pairs = Pairs.aligned(text, video)
    check_batches(pairs, settings.batch, 0)
    loss = InfoNce(a=settings.a, tau=settings.temperature)
    task = Task(text.shape[1], video.shape[1], settings.width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        trainer = Trainer.start(make(), loss.objective(task), settings.optimisation)
        for epoch in range(settings.epochs):
            start = time.perf_counter()
            found = trainer.epoch(pairs, settings.batch)
            took = time.perf_counter() - start
            progress(f"epoch {epoch + 1} of {settings.epochs}: loss {found.loss:.3f}, {took:.1f} s")
    return trainer.towers.eval()


def encode(towers: TwoTower, text: Array, video: Array) -> tuple[Gaussians, Gaussians]:
    """Return the Gaussians of the rows of `text` and `video`, computed in eval mode."""
    towers.eval()
    with torch.no_grad():
        items = towers(torch.from_numpy(text), torch.from_numpy(video))
    of_text, of_video = (_gaussians(*one.gaussian) for one in items)
    return of_text, of_video


def _gaussians(mu: Tensor, logvar: Tensor) -> Gaussians:
    return Gaussians(mu.double().numpy(), logvar.double().exp().numpy())


def save_projectors(towers: TwoTower, path: Path) -> None:
    """Write the flat state dict of layout `trunk`, which loads with `weights_only=True`."""
    # Through memory: torch's own writer turns a full disk into a RuntimeError.
    buffer = io.BytesIO()
    torch.save(towers.state_dict(), buffer)
    path.write_bytes(buffer.getbuffer())
