"""Losses `siamese`, `triplet` and `reconstruction`: constraints on items, and none.

Items of one class are drawn together, those of others held apart, by the distances d of all points
of a batch. The points are drawn from Gaussians, and decoded.

    siamese: mean over pairs of   balance z d^2 + (1 - balance) (1 - z) max(0, margin - d)
    triplet: mean over triplets that count of   max(0, margin + d(a, p) - d(a, n))

z is 1 for two items of one class; Hadsell, Chopra and LeCun (2006) square the hinge. a and p are
items of one class, n is of another. Triplets that keep the margin do not count (arXiv 1703.07737);
semi-hard ones have d(a, p) < d(a, n) (1503.03832). Without a constraint a plain autoencoder is
left, the baseline of both:

    reconstruction: mean over items of   |decoded - row|^2 / 2 + kl KL(N(mu, s) || N(0, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Loss, Objective, Task, Terms, alike
from cimtool.training.options import (
    Count,
    Flag,
    NotNegative,
    Optimisation,
    Positive,
    Share,
    Text,
    choice,
)
from cimtool.training.towers import Encoded, all_pairs_ed


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


def squared_error(decoded: Tensor, rows: Tensor) -> Tensor:
    """Return half the squared distance of rows [n, in], a mean over the rows.

    It is the negative log-likelihood of a Gaussian of variance 1, less a constant.
    """
    return (decoded - rows).square().sum(1).mean() / 2


def distances(points: Tensor, others: Tensor | None = None) -> Tensor:
    """Return the distance of all pairs of points [n, d], `[n, n]`; its gradient at 0 is 0.

    Of points with `others` [m, d] if these are given, `[n, m]`.
    """
    others = points if others is None else others
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")


def same_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of all pairs [n, n] are two items of one class, and which of two classes.

    Of items with several classes, by labels [n, C], those with one in common are of one class.
    """
    same, itself = alike(labels), torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return same & ~itself, ~same & ~itself


class Decoded(Objective):
    """An objective on what a decoder makes of items, and on their distances.

    Items are the rows of both modalities, or those of one if one encoder serves both. A Gaussian
    takes part by a point that is drawn from it.
    """

    options: Siamese | Triplet | Reconstruction

    def constraint(self, sides: Sequence[Tensor], points: Tensor, batch: Batch) -> Terms:
        """Return the terms of points [n, d] of each side, and of all of them."""
        raise NotImplementedError

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the constraint's terms, the reconstruction's and the KL's."""
        sides = [text] if video is text else [text, video]
        parts = [drawn(side) for side in sides]
        points = torch.cat(parts)
        terms = self.constraint(parts, points, batch)
        others = {}
        if self.task.decoder is not None:
            error = squared_error(self.task.decoder(points), batch.text)
            others["reconstruction"] = self.options.reconstruction * error
        if text.logvar is not None:
            kl = sum((kl_to_standard(*side.gaussian) for side in sides), start=torch.zeros(()))
            others["kl"] = self.options.kl * kl / len(sides)
        return Terms({**terms.loss, **others}, terms.watched)

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return minus the expected squared distance of all pairs, [n, m]: -ed, or of points."""
        return -all_pairs_ed(*text.moments, *video.moments)


class Constraints(Decoded):
    """A constraint on the items of a batch by their labels, or on given pairs or triplets."""

    options: Siamese | Triplet

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        """Return the terms of distances [n, n] of items with labels [n] or [n, C]."""
        raise NotImplementedError

    def given(self, distances: Tensor, compared: Tensor, match: Tensor | None) -> Terms:
        """Return the terms of given pairs [B, 2] with `match` [B], or triplets [B, 3]."""
        raise NotImplementedError

    def constraint(self, sides: Sequence[Tensor], points: Tensor, batch: Batch) -> Terms:
        """Given pairs and triplets are of the first side's items with the last one's."""
        if batch.compared is not None:
            return self.given(distances(sides[0], sides[-1]), batch.compared, batch.match)
        if batch.labels is None:
            raise CimError("constraints between items need labels; the pairs have none")
        return self.constrained(distances(points), torch.cat([batch.labels] * len(sides)))


class _DecodedLoss(Loss):
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=30, batch=100, learning_rate=1e-3, weight_decay=1e-4
    )


class _ConstraintLoss(_DecodedLoss):
    needs_labels: ClassVar[bool] = True


class _SiameseObjective(Constraints):
    options: Siamese

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        options = self.options
        same, other = same_class(labels)
        lacking = functional.relu(options.margin - distances)
        apart = lacking.square() if options.squared_hinge else lacking
        together = options.balance * distances.square()[same].sum()
        parted = (1 - options.balance) * apart[other].sum()
        near = (lacking[other] > 0).float().sum() / other.sum().clamp(min=1)
        pairs = len(labels) * (len(labels) - 1)
        return Terms({"siamese": (together + parted) / pairs}, {"wrong within margin": near})

    def given(self, distances: Tensor, compared: Tensor, match: Tensor | None) -> Terms:
        options = self.options
        assert match is not None
        found = distances[compared[:, 0], compared[:, 1]]
        lacking = functional.relu(options.margin - found)
        apart = lacking.square() if options.squared_hinge else lacking
        each = torch.where(match, options.balance * found.square(), (1 - options.balance) * apart)
        near = (lacking[~match] > 0).float().sum() / (~match).sum().clamp(min=1)
        return Terms({"siamese": each.mean()}, {"wrong within margin": near})


class Siamese(_ConstraintLoss, name="siamese"):
    """Pairs of two classes are held `margin` apart; `squared_hinge` squares what they lack.

    `balance`, between 0 and 1, is the weight of pairs of one class. `reconstruction` is that of the
    decoder's error and `kl` that of the Gaussians' divergence, if a model has them. A batch is
    made of `per_class` items of each class in turn.
    """

    module: ClassVar[type[Objective]] = _SiameseObjective
    compares: ClassVar[str] = "pairs"

    margin: Positive = 4.0
    balance: Share = 0.5
    squared_hinge: Flag = False
    reconstruction: NotNegative = 0.1
    kl: NotNegative = 0.001
    per_class: Count = 10


class _TripletObjective(Constraints):
    options: Triplet

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        same, other = same_class(labels)
        semi_hard = self.options.mining == "semi-hard"
        total, count = triplet_sum(distances, same, other, self.options.margin, semi_hard)
        triplets = (same.sum(1) * other.sum(1)).sum().clamp(min=1)
        return Terms({"triplet": total / count.clamp(min=1)}, {"triplets": count / triplets})

    def given(self, distances: Tensor, compared: Tensor, match: Tensor | None) -> Terms:
        near, far = (distances[compared[:, 0], compared[:, i]] for i in (1, 2))
        hinges = functional.relu(self.options.margin + near - far)
        if self.options.mining == "semi-hard":
            hinges = torch.where(far > near, hinges, torch.zeros_like(hinges))
        count = (hinges > 0).sum()
        total = hinges.sum() / count.clamp(min=1)
        return Terms({"triplet": total}, {"triplets": count / len(compared)})


def triplet_sum(
    distances: Tensor, same: Tensor, other: Tensor, margin: float, semi_hard: bool
) -> tuple[Tensor, Tensor]:
    """Return the sum of all hinges above 0, and how many they are, by distances and masks [n, n].

    With `semi_hard` only if d(a, n) > d(a, p). Each row's wrong distances are sorted once: a
    right pair then needs to know how many of them lie below its threshold, and what they sum to,
    so that nothing grows with n^3.
    """
    wrong = distances.masked_fill(~other, torch.inf).sort(dim=1).values
    sums = functional.pad(wrong.masked_fill(wrong.isinf(), 0.0).cumsum(1), (1, 0))
    threshold = distances + margin
    end = torch.searchsorted(wrong.detach(), threshold.detach())
    count, within = end, sums.gather(1, end)
    if semi_hard:
        start = torch.searchsorted(wrong.detach(), distances.detach().contiguous(), right=True)
        count, within = end - start, within - sums.gather(1, start)
    hinges = count * threshold - within
    return hinges[same].sum(), count[same].sum()


class Triplet(_ConstraintLoss, name="triplet"):
    """An item of another class is to lie `margin` further off than one of the same.

    `mining` says which triplets of a batch count: all, or the semi-hard ones. `reconstruction` is
    the weight of the decoder's error and `kl` that of the Gaussians' divergence, if a model has
    them. A batch is made of `per_class` items of each class in turn.
    """

    module: ClassVar[type[Objective]] = _TripletObjective
    compares: ClassVar[str] = "triplets"

    margin: Positive = 1.0
    mining: Annotated[Text, choice(("all", "semi-hard"))] = "all"
    reconstruction: NotNegative = 0.1
    kl: NotNegative = 0.001
    per_class: Count = 10


class _ReconstructionObjective(Decoded):
    def __init__(self, options: Reconstruction, task: Task) -> None:
        super().__init__(options, task)
        if task.decoder is None:
            raise CimError(
                'loss "reconstruction" needs a decoder, and the model has none; expected model '
                "autoencoder or variational-autoencoder"
            )

    def constraint(self, sides: Sequence[Tensor], points: Tensor, batch: Batch) -> Terms:
        return Terms({})


class Reconstruction(_DecodedLoss, name="reconstruction"):
    """Half the squared error of the decoder, and `kl` times the divergence of the Gaussians.

    Labels only choose the epoch. Beside the reconstruction `kl` weighs what it does in the losses
    with constraints.
    """

    module: ClassVar[type[Objective]] = _ReconstructionObjective
    reconstruction: ClassVar[float] = 1.0

    kl: NotNegative = 0.01
