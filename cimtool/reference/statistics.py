"""Mean and variance of the squared distance between Gaussian embeddings, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import jit_sums
from cimtool.base.errors import CimError


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Items of one modality: means `mu` [n, d] and variances `s` [n, d], kept as float64.

    Raises CimError if the two shapes are not one [n, d], or a variance is negative or NaN.
    """

    mu: FloatArray
    s: FloatArray

    def __post_init__(self) -> None:
        mu, s = np.asarray(self.mu, np.float64), np.asarray(self.s, np.float64)
        if mu.ndim != 2 or mu.shape != s.shape:
            raise CimError(
                f"mu has shape {list(mu.shape)} and s {list(s.shape)}; expected one [n, d] for both"
            )
        if not np.all(s >= 0):
            raise CimError(f"s holds {s[~(s >= 0)][0]}; a variance is zero or more")
        object.__setattr__(self, "mu", mu)
        object.__setattr__(self, "s", s)

    def __len__(self) -> int:
        return len(self.mu)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.mu.shape[1])

    def __getitem__(self, rows: slice | Array) -> Gaussians:
        """Return the items of `rows`, a slice or an index array."""
        return Gaussians(self.mu[rows], self.s[rows])


def centred(text: Gaussians, video: Gaussians) -> tuple[Gaussians, Gaussians]:
    """Subtract the mean over both modalities' `mu` from both; distances stay the same.

    A shared offset would otherwise cancel only after products as large as its square.
    """
    centre = (text.mu.sum(axis=0) + video.mu.sum(axis=0)) / max(len(text) + len(video), 1)
    return Gaussians(text.mu - centre, text.s), Gaussians(video.mu - centre, video.s)


@dataclass(frozen=True, eq=False)
class MatchProbabilities:
    """log p and log(1-p) of all pairs, each [n, m] float64."""

    log_p: FloatArray
    log_1mp: FloatArray

    @property
    def logit(self) -> FloatArray:
        """log(p / (1 - p)), [n, m]."""
        return self.log_p - self.log_1mp


def expected_distance(text: Gaussians, video: Gaussians) -> FloatArray:
    """E|z_t - z_v|^2 of aligned rows, [n]: `sum delta^2 + s` with s = s_t + s_v."""
    delta = text.mu - video.mu
    ed: FloatArray = (delta * delta + text.s + video.s).sum(axis=1)
    return ed


def distance_variance(text: Gaussians, video: Gaussians) -> FloatArray:
    """Var|z_t - z_v|^2 of aligned rows, [n]: `sum 2 s^2 + 4 delta^2 s` with s = s_t + s_v."""
    delta, s = text.mu - video.mu, text.s + video.s
    vd: FloatArray = (2 * s * s + 4 * delta * delta * s).sum(axis=1)
    return vd


def pair_statistics(
    text: Gaussians, video: Gaussians, rows: tuple[IntArray, IntArray]
) -> tuple[FloatArray, FloatArray]:
    """`expected_distance` and `distance_variance` of pairs, given their rows [n] each; compiled."""
    ed, vd = np.empty(len(rows[0])), np.empty(len(rows[0]))
    mu_t, s_t = np.ascontiguousarray(text.mu), np.ascontiguousarray(text.s)
    mu_v, s_v = np.ascontiguousarray(video.mu), np.ascontiguousarray(video.s)
    _pair_statistics(mu_t, s_t, mu_v, s_v, *rows, ed, vd)
    return ed, vd


@jit_sums
def _pair_statistics(
    mu_t: FloatArray, s_t: FloatArray, mu_v: FloatArray, s_v: FloatArray,
    i: IntArray, j: IntArray, ed: FloatArray, vd: FloatArray,
) -> None:  # fmt: skip
    for pair in range(len(i)):
        t, v = i[pair], j[pair]
        mean, variance = 0.0, 0.0
        for k in range(mu_t.shape[1]):
            delta, s = mu_t[t, k] - mu_v[v, k], s_t[t, k] + s_v[v, k]
            square = delta * delta
            mean += square + s
            variance += s * (2 * s + 4 * square)
        ed[pair], vd[pair] = mean, variance
