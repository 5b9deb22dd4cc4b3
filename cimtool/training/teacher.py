"""The teacher's labels: Monte Carlo matching probabilities of aligned pairs, in log space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit, logsumexp

from cimtool.arrays import FloatArray, IntArray
from cimtool.reference.montecarlo import draw
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance

BLOCK = 256  # pairs at once: 40 MB of samples at d = 1024, K = 10


@dataclass(frozen=True)
class Sigmoid:
    """What the teacher computes: `E[sigmoid(b - a D)]` from `K` samples a side."""

    a: float = 0.1
    b: float = 0.0
    K: int = 10


@dataclass(frozen=True, eq=False)
class Labels:
    """Statistics and labels of pairs, each `[n]` float64."""

    ed: FloatArray
    vd: FloatArray
    log_p: FloatArray
    log_1mp: FloatArray

    @property
    def logit(self) -> FloatArray:
        """`log p - log(1-p)`, `[n]`: never clipped, so finite where p itself underflows."""
        return self.log_p - self.log_1mp


def teacher_labels(text: Gaussians, video: Gaussians, sigmoid: Sigmoid, seed: int = 0) -> Labels:
    """Label the aligned pairs of `text` and `video`, every pair with samples of its own."""
    log_p, log_1mp = np.empty(len(text)), np.empty(len(text))
    for start in range(0, len(text), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(text)))
        z_t = draw(text[rows], "text", rows, sigmoid.K, seed)
        z_v = draw(video[rows], "video", rows, sigmoid.K, seed)
        x = sigmoid.b - sigmoid.a * _squared_distances(z_t, z_v)
        pairs = 2 * np.log(sigmoid.K)
        log_p[rows] = logsumexp(log_expit(x), axis=(1, 2)) - pairs
        log_1mp[rows] = logsumexp(log_expit(-x), axis=(1, 2)) - pairs
    return Labels(expected_distance(text, video), distance_variance(text, video), log_p, log_1mp)


def mixed_pairs(
    rows: int, pairs: int, matched: float = 0.5, seed: int = 0
) -> tuple[IntArray, IntArray]:
    """Return text and video rows of `pairs` random pairs, a share `matched` of them right pairs.

    The rest pair any text with any video. The score ranks all pairs, of which nearly all are
    wrong: a teacher of mostly right pairs would leave their range to extrapolation.
    """
    rng = np.random.default_rng(seed)
    text = rng.integers(rows, size=pairs)
    video = np.where(rng.random(pairs) < matched, text, rng.integers(rows, size=pairs))
    return text, video


def _squared_distances(z_t: FloatArray, z_v: FloatArray) -> FloatArray:
    """Return `|z_t - z_v|^2` of all samples of aligned pairs: `[n, K, d]` twice to `[n, K, K]`."""
    # Around the pair's own midpoint, where the three terms cancel least.
    middle = (z_t.mean(axis=1, keepdims=True) + z_v.mean(axis=1, keepdims=True)) / 2
    x, y = z_t - middle, z_v - middle
    own_x, own_y = np.square(x).sum(axis=2), np.square(y).sum(axis=2)
    distances: FloatArray = own_x[:, :, None] + own_y[:, None, :] - 2 * x @ y.transpose(0, 2, 1)
    return distances
