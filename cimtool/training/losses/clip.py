"""Losses `clip` and `hnac`: symmetric cross entropy on cosines.

A caption that fits another video as well is no wrong answer; `hnac` presses such pairs away less
hard.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cimtool.training.loss import Batch, Loss, Objective, Terms
from cimtool.training.losses.info_nce import info_nce
from cimtool.training.options import BelowOne, Optimisation, Positive
from cimtool.training.towers import Encoded, all_cosines, cosine_gap


class CosineObjective(Objective):
    """Cross entropy of the cosines of a batch, the mean of both ways."""

    options: ClipLoss

    def term(self, cosines: Tensor, items: Tensor | None) -> Tensor:
        """Return the loss of `cosines` [n, n] whose right pairs are the diagonal."""
        return info_nce(cosines, self.options.tau, items) / 2

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the term, and watch the gap of the batch."""
        cosines = self.scores(text, video)
        gap = cosine_gap(cosines.detach(), batch.items)
        return Terms({"loss": self.term(cosines, batch.items)}, {"cosine gap": gap})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return the cosines of all pairs, [n, m]."""
        return all_cosines(text.mu, video.mu)


class ClipLoss(Loss, name="clip"):
    """Cross entropy of cosines at temperature `tau`, the mean of both ways (arXiv 2103.00020)."""

    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=20, batch=64, learning_rate=2e-5, weight_decay=0.02
    )
    head: ClassVar[str] = "cosine"
    module: ClassVar[type[Objective]] = CosineObjective

    tau: Positive = 0.07


class _HnacObjective(CosineObjective):
    options: Hnac

    def term(self, cosines: Tensor, items: Tensor | None) -> Tensor:
        tau, share = self.options.tau, self.options.share
        # A weight is a summand of the exponent, so that log-sum-exp bounds what is exponentiated.
        lowered = torch.log1p(-share * torch.sigmoid(self.options.slope * cosines.detach()))
        wrong = 1.0 - torch.eye(len(cosines), dtype=cosines.dtype, device=cosines.device)
        return super().term(cosines + tau * wrong * lowered, items)


class Hnac(ClipLoss, name="hnac"):
    """`-log(e^(c_ii/tau) / (e^(c_ii/tau) + sum_j w_ij e^(c_ij/tau)))`, the mean of both ways.

    A wrong pair of cosine c weighs `w = 1 - share sigmoid(slope c)`, through which no gradient
    goes; the right pair is not weighted.
    """

    module: ClassVar[type[Objective]] = _HnacObjective

    share: BelowOne = 0.5
    slope: Positive = 5.0
