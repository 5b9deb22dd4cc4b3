"""The cosine of all pairs of a batch, and how far right pairs stand out by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cimtool.training.loss import Batch, Objective, Terms
from cimtool.training.towers import Encoded

HEAD: Mapping[str, Any] = {"head": "cosine"}
"""The deployment of a loss on cosines."""


def all_cosines(text: Tensor, video: Tensor) -> Tensor:
    """Return the cosines [n, m] of rows `text` [n, d] and `video` [m, d]."""
    return functional.normalize(text, dim=-1) @ functional.normalize(video, dim=-1).T


def cosine_gap(cosines: Tensor, items: Tensor | None = None) -> Tensor:
    """Return the mean of the diagonal of `cosines` [n, n] less the mean of the wrong pairs.

    `items` [n] are the videos' numbers where some texts share one: such pairs are no wrong ones.
    NaN where no pair is wrong.
    """
    videos = torch.arange(len(cosines), device=cosines.device) if items is None else items
    wrong = videos[:, None] != videos[None, :]
    return cosines.diagonal().mean() - cosines[wrong].mean()


class CosineObjective(Objective):
    """An objective on the cosines of a batch; a subclass says what its one term is."""

    def term(self, cosines: Tensor, items: Tensor | None) -> Tensor:
        """Return the loss of `cosines` [n, n] whose right pairs are the diagonal."""
        raise NotImplementedError

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        """Return the term, and watch the gap of the batch."""
        cosines = self.scores(text, video)
        gap = cosine_gap(cosines.detach(), batch.items)
        return Terms({"loss": self.term(cosines, batch.items)}, {"cosine gap": gap})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return the cosines of all pairs, [n, m]."""
        return all_cosines(text.mu, video.mu)
