"""Training of two projectors: AdamW on symmetric InfoNCE over each batch's pairs."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cimtool.arrays import Array
from cimtool.errors import CimError
from cimtool.reference.statistics import Gaussians
from cimtool.training.losses import all_pairs_ed, info_nce, variance_regulariser
from cimtool.training.models import Trunk, TwoTower


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
    if len(text) < settings.batch:
        raise CimError(
            f"training needs at least one batch of {settings.batch} rows, but there are {len(text)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        towers = make()
        optimizer = torch.optim.AdamW(
            towers.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        rows = torch.from_numpy(text), torch.from_numpy(video)
        for epoch in range(settings.epochs):
            start = time.perf_counter()
            loss = _epoch(towers, optimizer, rows, settings)
            took = time.perf_counter() - start
            progress(f"epoch {epoch + 1} of {settings.epochs}: loss {loss:.3f}, {took:.1f} s")
    return towers.eval()


def _epoch(
    towers: TwoTower,
    optimizer: torch.optim.Optimizer,
    rows: tuple[Tensor, Tensor],
    settings: TrainSettings,
) -> float:
    """Go once over the rows in random order and return the mean loss."""
    text, video = rows
    order = torch.randperm(len(text))
    # A last, short batch is left out: BatchNorm's statistics and the loss depend on the size.
    starts = range(0, len(text) - settings.batch + 1, settings.batch)
    total = 0.0
    for start in starts:
        batch = order[start : start + settings.batch]
        loss = _loss(towers, text[batch], video[batch], settings)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.item()
    mean = total / len(starts)
    if not math.isfinite(mean):
        raise CimError(f"training diverged: the loss is {mean}; try a smaller learning rate")
    return mean


def _loss(towers: TwoTower, text: Tensor, video: Tensor, settings: TrainSettings) -> Tensor:
    mu_t, logvar_t, mu_v, logvar_v = towers(text, video)
    logits = -settings.a * all_pairs_ed(mu_t, logvar_t.exp(), mu_v, logvar_v.exp())
    return info_nce(logits, settings.temperature) + variance_regulariser(
        mu_t, logvar_t, mu_v, logvar_v
    )


def encode(towers: TwoTower, text: Array, video: Array) -> tuple[Gaussians, Gaussians]:
    """Return the Gaussians of the rows of `text` and `video`, computed in eval mode."""
    towers.eval()
    with torch.no_grad():
        mu_t, logvar_t, mu_v, logvar_v = towers(torch.from_numpy(text), torch.from_numpy(video))
    return _gaussians(mu_t, logvar_t), _gaussians(mu_v, logvar_v)


def _gaussians(mu: Tensor, logvar: Tensor) -> Gaussians:
    return Gaussians(mu.double().numpy(), logvar.double().exp().numpy())


def save_projectors(towers: TwoTower, path: Path) -> None:
    """Write the flat state dict of layout `trunk`, which loads with `weights_only=True`."""
    # Through memory: torch's own writer turns a full disk into a RuntimeError.
    buffer = io.BytesIO()
    torch.save(towers.state_dict(), buffer)
    path.write_bytes(buffer.getbuffer())
