"""Base of the models: classes that build two towers and know how they are deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cimtool.base.arrays import Array
from cimtool.base.named import Named
from cimtool.training.pairs import Pairs
from cimtool.training.towers import TwoTower


@dataclass(frozen=True)
class Model(Named):
    """Base of the models; a subclass in `cimtool/training/models/` is found by itself.

    A subclass is a frozen dataclass whose fields are its options, each an int, float, bool or str
    with a default, set as `model.<field>`; its `__post_init__` refuses values.
    """

    kind: ClassVar[str] = "model"
    layout: ClassVar[str]
    """The layout of `cimtool.loading` that reads what is saved; it knows whether rows have unit
    norm and what ed and vd are divided by."""
    head: ClassVar[str] = "pcme-poly"
    """The head that the model is deployed with."""
    has_variance: ClassVar[bool] = True
    """True where the towers give `logvar` beside `mu`."""
    one_modality: ClassVar[bool] = False
    """True where both towers are one encoder of items, so that data are of one modality."""

    def deployed(self) -> Mapping[str, Any]:
        """Plain values that the layout needs beside the weights, such as an activation."""
        return {}

    def build(self, text: int, video: int) -> TwoTower:
        """Return towers at their start for rows of so many numbers; CimError for widths amiss.

        Whatever is drawn is drawn from torch's global generator.
        """
        raise NotImplementedError

    def remarks(self, towers: TwoTower, held: Pairs) -> tuple[str, ...]:
        """Sentences on trained towers, in eval mode, and held-out pairs that end a run."""
        return ()

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The options that show in the weights of saved towers, by their keys."""
        return {}
