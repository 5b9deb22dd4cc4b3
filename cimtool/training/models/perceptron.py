"""Models of layout `perceptron`: chains into a common space, and autoencoders of items."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator
from torch import Tensor, nn

from cimtool.base.arrays import Array
from cimtool.training.model import ACTIVATIONS, Activation, ProjectorModel
from cimtool.training.options import Count, Text, refused
from cimtool.training.towers import Encoded, TwoTower

LOGVAR_START = -3.0


def perceptron(widths: Sequence[int], activation: str, last: str) -> nn.Sequential:
    """Linear layers from `widths[0]` to `widths[-1]` numbers, `activation` between, `last` after.

    Its state dict has keys `0.weight`, `0.bias`, `2.weight`, ..., whatever the activations.
    """
    layers: list[nn.Module] = []
    for width, out in itertools.pairwise(widths):
        layers += [nn.Linear(width, out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1], ACTIVATIONS[last]())


def parse_widths(text: str) -> tuple[int, ...]:
    """Read `2000-500` as widths of layers, `none` as no layer; an option's error for others."""
    if text == "none":
        return ()
    parts = text.split("-")
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise refused(f'is "{text}"; expected widths of layers such as 500-200, or none')
    return tuple(map(int, parts))


def _is_widths(text: str) -> str:
    parse_widths(text)
    return text


Widths = Annotated[Text, AfterValidator(_is_widths)]


def _widths_of(tower: Mapping[str, Array]) -> tuple[str, int]:
    """The hidden widths, as an option, and the last width of a saved tower's layers."""
    *hidden, width = (array.shape[0] for key, array in tower.items() if key.endswith("weight"))
    return "-".join(map(str, hidden)) or "none", width


class TanhProjectors(ProjectorModel, name="tanh-projectors"):
    """Linear layers, each with a tanh behind it, to `width` dimensions and no variance.

    `text_hidden` and `video_hidden` are widths of the layers before the last, `2000-500`, or
    `none`. The paper of ACMR has texts of 3000 numbers, 500, 200; the last 200 for both.
    """

    layout: ClassVar[str] = "perceptron"
    head: ClassVar[str] = "euclidean"
    has_variance: ClassVar[bool] = False

    text_hidden: Widths = "500"
    video_hidden: Widths = "500"
    width: Count = 200

    def build(self, text: int, video: int) -> TwoTower:
        """Return a chain for each modality, text first."""
        return TwoTower(
            perceptron((text, *parse_widths(self.text_hidden), self.width), "tanh", "tanh"),
            perceptron((video, *parse_widths(self.video_hidden), self.width), "tanh", "tanh"),
        )

    def deployed(self) -> Mapping[str, Any]:
        """The activations, which weights do not show."""
        return {"activation": "tanh", "output_activation": "tanh"}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of both towers' layers."""
        (text_hidden, _), (video_hidden, width) = _widths_of(text), _widths_of(video)
        return {"text_hidden": text_hidden, "video_hidden": video_hidden, "width": width}


class OneEncoder(TwoTower):
    """One encoder for both modalities; in `forward` they are the same rows, encoded once."""

    def forward(self, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
        """Return the codes of rows `text` [n, in], twice."""
        codes = self.text_tower(text)
        return codes, codes


class Autoencoder(ProjectorModel, name="autoencoder"):
    """One encoder of items, of `hidden` widths such as `500-200` or `none`, to a code of `width`.

    `activation` stands between layers; the decoder, which only training needs, has the same layers
    the other way round.
    """

    layout: ClassVar[str] = "perceptron"
    head: ClassVar[str] = "euclidean"
    has_variance: ClassVar[bool] = False
    one_modality: ClassVar[bool] = True

    hidden: Widths = "256-128"
    width: Count = 32
    activation: Activation = "relu"

    def build(self, text: int, video: int) -> TwoTower:
        """Return the encoder and the decoder of rows of `text` numbers."""
        widths = (text, *parse_widths(self.hidden), self.width)
        encoder = self.encoder(widths)
        return OneEncoder(encoder, encoder, perceptron(widths[::-1], self.activation, "none"))

    def encoder(self, widths: Sequence[int]) -> nn.Module:
        """Return the layers from rows to the code."""
        return perceptron(widths, self.activation, "none")

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of the encoder's layers."""
        hidden, width = _widths_of(text)
        return {"hidden": hidden, "width": width}


class GaussianEncoder(nn.Module):
    """Layers with an activation behind each, then a linear head each for `mu` and `logvar`."""

    def __init__(self, widths: Sequence[int], activation: str) -> None:
        super().__init__()
        *before, width = widths
        self.layers = perceptron(before, activation, activation) if before[1:] else nn.Sequential()
        self.mu = nn.Linear(before[-1], width)
        self.logvar = nn.Linear(before[-1], width)
        # Small variances to begin with: the means must be able to part before noise drowns them.
        nn.init.constant_(self.logvar.bias, LOGVAR_START)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mu` and `logvar` of the rows of `x`."""
        hidden = self.layers(x)
        return self.mu(hidden), self.logvar(hidden)


class VariationalAutoencoder(Autoencoder, name="variational-autoencoder"):
    """An autoencoder whose code is a Gaussian of `width` dimensions; the decoder takes points."""

    head: ClassVar[str] = "csd"
    has_variance: ClassVar[bool] = True

    def encoder(self, widths: Sequence[int]) -> nn.Module:
        """Return the layers and both heads."""
        return GaussianEncoder(widths, self.activation)

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of the layers and of the heads."""
        if "mu.weight" not in text:
            return {}
        code = {k: v for k, v in text.items() if not k.startswith("logvar.")}
        return super().options_of(code, video)
