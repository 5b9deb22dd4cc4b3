"""Loss `acmr`: adversarial cross-modal retrieval, on points with labels.

    L_emb = alpha L_imi + beta L_imd + regularisation L_reg        minimised, less L_adv

L_imi draws items of one class together across modalities and parts those of others, L_imd is the
cross entropy of a label classifier (if items have several classes, a sum over yes or no for
each), L_reg the Frobenius norms of the weights. A modality classifier minimises L_adv;
through a reversed gradient the projectors maximise it, at once or in turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Loss, Objective, Task, Terms, alike
from cimtool.training.options import Count, CountOrNone, NotNegative, Optimisation, Positive
from cimtool.training.towers import Encoded, all_pairs_ed

TINY = 1e-12
"""The least squared distance whose root is taken: at 0 the root has no gradient."""


class _AcmrObjective(Objective):
    options: Acmr
    steps: Tensor

    def __init__(self, options: Acmr, task: Task) -> None:
        super().__init__(options, task)
        self.label = nn.Linear(task.dimension, task.classes)
        self.modality = nn.Sequential(
            nn.Linear(task.dimension, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 1)
        )
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        options, labels = self.options, batch.labels
        if labels is None:
            raise CimError('loss "acmr" needs labels; the pairs have none')
        points = torch.cat([text.mu, video.mu])
        classes, known = self.label(points), torch.cat([labels, labels])
        progress = min(1.0, self.steps.item() / options.ramp)
        strength = options.reversal * rising_strength(progress)
        modalities = self.modality(reverse_gradient(points, strength)).squeeze(1)
        is_video = torch.arange(len(points), device=points.device) >= len(text.mu)
        drawn = invariance(text.mu, video.mu, labels, options.margin, options.wrong)
        # Means over both modalities; L_imd and L_adv are sums of a mean each.
        told = 2.0 * classification(classes, known)
        told_apart = 2.0 * functional.binary_cross_entropy_with_logits(
            modalities, is_video.to(modalities.dtype)
        )
        if self.training:
            self.steps += 1
        frobenius = torch.stack([weight.norm() for weight in self.task.weights]).sum()
        terms = {
            "invariance": options.alpha * drawn,
            "discrimination": options.beta * told,
            "regularisation": options.regularisation * frobenius,
            "adversarial": told_apart,
        }
        watched = {
            "label accuracy": _told(classes, known).float().mean(),
            "modality accuracy": ((modalities > 0) == is_video).float().mean(),
        }
        return Terms(terms, watched)

    def resting(self, towers: nn.Module) -> Iterable[Tensor]:
        turns = self.options.turns
        if not turns:
            return ()
        if self.steps.item() % (turns + 1):
            return self.modality.parameters()
        return [*towers.parameters(), *self.label.parameters()]

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        return -_squared(text.mu, video.mu)


def classification(classes: Tensor, known: Tensor) -> Tensor:
    """Return the mean over items of minus the log-likelihood of their classes by logits [n, C].

    `known` is the one class [n] of each, by a softmax, or [n, C] true for each class that it has,
    by as many sigmoids.
    """
    if known.ndim == 1:
        return functional.cross_entropy(classes, known)
    found = functional.binary_cross_entropy_with_logits(
        classes, known.to(classes.dtype), reduction="none"
    )
    return found.sum(1).mean()


def _told(classes: Tensor, known: Tensor) -> Tensor:
    """Tell of which items [n] the class of the largest logit is one of their own."""
    best = classes.argmax(1)
    return best == known if known.ndim == 1 else known.gather(1, best[:, None]).squeeze(1)


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """Return `x` as it is; its gradient comes back times `-strength`."""
    unchanged = x.view_as(x)
    if unchanged.requires_grad:
        unchanged.register_hook(lambda g: -strength * g)  # type: ignore[no-untyped-call]
    return unchanged


def rising_strength(progress: float) -> float:
    """`2 / (1 + exp(-10 p)) - 1`, from 0 at p = 0 to nearly 1 at p = 1 (Ganin and Lempitsky 2015).

    A classifier that has learnt nothing yet has nothing to hide from.
    """
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0


def invariance(text: Tensor, video: Tensor, labels: Tensor, margin: float, wrong: float) -> Tensor:
    """Return L_imi of points [n, d] with labels: a mean over an anchor's triplets, both ways.

    The sum over triplets (i, j, k) of `l2(i, j) + wrong max(0, margin - l2(i, k))` has terms of i
    and j and terms of i and k alone, so its mean needs n x n distances and no triplet.
    """
    distances = _squared(text, video).clamp(min=TINY).sqrt()
    same = alike(labels).to(distances.dtype)
    other = 1.0 - same
    near = functional.relu(margin - distances)
    total = torch.zeros(())
    for way in (1, 0):
        # An item without a class has no right one; if the batch has no other class, no wrong one.
        right = (same * distances).sum(way) / same.sum(way).clamp(min=1.0)
        parted = (other * near).sum(way) / other.sum(way).clamp(min=1.0)
        total = total + (right + wrong * parted).mean()
    return total


def _squared(text: Tensor, video: Tensor) -> Tensor:
    nothing = text.new_zeros(1, text.shape[1])
    return all_pairs_ed(text, nothing, video, nothing)


class Acmr(Loss, name="acmr"):
    """`alpha` of the triplets, `beta` of the labels, `regularisation` of the weights' norms.

    Wrong pairs nearer than `margin` count `wrong` times how much nearer they are. The reversed
    gradient rises to `reversal` times its size over `ramp` steps. The modality classifier has one
    layer of `hidden` units. With `turns` k projectors and label classifier move in k steps, then
    the modality classifier in one, as in the paper; 0: all of them in each. Defaults were chosen on
    held-out training rows of the Wikipedia set.
    """

    needs_labels: ClassVar[bool] = True
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=40, batch=64, learning_rate=1e-3, weight_decay=1e-4
    )
    head: ClassVar[str] = "euclidean"
    module: ClassVar[type[Objective]] = _AcmrObjective

    alpha: NotNegative = 1.0
    beta: NotNegative = 1.0
    regularisation: NotNegative = 0.03
    margin: Positive = 7.0
    wrong: NotNegative = 2.0
    reversal: NotNegative = 1.0
    ramp: Count = 1000
    hidden: Count = 64
    turns: CountOrNone = 0
