"""The projectors that train here: embeddings `[n, in]` to `mu` and `logvar`, each `[n, d]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LOGVAR_START = -3.0


class Trunk(nn.Module):
    """One projector of layout `trunk`: Linear-BatchNorm-ReLU twice, then two linear heads.

    The document of the polynomial surrogate gives 1024-2048-2048-1024 (its step 5).
    """

    def __init__(self, width_in: int = 1024, hidden: int = 2048, width: int = 1024) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(width_in, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
        )
        self.mu = nn.Linear(hidden, width)
        self.logvar = nn.Linear(hidden, width)
        # Small variances to begin with: the means must be able to part before noise drowns them.
        nn.init.constant_(self.logvar.bias, LOGVAR_START)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu` and `logvar` of the rows of `x`."""
        hidden = self.trunk(x)
        return self.mu(hidden), self.logvar(hidden)


class TwoBranch(nn.Module):
    """One projector of layout `two-branch`, for rows `x` of unit norm and `in == d`.

    `mu = normalize(x + MLP(x))`, `logvar = clamp(MLP(x), -5, 2)`; an MLP is Linear, ReLU, Dropout,
    Linear, and there is no BatchNorm. Keys: `mu_proj.0`, `mu_proj.3`, `logvar_proj.0`, `.3`.
    Training starts from `logvar` about `logvar_start`.
    """

    def __init__(
        self, width: int = 1024, hidden: int = 2048, dropout: float = 0.1, logvar_start: float = 0.0
    ) -> None:
        super().__init__()
        self.mu_proj = _perceptron(width, hidden, dropout)
        self.logvar_proj = _perceptron(width, hidden, dropout)
        last = self.logvar_proj[3]
        assert isinstance(last, nn.Linear)
        nn.init.constant_(last.bias, logvar_start)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu`, of unit norm, and `logvar` of the rows of `x`."""
        mu = functional.normalize(x + self.mu_proj(x), dim=-1)
        return mu, self.logvar_proj(x).clamp(-5.0, 2.0)


def _perceptron(width: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
    )


class TwoTower(nn.Module):
    """A text and a video projector; its state dict has the prefixes `text_proj.`, `video_proj.`."""

    def __init__(self, text_proj: nn.Module, video_proj: nn.Module) -> None:
        super().__init__()
        self.text_proj = text_proj
        self.video_proj = video_proj

    def forward(self, text: Tensor, video: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return `mu_t, logvar_t, mu_v, logvar_v`."""
        return (*self.text_proj(text), *self.video_proj(video))


def two_branch_checkpoint(
    towers: TwoTower,
    coeff: Sequence[float],
    bias: float,
    degree: int,
    config: Mapping[str, Any],
    epoch: int,
    loss: float,
) -> dict[str, Any]:
    """Return what the public code of layout `two-branch` saves: both projectors and their `poly`.

    Tensors and plain values only, so that `torch.load(weights_only=True)` reads the file.
    """
    return {
        "text_proj": towers.text_proj.state_dict(),
        "video_proj": towers.video_proj.state_dict(),
        "poly": {
            "degree": degree,
            "coeff": torch.tensor(list(coeff), dtype=torch.float64),
            "bias": bias,
            "fit_logit": True,
        },
        "config": dict(config),
        "epoch": epoch,
        "loss": loss,
    }
