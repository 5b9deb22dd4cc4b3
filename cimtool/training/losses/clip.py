"""Loss `clip`: symmetric cross entropy on cosines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cimtool.training.contrast import info_nce
from cimtool.training.cosine import HEAD, CosineObjective
from cimtool.training.loss import Loss, Objective, Task
from cimtool.training.optimisation import Optimisation
from cimtool.training.options import positive


@dataclass(frozen=True)
class Clip(Loss, name="clip"):
    """Cross entropy of cosines at temperature `tau`, the mean of both ways (arXiv 2103.00020)."""

    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=20, batch=64, learning_rate=2e-5, weight_decay=0.02
    )

    tau: float = 0.07

    def __post_init__(self) -> None:
        positive(self, "tau")

    def deployed(self) -> Mapping[str, Any]:
        """The head that ranks as the loss does."""
        return HEAD

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters."""
        return _ClipObjective(self)


class _ClipObjective(CosineObjective):
    def __init__(self, options: Clip) -> None:
        super().__init__()
        self.options = options

    def term(self, cosines: Tensor, items: Tensor | None) -> Tensor:
        return info_nce(cosines, self.options.tau, items) / 2
