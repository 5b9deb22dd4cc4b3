"""Model `two-branch`: a perceptron for the residual of mu and one for logvar, on unit rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from cimtool.base.arrays import Array
from cimtool.training.model import ACTIVATIONS, Activation, ProjectorModel, widest
from cimtool.training.options import BelowOne, Count, Number
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

    Training starts from the rows as they are: before it, -a ed ranks as their cosine does.
    """

    layout: ClassVar[str] = "two-branch"
    starts_from_rows: ClassVar[bool] = True

    hidden: Count = 2048
    dropout: BelowOne = 0.1
    logvar_start: Number = 0.0
    activation: Activation = "relu"

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
