"""Losses `info-nce`, `info-nce-poly`, `clip`, `hnac`: symmetric InfoNCE of all pairs of a batch.

The logits are -a ed, which is what the polynomial's logit is to first order; the polynomial itself;
or cosines. A caption that fits another video as well is no wrong answer: `hnac` presses such pairs
away less hard. A text with several right videos in a batch asks for any of them:

    L_i = -log(sum_{j right} e^(s_ij / tau) / sum_j e^(s_ij / tau))

as in MIL-NCE (Miech et al., CVPR 2020).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.loss import Batch, Loss, Objective, PolynomialObjective, Terms
from cimtool.training.options import BelowOne, NotNegative, Optimisation, Positive
from cimtool.training.towers import Encoded, all_cosines, all_pairs_ed, cosine_gap


def info_nce(
    logits: Tensor,
    temperature: float,
    items: Tensor | None = None,
    several: Tensor | None = None,
) -> Tensor:
    """Return symmetric InfoNCE of `logits [n, n]` whose right pairs are the diagonal.

    The two directions are added, each a mean over the batch. `items [n]` are the videos' rows: a
    pair off the diagonal whose video is the text's own as well is no wrong one, and is left out.
    `several` [n, n] are the right pairs if they are more than the diagonal: any of them will do.
    """
    scaled = logits / temperature
    if several is not None:
        found = scaled.masked_fill(~several, -torch.inf)
        one, other = ((scaled.logsumexp(way) - found.logsumexp(way)).mean() for way in (1, 0))
        return one + other
    right = torch.arange(len(logits), device=logits.device)
    if items is not None:
        scaled = without_shared(scaled, items)
    return functional.cross_entropy(scaled, right) + functional.cross_entropy(scaled.T, right)


def without_shared(logits: Tensor, items: Tensor) -> Tensor:
    """Leave the pairs off the diagonal out whose video is the text's own: -infinity."""
    same = items[:, None] == items[None, :]
    same.fill_diagonal_(False)
    return logits.masked_fill(same, -torch.inf)


def variance_regulariser(text: Encoded, video: Encoded, weight: float) -> Tensor:
    """Return `weight / (2 n d) sum(mu^2 + s - log s - 1)` over both modalities: a KL to N(0, 1)."""
    total = sum(
        (mu.square() + logvar.exp() - logvar - 1.0).sum()
        for mu, logvar in (text.gaussian, video.gaussian)
    )
    return torch.as_tensor(total) * (weight / (2 * text.mu.numel()))


class _InfoNceObjective(Objective):
    options: InfoNce | InfoNcePoly

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        logits, watched = self.logits(text, video)
        contrast = info_nce(logits, self.options.tau, batch.items, batch.right)
        regulariser = variance_regulariser(text, video, self.options.variance)
        return Terms({"info_nce": contrast, "variance": regulariser}, watched)

    def logits(self, text: Encoded, video: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        return self.scores(text, video), {}

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        assert isinstance(self.options, InfoNce)
        return -self.options.a * all_pairs_ed(*text.moments, *video.moments)


class _InfoNcePolyObjective(PolynomialObjective, _InfoNceObjective):
    def logits(self, text: Encoded, video: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        logits, outside = self.safe_logits(text, video)
        return logits, {"outside": outside.float().mean()}


class InfoNceLoss(Loss):
    """Base of both; each has a temperature `tau`."""

    needs_variance: ClassVar[bool] = True

    if TYPE_CHECKING:  # a field of each, in its own place
        tau: Positive

    def question(self, scores: Tensor, videos: Tensor) -> Tensor:
        """The mean of -log(e^(s_ii/tau) / sum_j e^(s_ij/tau)) over texts."""
        scaled = without_shared(scores / self.tau, videos)
        return functional.cross_entropy(scaled, torch.arange(len(scores)))

    def limit(self, rivals: float, gap: float) -> float:
        """log(rivals) + gap / tau, of log(1 + rivals e^(gap/tau)) if that is far above 1."""
        return math.log(rivals) + gap / self.tau


class InfoNce(InfoNceLoss, name="info-nce"):
    """Symmetric InfoNCE of -a ed at temperature `tau`, and `variance` times the KL to N(0, 1).

    A softmax with the slope a / tau: it says neither a nor b of a sigmoid.
    """

    module: ClassVar[type[Objective]] = _InfoNceObjective

    a: Positive = 0.1
    tau: Positive = 0.7
    variance: NotNegative = 0.001


class InfoNcePoly(InfoNceLoss, name="info-nce-poly"):
    """Symmetric InfoNCE of poly(ed, vd) at `tau`, and `variance` times the KL to N(0, 1).

    Its defaults are those of the document of the polynomial surrogate (its step 5).
    """

    needs_polynomial: ClassVar[bool] = True
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=10, batch=64, learning_rate=5e-6, weight_decay=1e-4
    )
    module: ClassVar[type[Objective]] = _InfoNcePolyObjective

    tau: Positive = 0.07
    variance: NotNegative = 0.001


class CosineObjective(Objective):
    """Cross entropy of the cosines of a batch, the mean of both ways."""

    options: ClipLoss

    def term(self, cosines: Tensor, items: Tensor | None, several: Tensor | None = None) -> Tensor:
        """Return the loss of `cosines` [n, n] whose right pairs are the diagonal, or `several`."""
        return info_nce(cosines, self.options.tau, items, several) / 2

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the term, and watch the gap of the batch."""
        cosines = self.scores(text, video)
        gap = cosine_gap(cosines.detach(), batch.items)
        term = self.term(cosines, batch.items, batch.right)
        return Terms({"loss": term}, {"cosine gap": gap})

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

    def term(self, cosines: Tensor, items: Tensor | None, several: Tensor | None = None) -> Tensor:
        tau, share = self.options.tau, self.options.share
        # A weight is a summand of the exponent, so that log-sum-exp bounds what is exponentiated.
        lowered = torch.log1p(-share * torch.sigmoid(self.options.slope * cosines.detach()))
        wrong = 1.0 - torch.eye(len(cosines), dtype=cosines.dtype, device=cosines.device)
        if several is not None:
            wrong = (~several).to(cosines.dtype)
        return super().term(cosines + tau * wrong * lowered, items, several)


class Hnac(ClipLoss, name="hnac"):
    """`-log(e^(c_ii/tau) / (e^(c_ii/tau) + sum_j w_ij e^(c_ij/tau)))`, the mean of both ways.

    A wrong pair of cosine c weighs `w = 1 - share sigmoid(slope c)`, through which no gradient
    goes; the right pair is not weighted.
    """

    module: ClassVar[type[Objective]] = _HnacObjective

    share: BelowOne = 0.5
    slope: Positive = 5.0
