"""The linear maps of both sides that a training may start from: canonical correlations.

With covariances S of the rows, each shrunk to S + r t I where t is its mean eigenvalue, and C the
covariance of right pairs, the SVD S_t^-1/2 C S_v^-1/2 = U diag(s) V' gives the maps
S_t^-1/2 U diag(s)^1/2 and S_v^-1/2 V diag(s)^1/2: canonical ridge (Vinod, J. Econometrics 4, 1976),
where a dimension counts by its correlation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The shrinkages r that are tried."""

LEAST_EIGENVALUE = 1e-12
"""The share of the mean eigenvalue that is taken for a direction that no row has."""


@dataclass(frozen=True, eq=False)
class LinearMap:
    """The map of rows x [n, in] to (x - mean) weight [n, k], in float64."""

    mean: FloatArray
    weight: FloatArray

    def of(self, rows: Array) -> FloatArray:
        """The mapped rows [n, k]."""
        found: FloatArray = (rows.astype(np.float64) - self.mean) @ self.weight
        return found


@dataclass(frozen=True, eq=False)
class LinearStart:
    """The maps of texts and of videos to the same k dimensions, by one shrinkage."""

    text: LinearMap
    video: LinearMap
    ridge: float

    def distances(self, text: Array, video: Array) -> FloatArray:
        """Squared distances [n, m] of mapped rows [n, in] and [m, in]."""
        x, y = self.text.of(text), self.video.of(video)
        found: FloatArray = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T
        return found


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Maps of all training pairs, and figures of pairs that their penalty was tried on.

    `residual` [k] is the mean square difference of both sides of right pairs, per dimension;
    sigmoid(b - a |difference|^2) their probability, right and wrong pairs having half of the
    weight each. `beside_rows` is the weight of the maps in `rows_and_maps`, 0 if it was not asked
    for.
    """

    start: LinearStart
    residual: FloatArray
    a: float
    b: float
    beside_rows: float = 0.0

    def sigmoid(self, variance: float) -> dict[str, float]:
        """The a and b of sigmoid(b - a ed), if the variances of both sides add up to `variance`."""
        return {"a": self.a, "b": self.b + self.a * variance}


def directions(width: int, dimensions: int) -> FloatArray:
    """Orthonormal directions [width, dimensions] of rows, along which their maps are added."""
    drawn = np.random.default_rng(0).normal(size=(width, dimensions))
    found: FloatArray = np.linalg.qr(drawn).Q
    return found


def rows_and_maps(rows: Array, own: LinearMap, weight: float) -> FloatArray:
    """Rows [n, in] with `weight` times their maps added, at unit norm."""
    found = rows + weight * own.of(rows) @ directions(rows.shape[1], own.weight.shape[1]).T
    unit: FloatArray = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def linear_starts(
    text: Array, video: Array, dimensions: int, ridges: Sequence[float] = RIDGES
) -> Iterator[LinearStart]:
    """Yield the maps for each ridge from right pairs of rows [n, in], to `dimensions` at most.

    The mean square of the entries of mapped rows is 1.
    """
    means = text.mean(axis=0, dtype=np.float64), video.mean(axis=0, dtype=np.float64)
    x, y = (rows.astype(np.float64) - mean for rows, mean in zip((text, video), means, strict=True))
    between = x.T @ y / len(x)
    sides = [np.linalg.eigh(one.T @ one / len(one)) for one in (x, y)]
    for ridge in ridges:
        half = []
        for values, vectors in sides:
            mean = float(values.mean()) or 1.0
            shrunk = np.maximum(values, LEAST_EIGENVALUE * mean) + ridge * mean
            half.append((vectors / np.sqrt(shrunk)) @ vectors.T)
        u, s, v = np.linalg.svd(half[0] @ between @ half[1], full_matrices=False)
        root = np.sqrt(s[:dimensions])
        maps = half[0] @ (u[:, :dimensions] * root), half[1] @ (v[:dimensions].T * root)
        square = (np.square(x @ maps[0]).mean() + np.square(y @ maps[1]).mean()) / 2
        scale = 1 / np.sqrt(square) if square > 0 else 1.0
        one, other = (LinearMap(m, w * scale) for m, w in zip(means, maps, strict=True))
        yield LinearStart(one, other, ridge)
