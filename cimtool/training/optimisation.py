"""How any model and loss are optimised: AdamW over so many epochs."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.base.errors import ArgumentError
from cimtool.training.options import whole


@dataclass(frozen=True)
class Optimisation:
    """AdamW's settings; CimError for one that is out of range. `batch` counts pairs."""

    epochs: int = 10
    batch: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 1)
        whole("batch", self.batch, 2)
        if not 0 < self.learning_rate < float("inf"):
            raise ArgumentError("{learning_rate} is {:g}; expected more than 0", self.learning_rate)
        if not 0 <= self.weight_decay < float("inf"):
            raise ArgumentError("{weight_decay} is {:g}; expected 0 or more", self.weight_decay)
