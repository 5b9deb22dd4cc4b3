"""Loss `info-nce-poly`: InfoNCE on the logits of the polynomial that is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cimtool.base.errors import ArgumentError
from cimtool.training.contrast import info_nce, variance_regulariser
from cimtool.training.loss import HELD_OUTSIDE, Batch, Loss, Objective, Task, Terms
from cimtool.training.optimisation import Optimisation
from cimtool.training.options import not_negative, positive
from cimtool.training.pairwise import all_pairs_ed, all_pairs_vd
from cimtool.training.safe_polynomial import SafePolynomial
from cimtool.training.towers import Encoded


@dataclass(frozen=True)
class InfoNcePoly(Loss, name="info-nce-poly"):
    """Symmetric InfoNCE of poly(ed, vd) at `tau`, and `variance` times the KL to N(0, 1).

    Its defaults are those of the document of the polynomial surrogate (its step 5).
    """

    needs_variance: ClassVar[bool] = True
    needs_polynomial: ClassVar[bool] = True
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=10, batch=64, learning_rate=5e-6, weight_decay=1e-4
    )

    tau: float = 0.07
    variance: float = 0.001

    def __post_init__(self) -> None:
        positive(self, "tau")
        not_negative(self, "variance")

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters; CimError for a polynomial of p."""
        if task.polynomial is None or task.band is None:
            raise ArgumentError('loss "info-nce-poly" needs a polynomial; expected {poly} FILE')
        return _PolynomialObjective(self, SafePolynomial(task.polynomial, task.band))


class _PolynomialObjective(Objective):
    def __init__(self, options: InfoNcePoly, polynomial: SafePolynomial) -> None:
        super().__init__()
        self.options = options
        self.polynomial = polynomial

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        logits, outside = self.polynomial(*_statistics(text, video))
        contrast = info_nce(logits, self.options.tau, batch.items)
        regulariser = variance_regulariser(text, video, self.options.variance)
        terms = {"info_nce": contrast, "variance": regulariser}
        return Terms(terms, {"outside": outside.float().mean()})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        # Not the safe one: beyond the band the deployed polynomial does what its powers do.
        return self.polynomial.raw(*_statistics(text, video))

    def watched(self, text: Encoded, video: Encoded) -> Mapping[str, Tensor]:
        outside = self.polynomial(*_statistics(text, video))[1]
        return {HELD_OUTSIDE: outside.double().mean()}


def _statistics(text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
    """ed and vd of all pairs, both [n, m]."""
    pairs = *text.moments, *video.moments
    return all_pairs_ed(*pairs), all_pairs_vd(*pairs)
