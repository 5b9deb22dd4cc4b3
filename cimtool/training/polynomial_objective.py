"""Base of the objectives on a polynomial: safe logits to learn from, deployed ones to rank by."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cimtool.base.errors import ArgumentError
from cimtool.training.loss import HELD_OUTSIDE, Loss, Objective, Task
from cimtool.training.surrogate import SafePolynomial
from cimtool.training.towers import Encoded, all_pairs_ed, all_pairs_vd


class PolynomialObjective(Objective):
    """An objective of a task with a polynomial; ArgumentError where the task has none."""

    def __init__(self, options: Loss, task: Task) -> None:
        super().__init__(options, task)
        if task.polynomial is None or task.band is None:
            raise ArgumentError('loss "{}" needs a polynomial; expected {poly} FILE', options.name)
        self.polynomial = SafePolynomial(task.polynomial, task.band)

    def safe_logits(self, text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
        """Return logits [n, m] that keep falling beyond the band, and which pairs are there."""
        logits, outside = self.polynomial(*_statistics(text, video))
        return logits, outside

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        """Return logits [n, m] that beyond the band do what the powers of the polynomial do."""
        return self.polynomial.raw(*_statistics(text, video))

    def watched(self, text: Encoded, video: Encoded) -> Mapping[str, Tensor]:
        """Return the share of pairs beyond the band."""
        return {HELD_OUTSIDE: self.safe_logits(text, video)[1].double().mean()}


def _statistics(text: Encoded, video: Encoded) -> tuple[Tensor, Tensor]:
    """ed and vd of all pairs, both [n, m]."""
    pairs = *text.moments, *video.moments
    return all_pairs_ed(*pairs), all_pairs_vd(*pairs)
