"""Batches of points, and a loss of their cosines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from cimtool.training.loss import Batch, Loss, Task, Terms
from cimtool.training.towers import Encoded


def points(seed: int, rows: int = 6, width: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    text = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return text, text + torch.randn(rows, width, generator=generator, dtype=torch.float64)


def terms(loss: Loss, text: Tensor, video: Tensor, items: Tensor | None = None) -> Terms:
    objective = loss.objective(Task(text.shape[1]))
    found: Terms = objective(Encoded(text), Encoded(video), Batch(text, video, items))
    return found


@pytest.fixture(scope="session")
def batch() -> SimpleNamespace:
    """Both functions, by name."""
    return SimpleNamespace(points=points, terms=terms)
