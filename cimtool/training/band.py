"""The place of pairs in the plane of ed and vd: a narrow band around a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.reference.surrogate import Extent


@dataclass(frozen=True)
class Band:
    """The range of `ed`, and that of vd less the line `start + slope ed`, which is `beside`.

    ed and vd of a model's pairs are nearly collinear, so a polynomial is fitted on a narrow band of
    the rectangle that they span; in the rectangle's other corners its powers mean nothing.
    """

    ed: Extent
    start: float
    slope: float
    beside: Extent

    @classmethod
    def of(cls, ed: FloatArray, vd: FloatArray) -> Band:
        """The band of pairs [n]: a least-squares line and what lies on both sides of it."""
        centred = ed - ed.mean()
        square = float(centred @ centred)
        slope = float(centred @ (vd - vd.mean())) / square if square else 0.0
        start = float(vd.mean() - slope * ed.mean())
        beside = vd - (start + slope * ed)
        return cls(extent(ed), start, slope, extent(beside))

    def scaled(self, ed: float, vd: float) -> Band:
        """The band of ed and vd times these factors."""
        low, high = self.ed
        near, far = self.beside
        return Band(
            (low * ed, high * ed), self.start * vd, self.slope * vd / ed, (near * vd, far * vd)
        )

    def domain(self) -> dict[str, Extent]:
        """The band as it stands in the `domain` of a polynomial's file."""
        return {"ed": self.ed, "vd_line": (self.start, self.slope), "vd_beside_line": self.beside}

    @classmethod
    def of_domain(cls, domain: Any, where: str) -> Band | None:
        """Read what `domain` returned, None where a part is missing; CimError for other values."""
        names = "ed", "vd_line", "vd_beside_line"
        if not isinstance(domain, Mapping) or any(name not in domain for name in names):
            return None
        ed, line, beside = (_pair(domain[name], f"{where}: domain.{name}") for name in names)
        return cls(ed, *line, beside)


def extent(values: FloatArray) -> Extent:
    """The least and the largest of values."""
    return float(values.min()), float(values.max())


def _pair(value: Any, where: str) -> Extent:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (2,) or not np.isfinite(array).all():
        raise CimError(f"{where} is {value}; expected two finite numbers")
    return float(array[0]), float(array[1])
