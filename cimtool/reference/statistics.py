"""Mean and variance of the squared distance between Gaussian embeddings, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Items of one modality: means `mu` [n, d] and variances `s` [n, d], kept as float64.

    Raises CimError where the two shapes are not one [n, d], or a variance is negative or NaN.
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
    """Subtract the mean over both modalities' `mu` from both; distances stay what they were.

    A shared offset would otherwise cancel only after products as large as its square.
    """
    centre = (text.mu.sum(axis=0) + video.mu.sum(axis=0)) / max(len(text) + len(video), 1)
    return Gaussians(text.mu - centre, text.s), Gaussians(video.mu - centre, video.s)


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


def pair_statistics(text: Gaussians, video: Gaussians) -> tuple[FloatArray, FloatArray]:
    """Return ed and vd of all pairs, both [n, m], by matrix products and no n x m x d array."""
    text, video = centred(text, video)
    return _block_statistics(text, _VideoTerms.of(video))


def iter_pair_statistics(
    text: Gaussians, video: Gaussians, rows: int = 1024
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield (text rows, ed [rows, m], vd [rows, m]) for at most `rows` texts at a time."""
    text, video = centred(text, video)
    terms = _VideoTerms.of(video)
    for start in range(0, len(text), rows):
        block = slice(start, min(start + rows, len(text)))
        yield block, *_block_statistics(text[block], terms)


def _self_terms(items: Gaussians) -> tuple[FloatArray, FloatArray]:
    """What an item adds to ed and to vd in every pair, both [n]: sum mu^2 + s, 2 s^2 + 4 mu^2 s."""
    mu2, s = items.mu**2, items.s
    return (mu2 + s).sum(axis=1), (2 * s * s + 4 * mu2 * s).sum(axis=1)


@dataclass(frozen=True, eq=False)
class _VideoTerms:
    """The video side of the expansion, made once for all blocks of texts."""

    mu: FloatArray  # [m, d]
    cross: FloatArray  # [m, 4d], facing the texts' [s, mu^2, mu s, mu]
    ed_self: FloatArray  # [m]
    vd_self: FloatArray  # [m]

    @classmethod
    def of(cls, video: Gaussians) -> _VideoTerms:
        mu, s = video.mu, video.s
        cross = np.concatenate([4 * (s + mu * mu), 4 * s, -8 * mu, -8 * mu * s], axis=1)
        return cls(mu, cross, *_self_terms(video))


def _block_statistics(text: Gaussians, video: _VideoTerms) -> tuple[FloatArray, FloatArray]:
    mu, s = text.mu, text.s
    ed_self, vd_self = _self_terms(text)
    ed = mu @ video.mu.T
    ed *= -2
    ed += ed_self[:, None]
    ed += video.ed_self
    vd = np.concatenate([s, mu * mu, mu * s, mu], axis=1) @ video.cross.T
    vd += vd_self[:, None]
    vd += video.vd_self
    return ed, vd
