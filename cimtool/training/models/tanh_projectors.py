"""Model `tanh-projectors`: Linear-tanh layers into a common space of points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cimtool.base.arrays import Array
from cimtool.training.model import Model
from cimtool.training.options import positive
from cimtool.training.perceptron import parse_widths, perceptron
from cimtool.training.towers import TwoTower


@dataclass(frozen=True)
class TanhProjectors(Model, name="tanh-projectors"):
    """Linear layers, each with a tanh behind it, to `width` dimensions and no variance.

    `text_hidden` and `video_hidden` are widths of the layers before the last, `2000-500`, or
    `none`. The paper of ACMR has texts of 3000 numbers, 500, 200; the last 200 for both.
    """

    layout: ClassVar[str] = "perceptron"
    head: ClassVar[str] = "euclidean"
    has_variance: ClassVar[bool] = False

    text_hidden: str = "500"
    video_hidden: str = "500"
    width: int = 200

    def __post_init__(self) -> None:
        positive(self, "width")
        parse_widths(self.text_hidden, "model.text_hidden")
        parse_widths(self.video_hidden, "model.video_hidden")

    def build(self, text: int, video: int) -> TwoTower:
        """Return a chain for each modality, text first."""
        return TwoTower(
            perceptron((text, *_widths(self.text_hidden), self.width), "tanh", "tanh"),
            perceptron((video, *_widths(self.video_hidden), self.width), "tanh", "tanh"),
        )

    def deployed(self) -> Mapping[str, Any]:
        """The activations, which weights do not show."""
        return {"activation": "tanh", "output_activation": "tanh"}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The widths of both towers' layers."""
        found: dict[str, Any] = {}
        for name, tower in (("text_hidden", text), ("video_hidden", video)):
            widths = [array.shape[0] for key, array in tower.items() if key.endswith("weight")]
            found[name] = "-".join(map(str, widths[:-1])) or "none"
            found["width"] = widths[-1]
        return found


def _widths(text: str) -> tuple[int, ...]:
    return parse_widths(text, "hidden")
