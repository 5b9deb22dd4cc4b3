"""Points of a latent space: drawn from Gaussians, decoded, and drawn together by labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Objective, Task, Terms
from cimtool.training.pairwise import all_pairs_ed
from cimtool.training.towers import Encoded


@dataclass(frozen=True)
class Prices:
    """Weights of the terms beside the constraints."""

    reconstruction: float
    kl: float


def drawn(given: Encoded) -> Tensor:
    """Return a point of each Gaussian, `mu + exp(logvar / 2) noise` [n, d]; points as they are.

    The noise is drawn from torch's generator (Kingma and Welling 2014, arXiv 1312.6114).
    """
    if given.logvar is None:
        return given.mu
    return given.mu + (given.logvar / 2).exp() * torch.randn_like(given.mu)


def kl_to_standard(mu: Tensor, logvar: Tensor) -> Tensor:
    """Return the KL divergence from N(mu, exp(logvar)) [n, d] to N(0, 1), a mean over the rows."""
    return (mu.square() + logvar.exp() - logvar - 1.0).sum(1).mean() / 2


def squared_error(found: Tensor, rows: Tensor) -> Tensor:
    """Return half the squared distance of rows [n, in], a mean over the rows.

    It is the negative log-likelihood of a Gaussian of variance 1, less a constant.
    """
    return (found - rows).square().sum(1).mean() / 2


def distances(points: Tensor) -> Tensor:
    """Return the distance of all pairs of points [n, d], `[n, n]`; its gradient at 0 is 0."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


class Constraints(Objective):
    """An objective on the distances of all items of a batch, and on what a decoder makes of them.

    Items are the rows of both modalities, or those of one where one encoder serves both. A Gaussian
    takes part by a point that is drawn from it. A subclass says what its constraints are.
    """

    def __init__(self, task: Task, prices: Prices) -> None:
        super().__init__()
        if task.classes < 2:
            raise CimError(
                f"constraints part items of different classes, and the labels hold {task.classes}; "
                "expected at least 2"
            )
        self.task = task
        self.prices = prices

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        """Return the terms of distances [n, n] of items with labels [n]."""
        raise NotImplementedError

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the constraints' terms, the reconstruction's and the KL's."""
        if batch.labels is None:
            raise CimError("constraints between items need labels; the pairs have none")
        sides = [text] if video is text else [text, video]
        points = torch.cat([drawn(side) for side in sides])
        terms = self.constrained(distances(points), batch.labels.repeat(len(sides)))
        others = {}
        if self.task.decoder is not None:
            rows = self.task.decoder(points)
            others["reconstruction"] = self.prices.reconstruction * squared_error(rows, batch.text)
        if text.logvar is not None:
            kl = sum((kl_to_standard(*side.gaussian) for side in sides), start=torch.zeros(()))
            others["kl"] = self.prices.kl * kl / len(sides)
        return Terms({**terms.loss, **others}, terms.watched)

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return minus the expected squared distance of all pairs, [n, m]: -ed, or of points."""
        return -all_pairs_ed(*text.moments, *video.moments)


def same_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of all pairs [n, n] are two items of one class, and which of two classes."""
    same = labels[:, None] == labels[None, :]
    return same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device), ~same
