"""Gradient reversal: what a classifier learns to tell, the layers before it learn to hide."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """Return `x` as it is; its gradient comes back times `-strength`."""
    unchanged: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return unchanged


def rising_strength(progress: float) -> float:
    """`2 / (1 + exp(-10 p)) - 1`, from 0 at p = 0 to nearly 1 at p = 1 (Ganin and Lempitsky 2015).

    A classifier that has learnt nothing yet has nothing to hide from.
    """
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None
