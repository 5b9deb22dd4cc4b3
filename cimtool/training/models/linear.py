"""Model `linear`: one linear map a side into a common space, solved in closed form.

The maps are those of canonical correlations with a ridge (`linear_start`), whose penalty folds of
the training pairs choose (`linear_fit`). Each dimension has one variance for all rows: half of the
mean square difference of right pairs that the maps had not seen, for both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from cimtool.base.arrays import Array
from cimtool.training.linear_start import LinearFit
from cimtool.training.model import LINEAR_DIMENSIONS, ProjectorModel
from cimtool.training.options import Count
from cimtool.training.pairs import Pairs
from cimtool.training.towers import TwoTower

LEAST_RESIDUAL = 1e-3
"""Share of the mean variance that every dimension has, so that no log-variance stands out."""


class LinearProjector(nn.Module):
    """Two linear heads on the row itself, `mu` and `logvar`; the latter starts as a constant."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.mu = nn.Linear(width_in, width)
        self.logvar = nn.Linear(width_in, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu` and `logvar` of the rows of `x`."""
        return self.mu(x), self.logvar(x)


class LinearModel(ProjectorModel, name="linear"):
    """Linear maps to `width` dimensions, or to as many as the narrower rows have.

    They are solved, not trained: without `epochs` there are none. With some, training goes on from
    them by the loss, variances included.
    """

    layout: ClassVar[str] = "perceptron"
    head: ClassVar[str] = "csd"
    closed_form: ClassVar[bool] = True

    width: Count = LINEAR_DIMENSIONS

    @property
    def start_dimensions(self) -> int:
        """The dimensions of `mu`."""
        return self.width

    def build(self, text: int, video: int) -> TwoTower:
        """Return two heads for each modality, text first."""
        width = min(self.width, text, video)
        return TwoTower(LinearProjector(text, width), LinearProjector(video, width))

    def begin(self, towers: TwoTower, fit: LinearFit, pairs: Pairs) -> None:
        """Make mu the maps, and give each dimension its variance."""
        half = fit.residual / 2
        least = LEAST_RESIDUAL * (half.mean() or 1.0)
        logvar = torch.from_numpy(np.log(np.maximum(half, least)))
        sides = (towers.text_proj, fit.start.text), (towers.video_proj, fit.start.video)
        with torch.no_grad():
            for projector, own in sides:
                assert isinstance(projector, LinearProjector)
                projector.mu.weight.copy_(torch.from_numpy(own.weight.T))
                projector.mu.bias.copy_(torch.from_numpy(-own.mean @ own.weight))
                nn.init.zeros_(projector.logvar.weight)
                projector.logvar.bias.copy_(logvar)

    def deployed(self) -> Mapping[str, Any]:
        """No activation."""
        return {"activation": "none"}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The dimensions of the head of mu."""
        head = text.get("mu.weight")
        return {} if head is None else {"width": head.shape[0]}
