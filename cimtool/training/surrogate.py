"""The polynomial that a run trains on: its coefficients, and the band that it was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cimtool.base.errors import ArgumentError, CimError
from cimtool.loading.polynomial import parse_polynomial, polynomial_values
from cimtool.reference.surrogate import Polynomial
from cimtool.training.band import Band
from cimtool.training.pairs import Pairs
from cimtool.training.pairwise import all_pairs_ed, all_pairs_vd
from cimtool.training.towers import TwoTower

BAND_TEXTS = 1024
"""Texts that a band is measured on, at most."""


@dataclass(frozen=True)
class Surrogate:
    """A polynomial in the layout's own statistics; `band` is None where its file has no domain."""

    polynomial: Polynomial
    band: Band | None
    where: str

    def values(self) -> dict[str, Any]:
        """Tensors and plain values for a checkpoint."""
        one = self.polynomial
        known = {
            "degree": one.degree,
            "coeff": torch.tensor(one.coeff, dtype=torch.float64),
            "bias": one.bias,
            "scale_ed": one.scale_ed,
            "scale_vd": one.scale_vd,
            "fit_logit": one.fit_logit,
        }
        teacher = {name: getattr(one, name) for name in ("a", "b", "K")}
        known |= {name: value for name, value in teacher.items() if value is not None}
        if self.band is not None:
            domain = self.band.domain()
            known["domain"] = {name: list(ends) for name, ends in domain.items()}
        return known


def read_surrogate(path: Path) -> Surrogate:
    """Read a polynomial's file; CimError as `read_polynomial`."""
    return surrogate_of(polynomial_values(path), str(path))


def surrogate_of(values: Mapping[str, Any], where: str) -> Surrogate:
    """Take the values of a polynomial's file, or those that a checkpoint holds."""
    band = Band.of_domain(values.get("domain"), where)
    return Surrogate(parse_polynomial(values, where), band, where)


def measured_band(towers: TwoTower, pairs: Pairs) -> Band:
    """The band of raw ed and vd over all pairs of the first texts and their videos."""
    rows = pairs.batch(torch.arange(min(len(pairs), BAND_TEXTS)))
    text, video = towers.encode(rows.text, rows.video)
    sides = [x.double() for x in (*text.moments, *video.moments)]
    ed, vd = (f(*sides).flatten().numpy() for f in (all_pairs_ed, all_pairs_vd))
    return Band.of(ed, vd)


def unbounded(surrogate: Surrogate) -> CimError:
    """Build the error for a polynomial of which it is not known where it was fitted."""
    return ArgumentError(
        "{}: the polynomial has no domain, outside which it means nothing; expected one that "
        "`cimtool fit` wrote, or {start}, the model that it was fitted to",
        surrogate.where,
    )
