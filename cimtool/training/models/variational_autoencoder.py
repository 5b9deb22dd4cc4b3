"""Model `variational-autoencoder`: one encoder of items to Gaussians, and a decoder of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cimtool.base.arrays import Array
from cimtool.training.models.autoencoder import Autoencoder
from cimtool.training.options import positive
from cimtool.training.perceptron import perceptron

LOGVAR_START = -3.0


class GaussianEncoder(nn.Module):
    """Layers with an activation behind each, then a linear head each for `mu` and `logvar`."""

    def __init__(self, widths: Sequence[int], activation: str) -> None:
        super().__init__()
        *before, width = widths
        layers = perceptron(before, activation, activation) if before[1:] else nn.Sequential()
        self.layers = layers
        self.mu = nn.Linear(before[-1], width)
        self.logvar = nn.Linear(before[-1], width)
        # Small variances to begin with: the means must be able to part before noise drowns them.
        nn.init.constant_(self.logvar.bias, LOGVAR_START)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu` and `logvar` of the rows of `x`."""
        hidden = self.layers(x)
        return self.mu(hidden), self.logvar(hidden)


@dataclass(frozen=True)
class VariationalAutoencoder(Autoencoder, name="variational-autoencoder"):
    """An autoencoder whose code is a Gaussian of `width` dimensions.

    `a` is the slope of the score -a ed, and of the sigmoid that a teacher takes the mean of.
    """

    head: ClassVar[str] = "csd"
    has_variance: ClassVar[bool] = True

    a: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "a")

    def encoder(self, widths: Sequence[int]) -> nn.Module:
        """Return the layers and both heads."""
        return GaussianEncoder(widths, self.activation)

    def deployed(self) -> Mapping[str, Any]:
        """The activation, and the slope and offset of the score."""
        return {**super().deployed(), "a": self.a, "b": 0.0}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of the layers and of the heads."""
        if "mu.weight" not in text:
            return {}
        code = {k: v for k, v in text.items() if not k.startswith("logvar.")}
        return super().options_of(code, video)
