"""Loss `soft-contrastive`: the loss of PCME (Chun et al., CVPR 2021), which samples.

The matching probability of a pair is a mean over K x K samples, through which gradients pass
(z = mu + sigma noise), and the loss is the cross-entropy of all pairs of a batch:

    p_ij = 1/K^2 sum_{k, l} sigmoid(b - a |z_ik - z_jl|^2)
    L = -1/n sum_i (log p_ii + sum_{j != i} log(1 - p_ij))

PCME takes the plain distance, sums L over the batch and learns a and b. Here they are options, and
those of the score that is deployed.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.loss import Objective
from cimtool.training.losses.pairwise_bce import PairwiseLoss, PairwiseObjective
from cimtool.training.options import Count
from cimtool.training.towers import Encoded, all_pairs_ed


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


class _SamplingObjective(PairwiseObjective):
    options: SoftContrastive

    def logs(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        options = self.options
        texts, videos = (sampled(side, options.samples) for side in (text, video))
        return log_mean_sigmoid(texts, videos, options.a, options.b)


class SoftContrastive(PairwiseLoss, name="soft-contrastive"):
    """L by `samples` draws a side, and `variance` times the KL to N(0, 1)."""

    module: ClassVar[type[Objective]] = _SamplingObjective

    samples: Count = 10
