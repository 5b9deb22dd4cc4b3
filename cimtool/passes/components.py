"""Fewer dimensions for a shortlist: principal components of calibration rows, rotated.

The components hold most of what rows differ in, but their variances fall off, and codes of few bits
in steps that all values share waste bits on the small ones. A rotation within them, drawn once,
spreads the variance evenly and keeps every product (the rotation of RaBitQ, Gao and Long 2024,
arXiv 2405.12497).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.errors import ArgumentError
from cimtool.base.threads import one_blas_thread
from cimtool.ir.format import round_half_up

NEGLIGIBLE = 1e-9
"""Share of the largest variance below which a component is rounding alone."""

ROTATION_SEED = 16
"""Any would do: the rotation is one of all alike."""


@dataclass(frozen=True, eq=False)
class Components:
    """An integer map `weight` [d, D], in steps, from rows less their centre to components."""

    weight: IntArray
    step: float

    def of(self, rows: IntArray) -> IntArray:
        """The components [n, D] of integer rows [n, d], whose sums float64 holds exactly."""
        return (rows.astype(np.float64) @ self.weight.astype(np.float64)).astype(np.int64)


class PrincipalComponents:
    """The principal components of centred rows [n, d], those of the largest variance first."""

    def __init__(self, rows: FloatArray):
        with one_blas_thread:
            variances, directions = np.linalg.eigh(rows.T @ rows)
        self.directions = directions[:, ::-1]
        differing = int((variances > NEGLIGIBLE * variances.max()).sum())
        self.most = min(differing, rows.shape[1] - 1)
        """The most dimensions that a map may have: those in which rows differ, fewer than d."""

    def of(self, dimensions: int, weight_bits: int) -> Components:
        """The map to so many dimensions, in weights of so many bits.

        Raises ArgumentError where the rows do not differ in so many, or have no more.
        """
        if not 1 <= dimensions <= self.most:
            raise ArgumentError(
                "{shortlist_dimensions} is {}; expected 1 to {}, in which the calibration features "
                "differ and which are fewer than their {}",
                dimensions,
                self.most,
                len(self.directions),
            )
        with one_blas_thread:
            found = self.directions[:, :dimensions] @ _rotation(dimensions)
        top = (1 << weight_bits - 1) - 1
        step = float(np.abs(found).max()) / top
        return Components(round_half_up(found / step), step)


def _rotation(size: int) -> FloatArray:
    drawn = np.random.default_rng(ROTATION_SEED).normal(size=(size, size))
    orthogonal: FloatArray = np.linalg.qr(drawn)[0]
    return orthogonal
