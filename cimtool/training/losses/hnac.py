"""Loss `hnac`: cross entropy on cosines in which wrong pairs that look right weigh less.

A caption that fits another video as well is no wrong answer; the loss presses it away less hard.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cimtool.base.errors import CimError
from cimtool.training.contrast import info_nce
from cimtool.training.cosine import CosineObjective
from cimtool.training.loss import Objective, Task
from cimtool.training.losses.clip import Clip
from cimtool.training.options import positive


@dataclass(frozen=True)
class Hnac(Clip, name="hnac"):
    """`-log(e^(c_ii/tau) / (e^(c_ii/tau) + sum_j w_ij e^(c_ij/tau)))`, the mean of both ways.

    A wrong pair of cosine c weighs `w = 1 - share sigmoid(slope c)`, through which no gradient
    goes; the right pair is not weighted.
    """

    share: float = 0.5
    slope: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "slope")
        if not 0 <= self.share < 1:
            raise CimError(f"loss.share is {self.share:g}; expected 0 or more, and below 1")

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters."""
        return _HnacObjective(self)


class _HnacObjective(CosineObjective):
    def __init__(self, options: Hnac) -> None:
        super().__init__()
        self.options = options

    def term(self, cosines: Tensor, items: Tensor | None) -> Tensor:
        tau, share = self.options.tau, self.options.share
        # A weight is a summand of the exponent, so that log-sum-exp bounds what is exponentiated.
        lowered = torch.log1p(-share * torch.sigmoid(self.options.slope * cosines.detach()))
        wrong = 1.0 - torch.eye(len(cosines), dtype=cosines.dtype, device=cosines.device)
        return info_nce(cosines + tau * wrong * lowered, tau, items) / 2
