"""The optimiser's settings: AdamW over so many epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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

    def given(self, **changes: Any) -> Optimisation:
        """The same with what is not None of other settings, by their names."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})


def check_seed(seed: int) -> None:
    """Raise CimError for a seed that torch's generators do not take."""
    if not 0 <= seed < 2**63:
        raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", seed)
