"""Losses `pairwise-bce` and `pairwise-poly`: binary cross-entropy of all n x n pairs of a batch.

Each pair is a question of its own, do these two match, where InfoNCE asks for the right one of n:

    L = -1/n sum_i (log p_ii + sum_{j != i} log(1 - p_ij))

with p = sigmoid((b - a ed) / tau), or with p = sigmoid(poly(ed, vd)), the matching probability that
`soft-contrastive` estimates by samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.loss import Batch, Loss, Objective, Terms
from cimtool.training.losses.info_nce import variance_regulariser
from cimtool.training.options import NotNegative, Number, Positive
from cimtool.training.surrogate import PolynomialObjective
from cimtool.training.towers import Encoded, all_pairs_ed


def pairwise(log_p: Tensor, log_1mp: Tensor, items: Tensor | None = None) -> Tensor:
    """Return L of log p and log(1-p) [n, n], whose right pairs are the diagonal.

    `items [n]` are the videos' rows: a pair off the diagonal whose video is the text's own as well
    is no wrong one, and is left out.
    """
    videos = torch.arange(len(log_p), device=log_p.device) if items is None else items
    wrong = videos[:, None] != videos[None, :]
    return -(log_p.diagonal().sum() + log_1mp[wrong].sum()) / len(log_p)


def pairwise_of_logits(logits: Tensor, items: Tensor | None = None) -> Tensor:
    """Return L of logits [n, n]."""
    return pairwise(functional.logsigmoid(logits), functional.logsigmoid(-logits), items)


class PairwiseObjective(Objective):
    """L of a batch and the regulariser; pairs are ranked by b - a ed."""

    options: PairwiseLoss | PairwisePoly

    def logs(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        """Return log p and log(1-p) of all pairs, [n, m]."""
        raise NotImplementedError

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return both terms."""
        found = pairwise(*self.logs(text, video), batch.items)
        regulariser = variance_regulariser(text, video, self.options.variance)
        return Terms({"pairs": found, "variance": regulariser})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return b - a ed of all pairs, [n, m]."""
        assert isinstance(self.options, PairwiseLoss)
        return self.options.b - self.options.a * all_pairs_ed(*text.moments, *video.moments)


class PairwiseLoss(Loss):
    """Base of the losses over pairs: slope and offset of the score, weight of the KL to N(0, 1)."""

    needs_variance: ClassVar[bool] = True

    a: Positive = 0.1
    b: Number = 5.0
    variance: NotNegative = 0.001

    def deployed(self) -> Mapping[str, Any]:
        """The slope and offset of its sigmoid, for head `csd` and for a teacher."""
        return {"a": self.a, "b": self.b}


class _BceObjective(PairwiseObjective):
    options: PairwiseBce

    def logs(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        logits = self.scores(text, video) / self.options.tau
        return functional.logsigmoid(logits), functional.logsigmoid(-logits)


class PairwiseBce(PairwiseLoss, name="pairwise-bce"):
    """L of sigmoid((b - a ed) / tau), and `variance` times the KL to N(0, 1)."""

    module: ClassVar[type[Objective]] = _BceObjective

    tau: Positive = 1.0

    def deployed(self) -> Mapping[str, Any]:
        """The slope and offset of its sigmoid, both over tau."""
        return {"a": self.a / self.tau, "b": self.b / self.tau}

    def question(self, scores: Tensor, videos: Tensor) -> Tensor:
        """L of scores / tau, a sum over the wrong videos that grows with their number."""
        return pairwise_of_logits(scores / self.tau, videos)


class _PairwisePolyObjective(PolynomialObjective, PairwiseObjective):
    def logs(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        logits, _ = self.safe_logits(text, video)
        return functional.logsigmoid(logits), functional.logsigmoid(-logits)


class PairwisePoly(Loss, name="pairwise-poly"):
    """L of sigmoid(poly(ed, vd)), and `variance` times the KL to N(0, 1)."""

    needs_variance: ClassVar[bool] = True
    needs_polynomial: ClassVar[bool] = True
    module: ClassVar[type[Objective]] = _PairwisePolyObjective

    variance: NotNegative = 0.001

    def question(self, scores: Tensor, videos: Tensor) -> Tensor:
        """L of the polynomial's logits, a sum over the wrong videos."""
        return pairwise_of_logits(scores, videos)
