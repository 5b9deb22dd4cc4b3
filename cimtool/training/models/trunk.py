"""Model `trunk`: two hidden layers with BatchNorm, then a linear head each for mu and logvar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from cimtool.base.arrays import Array
from cimtool.training.model import ACTIVATIONS, Activation, ProjectorModel, widest
from cimtool.training.options import BelowOne, Count, Number
from cimtool.training.towers import TwoTower

LOGVAR_START = -3.0


class TrunkProjector(nn.Module):
    """One projector of layout `trunk`: Linear-BatchNorm-activation twice, then two linear heads.

    The document of the polynomial surrogate gives 1024-2048-2048-1024 (its step 5). With `dropout`
    training drops this share of the activations.
    """

    def __init__(
        self,
        width_in: int = 1024,
        hidden: int = 2048,
        width: int = 1024,
        logvar_start: float = LOGVAR_START,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()

        def between() -> nn.Module:
            found = ACTIVATIONS[activation]()
            return nn.Sequential(found, nn.Dropout(dropout)) if dropout else found

        self.trunk = nn.Sequential(
            nn.Linear(width_in, hidden),
            nn.BatchNorm1d(hidden),
            between(),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            between(),
        )
        self.mu = nn.Linear(hidden, width)
        self.logvar = nn.Linear(hidden, width)
        # Small variances to begin with: the means must be able to part before noise drowns them.
        nn.init.constant_(self.logvar.bias, logvar_start)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu` and `logvar` of the rows of `x`."""
        hidden = self.trunk(x)
        return self.mu(hidden), self.logvar(hidden)


class TrunkModel(ProjectorModel, name="trunk"):
    """Projectors of `hidden` units a layer to `width` dimensions, from small variances.

    What is not given follows the data (`sizes`); 2048 and 1024 are those of the document.
    """

    layout: ClassVar[str] = "trunk"

    hidden: Count = 2048
    width: Count = 1024
    logvar_start: Number = LOGVAR_START
    activation: Activation = "relu"
    dropout: BelowOne = 0.0

    def build(self, text: int, video: int) -> TwoTower:
        """Return a trunk for each modality, text first."""
        shape = self.hidden, self.width, self.logvar_start, self.activation, self.dropout
        return TwoTower(TrunkProjector(text, *shape), TrunkProjector(video, *shape))

    @classmethod
    def sizes(cls, numbers: int, text: int, video: int) -> dict[str, Any]:
        """Hidden layers as wide as the data carry, and half as many dimensions."""
        hidden = widest(lambda h: (text + video) * h + 4 * h * h, numbers)
        return {"hidden": hidden, "width": hidden // 2}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """Both extents of the head of mu."""
        if "mu.weight" not in text:
            return {}
        width, hidden = text["mu.weight"].shape
        return {"hidden": hidden, "width": width}
