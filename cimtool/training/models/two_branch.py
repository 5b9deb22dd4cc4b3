"""Model `two-branch`: a perceptron for the residual of mu and one for logvar, on unit rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from cimtool.base.arrays import Array
from cimtool.training.linear_start import LinearFit, LinearMap, directions
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


class TwoBranchProjector(nn.Module):
    """One projector of layout `two-branch`, for rows `x` of unit norm and `in == d`.

    `mu = normalize(x + MLP(x))`, `logvar = clamp(MLP(x), -5, 2)`; an MLP is Linear, ReLU (or
    `activation`), Dropout, Linear, and there is no BatchNorm. Keys: `mu_proj.0`, `mu_proj.3`,
    `logvar_proj.0`, `.3`. Training starts from `logvar` about `logvar_start`.
    """

    def __init__(
        self,
        width: int = 1024,
        hidden: int = 2048,
        dropout: float = 0.1,
        logvar_start: float = 0.0,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.mu_proj = _perceptron(width, hidden, dropout, activation)
        self.logvar_proj = _perceptron(width, hidden, dropout, activation)
        last = self.logvar_proj[3]
        assert isinstance(last, nn.Linear)
        nn.init.constant_(last.bias, logvar_start)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu`, of unit norm, and `logvar` of the rows of `x`."""
        mu = functional.normalize(x + self.mu_proj(x), dim=-1)
        return mu, self.logvar_proj(x).clamp(-5.0, 2.0)

    def become(self, start: LinearMap, weight: float) -> None:
        """Make mu what `rows_and_maps` gives.

        The hidden layer hands the maps on along random orthonormal directions, one unit for each
        and one for its opposite, as `TrunkProjector.become` does.
        """
        first, activation, _, last = self.mu_proj
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        unit = torch.ones(1)
        factor = float(activation(unit) - activation(-unit))
        back, offset = torch.from_numpy(start.weight.T), torch.from_numpy(start.mean)
        half = first.out_features // 2
        added = weight * torch.from_numpy(directions(first.in_features, len(back)))
        with torch.no_grad():
            forth = torch.linalg.qr(torch.randn(half, len(back), dtype=torch.double)).Q
            inner = torch.cat([forth @ back, -forth @ back])
            first.weight[: 2 * half] = inner
            first.bias[: 2 * half] = -inner @ offset
            last.weight[:, : 2 * half] = added @ torch.cat([forth, -forth]).T / factor


def _start_at_rows(projector: TwoBranchProjector) -> None:
    """Make mu the row itself and all variances equal, so that ed ranks as the rows' cosine does."""
    mu, logvar = projector.mu_proj[3], projector.logvar_proj[3]
    assert isinstance(mu, nn.Linear)
    assert isinstance(logvar, nn.Linear)
    for tensor in (mu.weight, mu.bias, logvar.weight):
        nn.init.zeros_(tensor)


def _perceptron(width: int, hidden: int, dropout: float, activation: str) -> nn.Sequential:
    first, last = nn.Linear(width, hidden), nn.Linear(hidden, width)
    return nn.Sequential(first, ACTIVATIONS[activation](), nn.Dropout(dropout), last)


class TwoBranchModel(ProjectorModel, name="two-branch"):
    """Perceptrons of `hidden` units on rows of unit norm; as many dimensions as the rows have.

    Training starts from the rows as they are: before it, -a ed ranks as their cosine does. With
    `linear` it starts from the rows and linear maps of them (`rows_and_maps`), with the weight that
    ranks folds of the training pairs best, which may be 0; with few pairs it does by itself.
    """

    layout: ClassVar[str] = "two-branch"
    starts_from_rows: ClassVar[bool] = True

    hidden: Count = 2048
    dropout: BelowOne = 0.1
    logvar_start: Number = 0.0
    activation: Activation = "relu"
    linear: LinearMaps = False

    @property
    def start_dimensions(self) -> int:
        """The dimensions of the maps with `linear`, else 0."""
        return min(LINEAR_DIMENSIONS, self.hidden // 2) if self.linear else 0

    def for_few_pairs(self, given: Collection[str], text: int, video: int) -> Self:
        """With `linear`, unless the activation or a single unit would not pass the maps on."""
        if "linear" in given or self.activation == "tanh" or self.hidden == 1:
            return self
        hidden = self.hidden
        if "hidden" not in given:
            least = 2 * min(LINEAR_DIMENSIONS, text, video)
            hidden = max(hidden, next(h for h in WIDTHS if h >= least))
        return self.model_copy(update={"linear": True, "hidden": hidden})

    def begin(self, towers: TwoTower, fit: LinearFit, pairs: Pairs) -> None:
        """Add the maps to the rows, unless the rows alone rank best."""
        if fit.beside_rows:
            for projector, own in (
                (towers.text_proj, fit.start.text),
                (towers.video_proj, fit.start.video),
            ):
                assert isinstance(projector, TwoBranchProjector)
                projector.become(own, fit.beside_rows)

    def build(self, text: int, video: int) -> TwoTower:
        """Return two branches for each modality; CimError if the rows differ in width."""
        self.require_one_width(text, video)
        shape = text, self.hidden, self.dropout, self.logvar_start, self.activation
        projectors = TwoBranchProjector(*shape), TwoBranchProjector(*shape)
        for projector in projectors:
            _start_at_rows(projector)
        return TwoTower(*projectors)

    @classmethod
    def sizes(cls, numbers: int, text: int, video: int) -> dict[str, Any]:
        """Hidden layers as wide as the data carry."""
        return {"hidden": widest(lambda h: 4 * (text + video) * h, numbers)}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The units of the perceptron of mu."""
        first = text.get("mu_proj.0.weight")
        return {} if first is None else {"hidden": first.shape[0]}
