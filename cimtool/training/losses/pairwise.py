"""Losses `pairwise-bce`, `pairwise-poly`, `soft-contrastive`: binary cross-entropy of all pairs.

Each pair is a question of its own, do these two match, where InfoNCE asks for the right one of n:

    L = -1/n sum_i (log p_ii + sum_{j != i} log(1 - p_ij))

(of a text with several right videos in a batch: over all right pairs, and over all others)
with p = sigmoid((b - a ed) / tau), or with p = sigmoid(poly(ed, vd)), the matching probability that
`soft-contrastive` estimates. That is the loss of PCME (Chun et al., CVPR 2021). Its probability is
a mean over K x K samples, through which gradients pass (z = mu + sigma noise):

    p_ij = 1/K^2 sum_{k, l} sigmoid(b - a |z_ik - z_jl|^2)

PCME takes the plain distance, sums L over the batch and learns a and b. Here they are options, and
those of the score that is deployed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.loss import Batch, Loss, Objective, PolynomialObjective, Terms
from cimtool.training.losses.info_nce import variance_regulariser
from cimtool.training.options import Count, NotNegative, Number, Positive
from cimtool.training.towers import Encoded, all_pairs_ed


def pairwise(
    log_p: Tensor, log_1mp: Tensor, items: Tensor | None = None, several: Tensor | None = None
) -> Tensor:
    """Return L of log p and log(1-p) [n, n], of pairs that `right_and_wrong` tells apart."""
    right, wrong = right_and_wrong(log_p, log_1mp, items, several)
    return -(right.sum() + wrong.sum()) / len(log_p)


def right_and_wrong(
    log_p: Tensor, log_1mp: Tensor, items: Tensor | None = None, several: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return log p [r] of the right pairs of a batch [n, n], and log(1-p) [w] of the wrong ones.

    Right pairs are the diagonal. `items` [n] are the videos' rows: a pair off the diagonal whose
    video is the text's own as well is no wrong one, and is left out. `several` [n, n] are the right
    pairs if they are more; all others are then wrong.
    """
    if several is not None:
        return log_p[several], log_1mp[~several]
    return log_p.diagonal(), log_1mp[wrong_pairs(log_p, items)]


def wrong_pairs(values: Tensor, items: Tensor | None = None) -> Tensor:
    """Return the mask [n, n] of the pairs of `values` [n, n] whose video is not the text's.

    `items` [n] are the videos' rows, each its own if it is None.
    """
    videos = torch.arange(len(values), device=values.device) if items is None else items
    return videos[:, None] != videos[None, :]


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
        found = pairwise(*self.logs(text, video), batch.items, batch.right)
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


def sampled(given: Encoded, count: int) -> Tensor:
    """Return `count` samples of each Gaussian, [n, count, d], with noise of torch's generator."""
    mu, logvar = given.gaussian
    noise = torch.randn(len(mu), count, mu.shape[1], dtype=mu.dtype, device=mu.device)
    return mu[:, None] + (logvar / 2).exp()[:, None] * noise


def log_mean_sigmoid(text: Tensor, video: Tensor, a: float, b: float) -> tuple[Tensor, Tensor]:
    """Return log p and log(1-p) [n, m] of samples `text` [n, K, d] and `video` [m, K, d].

    Each is a sum of logarithms of its own, so that neither underflows.
    """
    (n, count, d), m = text.shape, len(video)
    rows, columns = text.reshape(-1, d), video.reshape(-1, d)
    distances = all_pairs_ed(rows, torch.zeros_like(rows), columns, torch.zeros_like(columns))
    x = (b - a * distances).reshape(n, count, m, count)
    logs = (functional.logsigmoid(side).logsumexp(dim=(1, 3)) for side in (x, -x))
    log_p, log_1mp = (one - 2 * math.log(count) for one in logs)
    return log_p, log_1mp


class SamplingObjective(PairwiseObjective):
    """Log-probabilities by samples, drawn anew for every batch."""

    options: SoftContrastive

    def logs(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        """Return log p and log(1-p) of all pairs, [n, m]."""
        options = self.options
        texts, videos = (sampled(side, options.samples) for side in (text, video))
        return log_mean_sigmoid(texts, videos, options.a, options.b)


class SoftContrastive(PairwiseLoss, name="soft-contrastive"):
    """L by `samples` draws a side, and `variance` times the KL to N(0, 1)."""

    module: ClassVar[type[Objective]] = SamplingObjective

    samples: Count = 10
