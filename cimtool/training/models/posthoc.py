"""Model `posthoc`: uncertainty for encoders that stay as they are.

mu is the row, of unit norm, whatever is trained. Without epochs the variance is one number for all
rows, and a and b of the score are solved: ranks are those of the cosine, and the probability is
calibrated. With epochs a linear layer gives each row a variance of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.training.model import ProjectorModel
from cimtool.training.pairs import Pairs
from cimtool.training.sigmoid import fitted_sigmoid, right_pairs
from cimtool.training.towers import TwoTower, all_pairs_ed

RANKED = 1000
"""Videos at most whose distances make a and b."""

LEAST_DISTANCE = 1e-6
"""Least mean squared distance of right pairs that the variance is made of."""


class FrozenProjector(nn.Module):
    """The row itself, and one log-variance for all its dimensions; it starts as a constant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.logvar = nn.Linear(width, 1)
        nn.init.zeros_(self.logvar.weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows `x` [n, d] and their log-variances [n, d]."""
        return x, self.logvar(x).expand(-1, x.shape[1])


class PosthocModel(ProjectorModel, name="posthoc"):
    """Rows as they are, with a variance; as many dimensions as the rows have.

    The variance starts so that right pairs are as far apart as their samples would be: the mean
    squared distance of right pairs that train, divided among both sides and all dimensions.
    """

    layout: ClassVar[str] = "frozen"
    head: ClassVar[str] = "csd"
    closed_form: ClassVar[bool] = True

    def build(self, text: int, video: int) -> TwoTower:
        """Return the variance of each modality; CimError if the rows differ in width."""
        self.require_one_width(text, video)
        return TwoTower(FrozenProjector(text), FrozenProjector(video))

    def prepare(self, towers: TwoTower, pairs: Pairs) -> None:
        """Give all rows of both sides the variance that right pairs have."""
        distance = _right_distance(pairs)
        with torch.no_grad():
            for projector in (towers.text_proj, towers.video_proj):
                assert isinstance(projector, FrozenProjector)
                width = projector.logvar.in_features
                projector.logvar.bias.fill_(math.log(distance / (2 * width)))

    def score_scale(self, pairs: Pairs) -> Mapping[str, float]:
        """The a and b of sigmoid(b - a ed) for the variance that training starts from.

        Raises CimError if the rows differ in width, or are of one modality.
        """
        if pairs.alone:
            raise CimError(
                'holds items of one modality, and model "posthoc" compares right pairs of two; '
                "expected rows of two"
            )
        self.require_one_width(pairs.text.shape[1], pairs.video.shape[1])
        some = _ranked(pairs)
        sides = some.text.double(), some.video.double()
        nothing = [torch.zeros_like(one) for one in sides]
        ed = all_pairs_ed(sides[0], nothing[0], sides[1], nothing[1]) + _right_distance(pairs)
        return solved_sigmoid(ed.numpy(), some)

    def deployed_scale(self, towers: TwoTower, pairs: Pairs) -> Mapping[str, float]:
        """The a and b of sigmoid(b - a ed) for towers as they are."""
        some = _ranked(pairs)
        text, video = (side.double() for side in towers.encode(some.text, some.video))
        return solved_sigmoid(all_pairs_ed(*text.moments, *video.moments).cpu().numpy(), some)

    def deployed(self) -> Mapping[str, Any]:
        """Nothing: the layout needs no value beside the weights."""
        return {}


def solved_sigmoid(ed: FloatArray, pairs: Pairs) -> dict[str, float]:
    """The a and b that calibrate ed [n, m] of all texts and videos of `pairs`."""
    together = right_pairs(pairs)
    a, b = fitted_sigmoid(ed[together], ed[~together])
    return {"a": a, "b": b}


def _right_distance(pairs: Pairs) -> float:
    apart = pairs.text.double() - pairs.video[pairs.right].double()
    return max(float(apart.square().sum(1).mean()), LEAST_DISTANCE)


def _ranked(pairs: Pairs) -> Pairs:
    """The pairs of the first RANKED videos at most."""
    return pairs.among((pairs.right < RANKED).numpy())
