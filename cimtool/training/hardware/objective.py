"""What fine-tuning minimises: the distance of logits, and of the rankings that they make."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def distillation(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return how far logits [n, m] are from those wanted, as the sum of two parts.

    log(1 + e / v), e the mean square difference and v the variance of all logits wanted; and the
    divergence in nats of the softmax over a text's videos from the one wanted, plus that over a
    video's texts, each a mean. The logarithm keeps an error that all logits share, which ranks
    nothing and may be many times their spread, from outweighing the rankings.
    """
    squares = functional.mse_loss(logits, wanted) / wanted.var(correction=0)
    ways = (logits, wanted), (logits.T, wanted.T)
    return torch.log1p(squares) + sum((_divergence(*way) for way in ways), torch.zeros(()))


def _divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    found, target = (x.log_softmax(dim=1) for x in (logits, wanted))
    return functional.kl_div(found, target, reduction="batchmean", log_target=True)
