"""Loss `info-nce`: InfoNCE on -a ed, which is what the polynomial's logit is to first order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cimtool.training.contrast import info_nce, variance_regulariser
from cimtool.training.loss import Batch, Loss, Objective, Task, Terms
from cimtool.training.options import not_negative, positive
from cimtool.training.pairwise import all_pairs_ed
from cimtool.training.towers import Encoded


@dataclass(frozen=True)
class InfoNce(Loss, name="info-nce"):
    """Symmetric InfoNCE of -a ed at temperature `tau`, and `variance` times the KL to N(0, 1)."""

    needs_variance: ClassVar[bool] = True

    a: float = 0.1
    tau: float = 0.7
    variance: float = 0.001

    def __post_init__(self) -> None:
        positive(self, "a", "tau")
        not_negative(self, "variance")

    def deployed(self) -> Mapping[str, Any]:
        """The slope and offset of -a ed, for head `csd` and for a teacher."""
        return {"a": self.a, "b": 0.0}

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters."""
        return _InfoNceObjective(self)


class _InfoNceObjective(Objective):
    def __init__(self, options: InfoNce) -> None:
        super().__init__()
        self.options = options

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        contrast = info_nce(self.scores(text, video), self.options.tau, batch.items)
        regulariser = variance_regulariser(text, video, self.options.variance)
        return Terms({"info_nce": contrast, "variance": regulariser})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        return -self.options.a * all_pairs_ed(*text.moments, *video.moments)
