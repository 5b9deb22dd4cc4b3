"""The polynomial that a run trains on, the band that it was fitted on, and its safe form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cimtool.base.errors import CimError
from cimtool.loading.polynomial import parse_polynomial, polynomial_values
from cimtool.reference.surrogate import Polynomial, shifted
from cimtool.training.band import Band


@dataclass(frozen=True)
class Surrogate:
    """A polynomial in the layout's own statistics; `band` is None where its file has no domain."""

    polynomial: Polynomial
    band: Band | None
    where: str

    def values(self) -> dict[str, Any]:
        """Tensors and plain values for a checkpoint."""
        known = {k: v for k, v in asdict(self.polynomial).items() if v is not None}
        known["coeff"] = torch.tensor(self.polynomial.coeff, dtype=torch.float64)
        if self.band is not None:
            known["domain"] = {**known.get("domain", {}), **self.band.domain()}
        if "domain" in known:
            ends = known["domain"].items()
            known["domain"] = {name: list(one) for name, one in ends if one is not None}
        return known


def read_surrogate(path: Path) -> Surrogate:
    """Read a polynomial's file; CimError as `read_polynomial`."""
    return surrogate_of(polynomial_values(path), str(path))


def surrogate_of(values: Mapping[str, Any], where: str) -> Surrogate:
    """Take the values of a polynomial's file, or those that a checkpoint holds."""
    band = Band.of_domain(values.get("domain"), where)
    return Surrogate(parse_polynomial(values, where), band, where)


class SafePolynomial(nn.Module):
    """A polynomial within its band, and beyond it straight on: its slopes never turn round.

    With `e` the nearest ed and `r` the nearest distance of vd from the line within the band, the
    value is `f(e, r)` plus constant slopes times what is beyond: along the line the polynomial's
    own at that end (or, where that is not negative, its mean over the line), and across the line
    that in the band's middle, at least 0. Raises CimError for a polynomial that predicts p, or
    does not fall along its line.
    """

    def __init__(self, polynomial: Polynomial, band: Band) -> None:
        super().__init__()
        if not polynomial.fit_logit:
            raise CimError("the polynomial predicts p (fit_logit is false); expected one of logits")
        self.band = band
        (low, high), (near, far) = band.ed, band.beside
        self.centre_ed, self.half_ed = (low + high) / 2, (high - low) / 2 or 1.0
        lows, highs = (band.start + band.slope * ed for ed in band.ed)
        ends = (min(lows, highs) + near, max(lows, highs) + far)
        self.centre_vd, self.half_vd = sum(ends) / 2, (ends[1] - ends[0]) / 2 or 1.0
        matrix = shifted(polynomial, self.centre_ed, self.half_ed, self.centre_vd, self.half_vd)
        self.matrix = [[float(c) for c in row] for row in matrix]
        self.slopes = self._slopes()

    def forward(self, ed: Tensor, vd: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, of ed's kind of float, and which pairs are beyond the band."""
        dtype, ed, vd = ed.dtype, ed.double(), vd.double()
        beside = self._beside(ed, vd)
        e, r = ed.clamp(*self.band.ed), beside.clamp(*self.band.beside)
        below, above, across = self.slopes
        value = self._inside(e, r)
        value = value + below * (ed - e).clamp(max=0) + above * (ed - e).clamp(min=0)
        value = value + across * (beside - r)
        return value.to(dtype), (e != ed) | (r != beside)

    def raw(self, ed: Tensor, vd: Tensor) -> Tensor:
        """Return the polynomial as it is deployed, in float64, beyond the band as within it."""
        ed, vd = ed.double(), vd.double()
        return self._inside(ed, self._beside(ed, vd))

    def _beside(self, ed: Tensor, vd: Tensor) -> Tensor:
        """Distance of vd from the band's line."""
        return vd - (self.band.start + self.band.slope * ed)

    def _inside(self, ed: Tensor, beside: Tensor) -> Tensor:
        """Horner, in float64 and in variables in [-1, 1], for the terms cancel."""
        u = (ed - self.centre_ed) / self.half_ed
        v = (self.band.start + self.band.slope * ed + beside - self.centre_vd) / self.half_vd
        total = torch.zeros_like(u)
        for i, row in reversed(list(enumerate(self.matrix))):
            inner = torch.zeros_like(v)
            for c in reversed(row[: len(self.matrix) - i]):
                inner = inner * v + c
            total = total * u + inner
        return total

    def _slopes(self) -> tuple[float, float, float]:
        """Slopes along the line below and above the band, and across it."""
        (low, high), mid = self.band.ed, sum(self.band.beside) / 2
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
