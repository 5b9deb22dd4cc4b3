"""Base of the losses: named hyperparameters that make an objective for a task.

An objective on a polynomial learns from logits that are safe, and ranks by the deployed ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import Named
from cimtool.ir.surrogate import Polynomial
from cimtool.training.options import Optimisation, Options
from cimtool.training.towers import Encoded, all_pairs_ed, all_pairs_vd

HELD_OUTSIDE = "outside held out"
"""The watched share of held-out pairs beyond the band of the polynomial that ranks them."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The pairs of a step: rows of both modalities, float32 [n, in], row i beside row i.

    `items` [n] are the videos' numbers if some texts share a video, else None; `labels` are the
    pairs' classes if they are known: [n], 0 to classes - 1, or [n, classes], true for each class
    that a pair has. `compared` [B, 2] or [B, 3] are the rows of pairs or triplets of these items
    if they are given, and `match` [B] is true for pairs that belong together. `right` [n, n] is
    true for the right pairs, those of one row among them, if a text may have several.
    """

    text: Tensor
    video: Tensor
    items: Tensor | None = None
    labels: Tensor | None = None
    compared: Tensor | None = None
    match: Tensor | None = None
    right: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same pairs on a device."""
        rest = (self.items, self.labels, self.compared, self.match, self.right)
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


class SafePolynomial(nn.Module):
    """A polynomial within its band, and beyond it straight on: its slopes never turn round.

    With `e` the nearest ed and `r` the nearest distance of vd from the line within the band, the
    value is `f(e, r)` plus constant slopes times what is beyond: along the line the polynomial's
    own at that end (or, if that is not negative, its mean over the line), and across the line
    that in the band's middle, at least 0. Raises CimError for a polynomial that predicts p, or
    does not fall along its line. The band is that of the polynomial's domain.
    """

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__()
        if not polynomial.fit_logit:
            raise CimError("the polynomial predicts p (fit_logit is false); expected one of logits")
        domain = polynomial.domain
        assert domain is not None
        assert domain.vd_line is not None
        assert domain.vd_beside_line is not None
        self.ed, self.line, self.beside = domain.ed, domain.vd_line, domain.vd_beside_line
        self.middles = of_ed, of_vd = [
            ((low + high) / 2, (high - low) / 2 or 1.0) for low, high in (self.ed, self.beside)
        ]
        matrix = polynomial.shifted(*of_ed, *of_vd, self.line)
        self.matrix = [[float(c) for c in row] for row in matrix]
        self.slopes = self._slopes()

    def forward(self, ed: Tensor, vd: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, of ed's kind of float, and which pairs are beyond the band."""
        dtype, ed, vd = ed.dtype, ed.double(), vd.double()
        beside = vd - self._line(ed)
        e, r = ed.clamp(*self.ed), beside.clamp(*self.beside)
        below, above, across = self.slopes
        value = self._inside(e, r)
        value = value + below * (ed - e).clamp(max=0) + above * (ed - e).clamp(min=0)
        value = value + across * (beside - r)
        return value.to(dtype), (e != ed) | (r != beside)

    def raw(self, ed: Tensor, vd: Tensor) -> Tensor:
        """Return the polynomial as it is deployed, in float64, beyond the band as within it."""
        ed, vd = ed.double(), vd.double()
        return self._inside(ed, vd - self._line(ed))

    def _line(self, ed: Tensor) -> Tensor:
        """vd on the band's line."""
        start, slope = self.line
        return start + slope * ed

    def _inside(self, ed: Tensor, beside: Tensor) -> Tensor:
        """Horner, in float64 and in variables in [-1, 1], for the terms cancel."""
        u, v = (
            (x - centre) / half
            for x, (centre, half) in zip((ed, beside), self.middles, strict=True)
        )
        total = torch.zeros_like(u)
        for i, row in reversed(list(enumerate(self.matrix))):
            inner = torch.zeros_like(v)
            for c in reversed(row[: len(self.matrix) - i]):
                inner = inner * v + c
            total = total * u + inner
        return total

    def _slopes(self) -> tuple[float, float, float]:
        """Slopes along the line below and above the band, and across it."""
        (low, high), mid = self.ed, sum(self.beside) / 2
        ed = torch.tensor([low, high, (low + high) / 2], dtype=torch.float64, requires_grad=True)
        beside = torch.full_like(ed, mid, requires_grad=True)
        with torch.enable_grad():
            value = self._inside(ed, beside)
            along, across = torch.autograd.grad(value.sum(), (ed, beside))
        mean = float((value[1] - value[0]).detach()) / (high - low or 1.0)
        if not mean < 0 or not math.isfinite(mean):
            raise CimError(
                f"the polynomial changes by {mean:g} per unit of ed over its domain; expected one "
                "that falls"
            )
        below, above = (float(a) if a < 0 else mean for a in along[:2])
        return below, above, max(float(across[2]), 0.0)


class PolynomialObjective(Objective):
    """An objective of a task with a polynomial; ArgumentError if the task has none."""

    def __init__(self, options: Loss, task: Task) -> None:
        super().__init__(options, task)
        if task.polynomial is None:
            raise ArgumentError('loss "{}" needs a polynomial; expected {poly} FILE', options.name)
        self.polynomial = SafePolynomial(task.polynomial)

    def safe_logits(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        """Return logits [n, m] that keep falling beyond the band, and which pairs are there."""
        logits, outside = self.polynomial(*_statistics(text, video))
        return logits, outside

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return logits [n, m] that beyond the band do what the powers of the polynomial do."""
        return self.polynomial.raw(*_statistics(text, video))

    def watched(self, text: Encoded, video: Encoded) -> Mapping[str, Tensor]:
        """Return the share of pairs beyond the band."""
        return {HELD_OUTSIDE: self.safe_logits(text, video)[1].double().mean()}


def _statistics(text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
    """ed and vd of all pairs, both [n, m]."""
    pairs = *text.moments, *video.moments
    return all_pairs_ed(*pairs), all_pairs_vd(*pairs)
