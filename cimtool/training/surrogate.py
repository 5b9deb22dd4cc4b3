"""Objectives on a polynomial: logits that are safe to learn from, deployed ones to rank by."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cimtool.base.errors import ArgumentError, CimError
from cimtool.reference.surrogate import Polynomial
from cimtool.training.loss import HELD_OUTSIDE, Loss, Objective, Task
from cimtool.training.towers import Encoded, all_pairs_ed, all_pairs_vd


class SafePolynomial(nn.Module):
    """A polynomial within its band, and beyond it straight on: its slopes never turn round.

    With `e` the nearest ed and `r` the nearest distance of vd from the line within the band, the
    value is `f(e, r)` plus constant slopes times what is beyond: along the line the polynomial's
    own at that end (or, if that is not negative, its mean over the line), and across the line
    that in the band's middle, at least 0. Raises CimError for a polynomial that predicts p, or
    does not fall along its line. The band is that of the polynomial's domain.
    """

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__()
        if not polynomial.fit_logit:
            raise CimError("the polynomial predicts p (fit_logit is false); expected one of logits")
        domain = polynomial.domain
        assert domain is not None
        assert domain.vd_line is not None
        assert domain.vd_beside_line is not None
        self.ed, self.line, self.beside = domain.ed, domain.vd_line, domain.vd_beside_line
        (low, high), (start, slope), (near, far) = self.ed, self.line, self.beside
        self.centre_ed, self.half_ed = (low + high) / 2, (high - low) / 2 or 1.0
        lows, highs = (start + slope * ed for ed in self.ed)
        ends = (min(lows, highs) + near, max(lows, highs) + far)
        self.centre_vd, self.half_vd = sum(ends) / 2, (ends[1] - ends[0]) / 2 or 1.0
        matrix = polynomial.shifted(self.centre_ed, self.half_ed, self.centre_vd, self.half_vd)
        self.matrix = [[float(c) for c in row] for row in matrix]
        self.slopes = self._slopes()

    def forward(self, ed: Tensor, vd: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, of ed's kind of float, and which pairs are beyond the band."""
        dtype, ed, vd = ed.dtype, ed.double(), vd.double()
        beside = vd - self._line(ed)
        e, r = ed.clamp(*self.ed), beside.clamp(*self.beside)
        below, above, across = self.slopes
        value = self._inside(e, r)
        value = value + below * (ed - e).clamp(max=0) + above * (ed - e).clamp(min=0)
        value = value + across * (beside - r)
        return value.to(dtype), (e != ed) | (r != beside)

    def raw(self, ed: Tensor, vd: Tensor) -> Tensor:
        """Return the polynomial as it is deployed, in float64, beyond the band as within it."""
        ed, vd = ed.double(), vd.double()
        return self._inside(ed, vd - self._line(ed))

    def _line(self, ed: Tensor) -> Tensor:
        """vd on the band's line."""
        start, slope = self.line
        return start + slope * ed

    def _inside(self, ed: Tensor, beside: Tensor) -> Tensor:
        """Horner, in float64 and in variables in [-1, 1], for the terms cancel."""
        u = (ed - self.centre_ed) / self.half_ed
        v = (self._line(ed) + beside - self.centre_vd) / self.half_vd
        total = torch.zeros_like(u)
        for i, row in reversed(list(enumerate(self.matrix))):
            inner = torch.zeros_like(v)
            for c in reversed(row[: len(self.matrix) - i]):
                inner = inner * v + c
            total = total * u + inner
        return total

    def _slopes(self) -> tuple[float, float, float]:
        """Slopes along the line below and above the band, and across it."""
        (low, high), mid = self.ed, sum(self.beside) / 2
        ed = torch.tensor([low, high, (low + high) / 2], dtype=torch.float64, requires_grad=True)
        beside = torch.full_like(ed, mid, requires_grad=True)
        with torch.enable_grad():
            value = self._inside(ed, beside)
            along, across = torch.autograd.grad(value.sum(), (ed, beside))
        mean = float((value[1] - value[0]).detach()) / (high - low or 1.0)
        if not mean < 0 or not math.isfinite(mean):
            raise CimError(
                f"the polynomial changes by {mean:g} a unit of ed over its domain; expected one "
                "that falls"
            )
        below, above = (float(a) if a < 0 else mean for a in along[:2])
        return below, above, max(float(across[2]), 0.0)


class PolynomialObjective(Objective):
    """An objective of a task with a polynomial; ArgumentError if the task has none."""

    def __init__(self, options: Loss, task: Task) -> None:
        super().__init__(options, task)
        if task.polynomial is None:
            raise ArgumentError('loss "{}" needs a polynomial; expected {poly} FILE', options.name)
        self.polynomial = SafePolynomial(task.polynomial)

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
