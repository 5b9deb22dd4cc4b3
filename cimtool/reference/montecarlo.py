"""The matching probability by sampling: K samples a side, K*K sigmoids, their mean in log space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.compiled import side_by_side
from cimtool.base.errors import ArgumentError
from cimtool.reference.statistics import Gaussians, MatchProbabilities, blocks, centred

Modality = Literal["text", "video"]
_STREAM: dict[Modality, int] = {"text": 0, "video": 1}

# Sampled points: of videos that are drawn once and held, while the texts are drawn anew for each
# such block, by threads; of texts that a thread draws; and of the videos that it then takes at a
# time. Their product is the largest array, 13 MB whatever K: beyond 32 MB each would be new memory.
_VIDEO_POINTS = 20480
_TEXT_POINTS = 320
_NEAR_POINTS = 5120


_STEEP = 0.7
"""Relative standard error of a mean beyond which its logarithm is no straight line within it.

It is sqrt(2) where one of the K*K sigmoids is all of their sum.
"""

SURE = 1e-6
"""The size of x beyond which, of one sign throughout a pair, no rounding changes the larger sum."""

DEFAULT_SAMPLES = 10
"""Samples a side where nothing else is said."""


@dataclass(frozen=True, eq=False)
class SampledProbabilities(MatchProbabilities):
    """Estimates for all pairs, each [n, m] float64."""

    standard_error_of_logit: FloatArray


MOST_SAMPLES = 100_000
"""Samples a side: of each item they are held, and each of the text's meets each of the video's."""


def check_samples(samples: int) -> None:
    """Raise CimError where samples a side are too few for a standard error, or too many."""
    if not 2 <= samples <= MOST_SAMPLES:
        raise ArgumentError(
            "{samples} is {}; expected at least 2, for a standard error, and at most {:,}",
            samples,
            MOST_SAMPLES,
        )


def monte_carlo(
    text: Gaussians,
    video: Gaussians,
    a: float,
    b: float,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
) -> SampledProbabilities:
    """Estimate E[sigmoid(b - a |z_t - z_v|^2)] of all pairs from K = `samples` draws an item.

    Row numbers (0, 1, ...), `seed` and the modality key the draws of an item.
    The standard error is the two-sample one, sqrt(var(row means)/K + var(column means)/K), since
    the K*K pairs share their draws; the delta method carries it to the logit, and the jackknife
    where that error is more than 0.7 of the mean.
    Raises CimError where there are fewer than two samples or the seed is not in [0, 2^64).
    """
    check_samples(samples)
    if not 0 <= seed < 2**64:
        raise ArgumentError("{seed} is {}; expected 0 to 2^64 - 1", seed)
    rows_t, rows_v = np.arange(len(text)), np.arange(len(video))
    text, video = centred(text, video)
    log_p, log_1mp, error = (np.empty((len(text), len(video))) for _ in range(3))
    for held in blocks(len(video), _VIDEO_POINTS // samples):

        def drawn(cols: IntArray) -> tuple[IntArray, FloatArray]:
            z_v = draw(video[cols], "video", cols, samples, seed)
            # Sample-major, so that sums over samples run along contiguous videos.
            return cols, np.ascontiguousarray(z_v.transpose(1, 0, 2))

        parts = blocks(held.stop - held.start, _NEAR_POINTS // samples)
        near = side_by_side(drawn, [rows_v[held][part] for part in parts])

        def fill(rows: slice, near: list[tuple[IntArray, FloatArray]] = near) -> None:
            z_t = draw(text[rows], "text", rows_t[rows], samples, seed)
            for cols, z_v in near:
                for i, x in enumerate(_sigmoid_inputs(z_t, z_v, a, b), start=rows.start):
                    log_p[i, cols], log_1mp[i, cols], error[i, cols] = mean_of_sigmoids(x)

        side_by_side(fill, list(blocks(len(text), _TEXT_POINTS // samples)))
    return SampledProbabilities(log_p, log_1mp, error)


def draw(
    items: Gaussians, modality: Modality, rows: IntArray, samples: int, seed: int
) -> FloatArray:
    """Draw `samples` points of each item, [n, K, d], keyed by (seed, modality, row of the item).

    The first draws of an item are the same whatever K.
    """
    z = np.empty((len(items), samples, items.d))
    key = np.array([seed, _STREAM[modality]], np.uint64)
    for row, points in zip(rows, z, strict=True):
        # The row is the counter's top word, so that streams of two rows never meet.
        counter = np.array([0, 0, 0, row], np.uint64)
        Generator(Philox(key=key, counter=counter)).standard_normal(out=points)
    z *= np.sqrt(items.s)[:, None]
    z += items.mu[:, None]
    return z


def _sigmoid_inputs(z_t: FloatArray, z_v: FloatArray, a: float, b: float) -> Iterator[FloatArray]:
    """Yield b - a |z_t - z_v|^2 as [K text samples, K video samples, m], one text after the other.

    `z_t` is [n, K, d] and `z_v` [K, m, d].
    """
    n, K, d = z_t.shape
    dots = (z_t.reshape(n * K, d) @ z_v.reshape(-1, d).T).reshape(n, K, K, -1)
    norms_t = np.einsum("nkd,nkd->nk", z_t, z_t)
    norms_v = np.einsum("kmd,kmd->km", z_v, z_v)
    for x, norm in zip(dots, norms_t, strict=True):
        x *= 2 * a
        x -= a * norm[:, None, None]
        x += b - a * norms_v
        yield x


def mean_of_sigmoids(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log p, log(1-p) and the standard error of the logit, each [m], of x [K, K, m].

    The smaller of p and 1-p is taken from its own sum; the larger is what that leaves. The sum of a
    pair whose x all have one sign is left out where it cannot be the smaller.
    """
    lowest, highest = x.min(axis=(0, 1)), x.max(axis=(0, 1))
    log_p, error_p = _log_mean_sigmoid_of(x, lowest < SURE)
    log_1mp, error_1mp = _log_mean_sigmoid_of(x, highest > -SURE, negated=True)
    small_p = log_p < log_1mp
    smaller = np.where(small_p, log_p, log_1mp)
    larger = np.log1p(-np.exp(smaller))
    # d logit / dp = 1 / (p (1-p)), the same from either side.
    error = np.where(small_p, error_p, error_1mp) / np.exp(larger)
    return np.where(small_p, smaller, larger), np.where(small_p, larger, smaller), error


def _log_mean_sigmoid_of(
    x: FloatArray, wanted: BoolArray, negated: bool = False
) -> tuple[FloatArray, FloatArray]:
    """`_log_mean_sigmoid` of the pairs `wanted` [m], to the same bits; infinity for the others.

    Of -x where `negated`.
    """
    if wanted.all():
        return _log_mean_sigmoid(-x if negated else x)
    found = np.full((2, len(wanted)), np.inf)
    if wanted.any():
        # NumPy adds in an order that follows the layout, and another one for a pair alone.
        columns = np.union1d(np.flatnonzero(wanted), [0, 1])
        some = x.take(columns, axis=2) if x.flags.c_contiguous else x[:, :, columns]
        found[:, columns] = _log_mean_sigmoid(-some if negated else some)
    return found[0], found[1]


def _log_mean_sigmoid(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the log of the mean sigmoid of x [K, K, m] and the mean's relative standard error."""
    K = len(x)
    # logsumexp of logsigmoid: sigmoid(x) e^-c = 1 / (e^(c-x) + e^c), with c near the largest
    # log sigmoid, so that the largest term is of order one and none can underflow that counts.
    c = np.minimum(x.max(axis=(0, 1)), 0.0)
    terms = c - x
    with np.errstate(over="ignore"):  # an infinite denominator is a term of nothing
        np.exp(terms, out=terms)
        terms += np.exp(c)
    np.reciprocal(terms, out=terms)
    row_means, column_means = terms.mean(axis=1), terms.mean(axis=0)
    mean = row_means.mean(axis=0)
    variance = (row_means.var(axis=0, ddof=1) + column_means.var(axis=0, ddof=1)) / K
    error = np.sqrt(variance) / mean
    if (steep := error > _STEEP).any():
        error[steep] = _jackknife_error(x[:, :, steep])
    return c + np.log(mean), error


def _jackknife_error(x: FloatArray) -> FloatArray:
    """Return the standard error of the log mean sigmoid of x [K, K, m], by leaving out samples.

    Where one of the K*K sigmoids is nearly their sum, the relative error of the mean is sqrt(2)
    however far the largest of other draws would lie; the logarithm without its row tells how far.
    """
    K = len(x)
    log_sigmoids = -np.logaddexp(0.0, -x)
    others = np.array([np.delete(np.arange(K), i) for i in range(K)])
    variance = np.zeros(x.shape[2])
    for axis in (0, 1):
        sums = np.logaddexp.reduce(log_sigmoids, axis=axis)
        left = np.logaddexp.reduce(sums[others], axis=1)
        variance += (K - 1) * np.var(left, axis=0)
    return np.sqrt(variance)
