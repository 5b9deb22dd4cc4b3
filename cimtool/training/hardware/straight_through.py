"""Rounding that gradients pass straight through: the integers of the contract, in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def rounded(x: Tensor, half_even: bool = False) -> Tensor:
    """Round to integers, halves up (or to even); the derivative is 1."""
    whole = torch.round(x) if half_even else torch.floor(x + 0.5)
    return x + (whole - x).detach()


@dataclass(frozen=True, eq=False)
class Rounding:
    """The format of a stored value: integers from `lo` to `hi` of `scale` (one, or one a channel).

    A value beyond the limits is clipped and has no gradient.
    """

    lo: int
    hi: int
    scale: Tensor
    half_even: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Return the real numbers [n, K] that the stored integers stand for."""
        return rounded((x / self.scale).clamp(self.lo, self.hi), self.half_even) * self.scale


def column_integers(effective: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Round weights [N, K] to integers up to `largest`; return them and each output's unit [N, 1].

    The unit is the largest weight's share, as in compilation; it has no gradient of its own.
    """
    top = effective.detach().abs().amax(dim=1, keepdim=True)
    unit = torch.where(top > 0, top, 1.0) / largest
    return rounded(effective / unit), unit
