"""Loss `triplet`: an item of another class is to lie `margin` further off than one of the same.

    mean over triplets that count of   max(0, margin + d(a, p) - d(a, n))

a and p are items of one class, n is of another, d is the distance of points. Triplets that keep
the margin do not count (arXiv 1703.07737); semi-hard ones have d(a, p) < d(a, n) (1503.03832).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.named import unknown
from cimtool.training.latent import Constraints, Prices, same_class
from cimtool.training.loss import Loss, Objective, Task, Terms
from cimtool.training.optimisation import Optimisation
from cimtool.training.options import not_negative, positive

MINING = ("all", "semi-hard")


@dataclass(frozen=True)
class Triplet(Loss, name="triplet"):
    """`mining` says which triplets of a batch count: all, or the semi-hard ones.

    `reconstruction` is the weight of the decoder's error and `kl` that of the Gaussians'
    divergence, where a model has them. A batch is made of `per_class` items of each class in turn.
    """

    needs_labels: ClassVar[bool] = True
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=30, batch=100, learning_rate=1e-3, weight_decay=1e-4
    )

    margin: float = 1.0
    mining: str = "all"
    reconstruction: float = 0.1
    kl: float = 0.001
    per_class: int = 10

    def __post_init__(self) -> None:
        positive(self, "margin", "per_class")
        not_negative(self, "reconstruction", "kl")
        if self.mining not in MINING:
            raise unknown("loss.mining", self.mining, MINING)

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters; a decoder is the model's."""
        return _TripletObjective(self, task)


class _TripletObjective(Constraints):
    def __init__(self, options: Triplet, task: Task) -> None:
        super().__init__(task, Prices(options.reconstruction, options.kl))
        self.options = options

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        same, other = same_class(labels)
        semi_hard = self.options.mining == "semi-hard"
        total, count = triplet_sum(distances, same, other, self.options.margin, semi_hard)
        triplets = (same.sum(1) * other.sum(1)).sum().clamp(min=1)
        return Terms({"triplet": total / count.clamp(min=1)}, {"triplets": count / triplets})


def triplet_sum(
    distances: Tensor, same: Tensor, other: Tensor, margin: float, semi_hard: bool
) -> tuple[Tensor, Tensor]:
    """Return the sum of all hinges above 0, and how many they are, by distances and masks [n, n].

    With `semi_hard` only where d(a, n) > d(a, p). Each row's wrong distances are sorted once: a
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
