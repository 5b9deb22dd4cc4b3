"""Base of the losses: named hyperparameters that make an objective for a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cimtool.base.named import Named
from cimtool.reference.surrogate import Polynomial
from cimtool.training.band import Band
from cimtool.training.optimisation import Optimisation
from cimtool.training.towers import Encoded

HELD_OUTSIDE = "outside held out"
"""The watched share of held-out pairs beyond the band of the polynomial that ranks them."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The pairs of a step: rows of both modalities, float32 [n, in], row i beside row i.

    `items` [n] are the videos' numbers where some texts share a video, else None; `labels` [n] are
    the pairs' classes, 0 to classes - 1, where they are known.
    """

    text: Tensor
    video: Tensor
    items: Tensor | None = None
    labels: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same pairs on a device."""
        items = None if self.items is None else self.items.to(device)
        labels = None if self.labels is None else self.labels.to(device)
        return Batch(self.text.to(device), self.video.to(device), items, labels)


@dataclass(frozen=True)
class Task:
    """The task of an objective: widths of the rows and of `mu`, classes (0: no labels).

    `polynomial` takes raw ed and vd; it means something within `band`. Both are None where no
    polynomial is given. `weights` are the projectors' matrices and `decoder` makes rows of points
    where the model has one; both are the model's, which go on being trained.
    """

    text: int
    video: int
    dimension: int
    classes: int = 0
    polynomial: Polynomial | None = None
    band: Band | None = None
    weights: tuple[Tensor, ...] = ()
    decoder: nn.Module | None = None


@dataclass(frozen=True, eq=False)
class Terms:
    """Named terms whose sum is the loss, and named figures that are only watched (scalars)."""

    loss: Mapping[str, Tensor]
    watched: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """The loss."""
        first, *others = self.loss.values()
        return sum(others, start=first)


class Objective(nn.Module):
    """A loss made ready for a task; parameters of its own are trained beside the towers."""

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the terms of a batch's pairs, of what the towers gave for its rows."""
        raise NotImplementedError

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return the score of all pairs, [n, m], by which the deployed model ranks; higher is
        nearer."""
        raise NotImplementedError

    def watched(self, text: Encoded, video: Encoded) -> Mapping[str, Tensor]:
        """Return named figures (scalars) of all held-out pairs, watched beside their recalls."""
        return {}


@dataclass(frozen=True)
class Loss(Named):
    """Base of the losses; a subclass in `cimtool/training/losses/` is found by itself.

    A subclass is a frozen dataclass whose fields are its hyperparameters, each an int, float, bool
    or str with a default, set as `loss.<field>`; its `__post_init__` refuses values.
    """

    kind: ClassVar[str] = "loss"
    needs_labels: ClassVar[bool] = False
    needs_variance: ClassVar[bool] = False
    needs_polynomial: ClassVar[bool] = False
    optimisation: ClassVar[Optimisation] = Optimisation()
    """Epochs, batch, learning rate and weight decay where the user gives none."""

    @property
    def per_class(self) -> int:
        """Pairs that a batch has of each of its classes; 0: pairs are drawn at random."""
        return 0

    def deployed(self) -> Mapping[str, Any]:
        """Plain values that the score needs beside the weights: `a` and `b`, or another `head`."""
        return {}

    def objective(self, task: Task) -> Objective:
        """Return the objective for a task; its own parameters draw from torch's generator."""
        raise NotImplementedError
