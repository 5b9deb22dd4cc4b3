"""Model `autoencoder`: one encoder of items, and a decoder that only training needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cimtool.base.arrays import Array
from cimtool.base.named import unknown
from cimtool.training.model import Model
from cimtool.training.options import positive
from cimtool.training.perceptron import ACTIVATIONS, parse_widths, perceptron
from cimtool.training.towers import Encoded, TwoTower


class OneEncoder(TwoTower):
    """One encoder for both modalities; in `forward` they are the same rows, encoded once."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__(encoder, encoder, decoder)

    def forward(self, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
        """Return the codes of rows `text` [n, in], twice."""
        codes = self.text_tower(text)
        return codes, codes


@dataclass(frozen=True)
class Autoencoder(Model, name="autoencoder"):
    """Layers of `hidden` widths, such as `500-200` or `none`, to a code of `width` numbers.

    `activation` stands between layers; the decoder has the same layers the other way round.
    """

    layout: ClassVar[str] = "perceptron"
    head: ClassVar[str] = "euclidean"
    has_variance: ClassVar[bool] = False
    one_modality: ClassVar[bool] = True

    hidden: str = "256-128"
    width: int = 32
    activation: str = "relu"

    def __post_init__(self) -> None:
        positive(self, "width")
        parse_widths(self.hidden, "model.hidden")
        if self.activation not in ACTIVATIONS:
            raise unknown("model.activation", self.activation, ACTIVATIONS)

    def build(self, text: int, video: int) -> TwoTower:
        """Return the encoder and the decoder of rows of `text` numbers."""
        widths = (text, *parse_widths(self.hidden, "model.hidden"), self.width)
        return OneEncoder(self.encoder(widths), perceptron(widths[::-1], self.activation, "none"))

    def encoder(self, widths: Sequence[int]) -> nn.Module:
        """Return the layers from rows to the code."""
        return perceptron(widths, self.activation, "none")

    def deployed(self) -> Mapping[str, Any]:
        """The activation, which weights do not show."""
        return {"activation": self.activation}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of the encoder's layers."""
        *hidden, width = (array.shape[0] for key, array in text.items() if key.endswith("weight"))
        return {"hidden": "-".join(map(str, hidden)) or "none", "width": width}
