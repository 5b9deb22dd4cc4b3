"""The question of a loss on unseen pairs: its cost, that of even scores, and the limit of that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cimtool.training.loss import Loss
from cimtool.training.pairs import full_batches


@dataclass(frozen=True)
class Question:
    """The cost to a text of finding its video in batches of `size`, by the loss that trained.

    `even` is the same with every wrong score replaced by their mean and every right one by theirs;
    `limit` is that for many wrong videos, log(size - 1) + (wrong - right) / tau for
    InfoNCE, and `limit_without_log` is without the logarithm, as the document has it that derives
    it. None for a loss without such a limit.
    """

    size: int
    loss: float
    even: float
    limit: float | None
    limit_without_log: float | None


def asked(loss: Loss, scores: Tensor, right: Tensor, size: int) -> Question | None:
    """Ask the question of all texts in batches of at most `size`, by scores [n, m].

    `right` [n] is the video of each text. None for a loss that asks none, and if no pair of a
    batch is wrong.
    """
    if not len(scores):
        return None
    size = min(size, len(scores))
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))
    found = []
    for texts in full_batches(order, size):
        videos = right[texts]
        batch = scores[texts][:, videos]
        wrong = videos[:, None] != videos[None, :]
        cost = loss.question(batch, videos)
        if cost is None or not wrong.any():
            return None
        own, other = batch.diagonal().mean(), batch[wrong].mean()
        even = loss.question(torch.where(wrong, other, own), videos)
        assert even is not None
        gap, rivals = (other - own).item(), wrong.sum().item() / size
        limits = loss.limit(rivals, gap), loss.limit(1.0, gap)
        found.append((cost.item(), even.item(), *(math.nan if x is None else x for x in limits)))
    mean, even_mean, limit, bare = map(float, np.mean(found, axis=0))
    known = not math.isnan(limit)
    return Question(size, mean, even_mean, limit if known else None, bare if known else None)
