"""Base of the losses: named hyperparameters that make an objective for a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cimtool.base.errors import CimError
from cimtool.base.named import Named
from cimtool.reference.surrogate import Polynomial
from cimtool.training.options import Optimisation, Options
from cimtool.training.towers import Encoded

HELD_OUTSIDE = "outside held out"
"""The watched share of held-out pairs beyond the band of the polynomial that ranks them."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The pairs of a step: rows of both modalities, float32 [n, in], row i beside row i.

    `items` [n] are the videos' numbers if some texts share a video, else None; `labels` are the
    pairs' classes if they are known: [n], 0 to classes - 1, or [n, classes], true for each class
    that a pair has. `compared` [B, 2] or [B, 3] are the rows of pairs or triplets of these items
    if they are given, and `match` [B] is true for pairs that belong together.
    """

    text: Tensor
    video: Tensor
    items: Tensor | None = None
    labels: Tensor | None = None
    compared: Tensor | None = None
    match: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same pairs on a device."""
        rest = (self.items, self.labels, self.compared, self.match)
        moved = (None if one is None else one.to(device) for one in rest)
        return Batch(self.text.to(device), self.video.to(device), *moved)


def alike(labels: Tensor) -> Tensor:
    """Tell which of all pairs of items have a class in common, [n, n], by labels [n] or [n, C]."""
    if labels.ndim == 1:
        return labels[:, None] == labels[None, :]
    having = labels.float()
    return having @ having.T > 0


@dataclass(frozen=True)
class Task:
    """The task of an objective: width of `mu`, number of classes (0: no labels).

    With `compared` it is given pairs or triplets.

    `polynomial` takes raw ed and vd, and its domain has a band; None if no polynomial is given.
    `weights` are the projectors' matrices, `decoder` makes rows of points if the model has one;
    both are the model's, which go on being trained.
    """

    dimension: int
    classes: int = 0
    polynomial: Polynomial | None = None
    weights: tuple[Tensor, ...] = ()
    decoder: nn.Module | None = None
    compared: bool = False


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

    options: Any

    def __init__(self, options: Loss, task: Task) -> None:
        super().__init__()
        self.options, self.task = options, task

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the terms of a batch's pairs, of what the towers gave for its rows."""
        raise NotImplementedError

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return the score of all pairs, [n, m], by which the deployed model ranks; higher is
        nearer."""
        raise NotImplementedError

    def resting(self, towers: nn.Module) -> Iterable[Tensor]:
        """The tensors, of the towers and its own, that do not move in the step of the last batch.

        None of them if all are trained at once.
        """
        return ()

    def watched(self, text: Encoded, video: Encoded) -> Mapping[str, Tensor]:
        """Return named figures (scalars) of all held-out pairs, watched beside their recalls."""
        return {}


class Loss(Options, Named):
    """Base of the losses; a subclass in `cimtool/training/losses/` is found by itself.

    Its fields are its hyperparameters, each with a default, set as `loss.<field>`; `module` is the
    objective that it makes.
    """

    kind: ClassVar[str] = "loss"
    module: ClassVar[type[Objective]]
    needs_labels: ClassVar[bool] = False
    compares: ClassVar[str] = ""
    """The kind of comparisons that it takes in place of labels: pairs or triplets."""
    needs_variance: ClassVar[bool] = False
    needs_polynomial: ClassVar[bool] = False
    optimisation: ClassVar[Optimisation] = Optimisation()
    """Epochs, batch, learning rate and weight decay if the user gives none."""
    head: ClassVar[str | None] = None
    """The head that ranks as the loss does; None for that of the model."""

    @property
    def group(self) -> int:
        """Pairs that a batch has of each of its classes; 0: pairs are drawn at random."""
        return int(getattr(self, "per_class", 0))

    def deployed(self) -> Mapping[str, Any]:
        """Plain values beside the weights: `a` and `b` of its own sigmoid, or another `head`."""
        return {} if self.head is None else {"head": self.head}

    def question(self, scores: Tensor, videos: Tensor) -> Tensor | None:
        """The loss of a text among the videos of a batch, by scores [n, n], right on the diagonal.

        `videos` [n] are their numbers: those of one number are not wrong ones of each other's
        texts. A mean over texts, one way, without a regulariser; None for a loss of another kind.
        """
        return None

    def limit(self, rivals: float, gap: float) -> float | None:
        """The question's limit for many `rivals`, all of the mean wrong score.

        `gap` is that score less the right one. None for a loss without such a limit.
        """
        return None

    def objective(self, task: Task) -> Objective:
        """Return the objective for a task; its own parameters draw from torch's generator.

        Raises CimError if labels are needed, and the task has fewer than two classes.
        """
        if self.needs_labels and task.classes < 2 and not task.compared:
            raise CimError(
                f'loss "{self.name}" tells classes apart, and the labels hold {task.classes}; '
                "expected at least 2"
            )
        return self.module(self, task)
