"""Terms of several losses: symmetric InfoNCE on a batch's scores, and the variances' prior."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.towers import Encoded


def info_nce(logits: Tensor, temperature: float, items: Tensor | None = None) -> Tensor:
    """Return symmetric InfoNCE of `logits [n, n]` whose right pairs are the diagonal.

    The two directions are added, each a mean over the batch. `items [n]` are the videos' rows: a
    pair off the diagonal whose video is the text's own as well is no wrong one, and is left out.
    """
    scaled = logits / temperature
    right = torch.arange(len(logits), device=logits.device)
    if items is not None:
        same = items[:, None] == items[None, :]
        same.fill_diagonal_(False)
        scaled = scaled.masked_fill(same, -torch.inf)
    return functional.cross_entropy(scaled, right) + functional.cross_entropy(scaled.T, right)


def variance_regulariser(text: Encoded, video: Encoded, weight: float) -> Tensor:
    """Return `weight / (2 n d) sum(mu^2 + s - log s - 1)` over both modalities: a KL to N(0, 1)."""
    total = sum(
        (mu.square() + logvar.exp() - logvar - 1.0).sum()
        for mu, logvar in (text.gaussian, video.gaussian)
    )
    return torch.as_tensor(total) * (weight / (2 * text.mu.numel()))
