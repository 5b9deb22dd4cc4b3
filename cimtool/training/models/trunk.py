"""Model `trunk`: two hidden layers with BatchNorm, then a linear head each for mu and logvar."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from cimtool.base.arrays import Array
from cimtool.training.linear_start import LinearFit, LinearMap
from cimtool.training.model import (
    ACTIVATIONS,
    LINEAR_DIMENSIONS,
    WIDTHS,
    Activation,
    LinearMaps,
    ProjectorModel,
    widest,
)
from cimtool.training.options import BelowOne, Count, Number
from cimtool.training.pairs import Pairs
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

    def become(self, start: LinearMap, rows: Tensor) -> None:
        """Make mu the map of `rows` [n, in] and all variances equal.

        A layer hands z on along random orthonormal directions, one unit for each and one for its
        opposite: an activation with f(x) - f(-x) = c x loses nothing. No weight stands out, as it
        would in a layer of ones and zeros, which 8 bits round badly. BatchNorm puts back what it
        takes, the means and deviations over the rows.
        """
        self.eval()
        first, first_norm, activation, second, second_norm, _ = self.trunk
        unit = torch.ones(1)
        factor = float(activation(unit) - activation(-unit))
        # From what a layer is given to z, and what is taken off before.
        back, offset = torch.from_numpy(start.weight.T), torch.from_numpy(start.mean)
        with torch.no_grad():
            for layer, norm in ((first, first_norm), (second, second_norm)):
                assert isinstance(layer, nn.Linear)
                assert isinstance(norm, nn.BatchNorm1d)
                half = layer.out_features // 2
                forth = torch.linalg.qr(torch.randn(half, len(back), dtype=torch.double)).Q
                weight = torch.cat([forth @ back, -forth @ back])
                layer.weight[: 2 * half] = weight
                layer.bias[: 2 * half] = -weight @ offset
                rows = layer(rows)
                norm.running_var, norm.running_mean = torch.var_mean(rows, dim=0)
                norm.weight.copy_(torch.sqrt(norm.running_var + norm.eps))
                norm.bias.copy_(norm.running_mean)
                rows = activation(norm(rows))
                back = torch.cat([forth, -forth]).T / factor
                back = functional.pad(back, (0, layer.out_features - 2 * half))
                offset = torch.zeros(layer.out_features, dtype=torch.double)
            for tensor in (self.mu.weight, self.mu.bias, self.logvar.weight):
                nn.init.zeros_(tensor)
            self.mu.weight[: len(back)] = back
        self.train()


class TrunkModel(ProjectorModel, name="trunk"):
    """Projectors of `hidden` units a layer to `width` dimensions, from small variances.

    What is not given follows the data (`sizes`); 2048 and 1024 are those of the document. With
    `linear` training starts from the linear maps of canonical correlations (`linear_fit`), so
    that rows of pretrained encoders need not be learnt anew; with few pairs it does by itself.
    """

    layout: ClassVar[str] = "trunk"

    hidden: Count = 2048
    width: Count = 1024
    logvar_start: Number = LOGVAR_START
    activation: Activation = "relu"
    dropout: BelowOne = 0.0
    linear: LinearMaps = False

    @property
    def start_dimensions(self) -> int:
        """The dimensions of `mu` with `linear`, else 0."""
        return min(self.width, self.hidden // 2) if self.linear else 0

    def for_few_pairs(self, given: Collection[str], text: int, video: int) -> Self:
        """With `linear`, unless the activation or a single unit would not pass the maps on.

        The layers are then wide enough for all dimensions of the maps.
        """
        if "linear" in given or self.activation == "tanh" or self.hidden == 1:
            return self
        hidden, width = self.hidden, self.width
        dimensions = min(LINEAR_DIMENSIONS, text, video)
        if "hidden" not in given:
            hidden = max(hidden, next(h for h in WIDTHS if h >= 2 * dimensions))
        if "width" not in given:
            width = max(width, min(dimensions, hidden // 2))
        return self.model_copy(update={"linear": True, "hidden": hidden, "width": width})

    def begin(self, towers: TwoTower, fit: LinearFit, pairs: Pairs) -> None:
        """Make both trunks the linear maps."""
        for projector, own, rows in (
            (towers.text_proj, fit.start.text, pairs.text),
            (towers.video_proj, fit.start.video, pairs.video),
        ):
            assert isinstance(projector, TrunkProjector)
            projector.become(own, rows)

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
