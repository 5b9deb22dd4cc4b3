"""The matching probability by sampling: K samples per side, K*K sigmoids, mean in log space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import FloatArray, IntArray, blocks
from cimtool.base.compiled import jit_fused, jit_fused_part, jit_sums
from cimtool.base.errors import ArgumentError
from cimtool.base.progress import Countdown, Say, silent
from cimtool.base.threads import side_by_side
from cimtool.reference.elementary import exponentials
from cimtool.reference.statistics import Gaussians, MatchProbabilities, centred

Modality = Literal["text", "video"]
_STREAM: dict[Modality, int] = {"text": 0, "video": 1}

# Sampled points. A block of videos is drawn once and held. For each block, threads draw the texts
# anew, and take some of its videos at a time. The largest array is the product of the last two,
# 13 MB for every K: beyond 32 MB, each array would be allocated anew.
_VIDEO_POINTS = 20480
_TEXT_POINTS = 320
_NEAR_POINTS = 5120

# Blocks of texts between two lines of progress, enough for threads to end at about the same time.
_TOLD = 16

DEFAULT_SAMPLES = 10
"""Samples per side by default."""


@dataclass(frozen=True, eq=False)
class SampledProbabilities(MatchProbabilities):
    """Estimates for all pairs, each [n, m] float64, or for some, each [P].

    Of one sample the standard error is NaN.
    """

    standard_error_of_logit: FloatArray


MOST_SAMPLES = 100_000
"""Most samples per side: they are held for each item, and all texts' meet all videos' samples."""


def check_samples(samples: int) -> None:
    """Raise CimError if samples per side are none, or too many."""
    if not 1 <= samples <= MOST_SAMPLES:
        raise ArgumentError(
            "{samples} is {}; expected at least 1, and at most {:,}", samples, MOST_SAMPLES
        )


def monte_carlo(
    text: Gaussians,
    video: Gaussians,
    a: float,
    b: float,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    say: Say = silent,
) -> SampledProbabilities:
    """Estimate E[sigmoid(b - a |z_t - z_v|^2)] of all pairs from K = `samples` draws per item.

    Row numbers (0, 1, ...), `seed` and the modality key the draws of an item.
    The standard error is for two samples, sqrt(var(row means)/K + var(column means)/K), since the
    K*K pairs share their draws. The delta method carries it to the logit. If that error is more
    than 0.7 of the mean, the jackknife does. One sample has no standard error; its logit is
    b - a |z_t - z_v|^2 of one draw.
    Raises CimError for less than one sample, for too many, or a seed that is not in [0, 2^64).
    """
    check_samples(samples)
    if not 0 <= seed < 2**64:
        raise ArgumentError("{seed} is {}; expected 0 to 2^64 - 1", seed)
    rows_t, rows_v = np.arange(len(text)), np.arange(len(video))
    text, video = centred(text, video)
    n, m = len(text), len(video)
    log_p, log_1mp, error = (np.empty((n, m)) for _ in range(3))
    texts, countdown = list(blocks(n, _TEXT_POINTS // samples)), Countdown(say)
    for held in blocks(m, _VIDEO_POINTS // samples):

        def drawn(cols: IntArray) -> tuple[IntArray, FloatArray]:
            z_v = draw(video[cols], "video", cols, samples, seed)
            # Sample-major, so that sums over samples run along contiguous videos.
            return cols, np.ascontiguousarray(z_v.transpose(1, 0, 2))

        parts = blocks(held.stop - held.start, _NEAR_POINTS // samples)
        near = side_by_side(drawn, [rows_v[held][part] for part in parts])

        def fill(rows: slice, near: list[tuple[IntArray, FloatArray]] = near) -> None:
            z_t = draw(text[rows], "text", rows_t[rows], samples, seed)
            for cols, z_v in near:
                found = mean_of_sigmoids(_sigmoid_inputs(z_t, z_v, a, b))
                log_p[rows, cols], log_1mp[rows, cols], error[rows, cols] = found

        for first in range(0, len(texts), _TOLD):
            some = texts[first : first + _TOLD]
            side_by_side(fill, some)
            done = n * held.start + some[-1].stop * (held.stop - held.start)
            if some[-1].stop - some[0].start < n or held.stop - held.start < m:
                countdown.tell(f"Monte Carlo: {done:,} of {n * m:,} pairs", done, n * m)
    return SampledProbabilities(log_p, log_1mp, error)


def monte_carlo_of_pairs(
    text: Gaussians,
    video: Gaussians,
    sigmoid: tuple[float, float],
    pairs: tuple[IntArray, IntArray],
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
) -> SampledProbabilities:
    """Estimate `pairs` alone, rows of texts [P] in order and of videos [P], by (a, b); all are [P].

    An item has the draws that `monte_carlo` gives it. Raises CimError as that does.
    """
    check_samples(samples)
    text, video = centred(text, video)
    texts, videos = pairs
    log_p, log_1mp, error = (np.empty(len(texts)) for _ in range(3))
    for held in blocks(len(video), _VIDEO_POINTS // samples):
        rows_v = np.arange(held.start, held.stop)

        def drawn(part: slice, rows_v: IntArray = rows_v) -> FloatArray:
            return draw(video[rows_v[part]], "video", rows_v[part], samples, seed)

        parts = list(blocks(len(rows_v), _NEAR_POINTS // samples))
        points = np.concatenate(side_by_side(drawn, parts))
        norms = np.einsum("mkd,mkd->mk", points, points)
        of_block = np.flatnonzero((videos >= held.start) & (videos < held.stop))
        starts = np.flatnonzero(np.diff(texts[of_block], prepend=-1))
        by_text = np.split(of_block, starts[1:]) if len(of_block) else []

        def fill(
            some: slice, points: FloatArray = points, norms: FloatArray = norms,
            first: int = held.start, by_text: list[IntArray] = by_text,
        ) -> None:  # fmt: skip
            for of_text in by_text[some]:
                row = texts[of_text[:1]]
                (z_t,) = draw(text[row], "text", row, samples, seed)
                norms_t = np.einsum("kd,kd->k", z_t, z_t)[None]
                for part in blocks(len(of_text), _NEAR_POINTS // samples):
                    few = of_text[part]
                    near = videos[few] - first
                    # Pair by pair: to gather the points of a few videos would take longer.
                    products = np.empty((len(few), samples, samples))
                    for product, one in zip(products, near, strict=True):
                        np.dot(z_t, points[one].T, out=product)
                    x = np.ascontiguousarray(products.transpose(1, 2, 0))[None]
                    _to_inputs(x, norms_t, np.ascontiguousarray(norms[near].T), *sigmoid)
                    found = mean_of_sigmoids(x)
                    log_p[few], log_1mp[few], error[few] = (one[0] for one in found)

        side_by_side(fill, list(blocks(len(by_text), _TOLD)))
    return SampledProbabilities(log_p, log_1mp, error)


def draw(
    items: Gaussians, modality: Modality, rows: IntArray, samples: int, seed: int
) -> FloatArray:
    """Draw `samples` points of each item, [n, K, d], keyed by (seed, modality, row of the item).

    The first draws of an item are the same for every K.
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


def _sigmoid_inputs(z_t: FloatArray, z_v: FloatArray, a: float, b: float) -> FloatArray:
    """b - a |z_t - z_v|^2 as [n, K text samples, K video samples, m].

    `z_t` is [n, K, d] and `z_v` [K, m, d].
    """
    n, K, d = z_t.shape
    x: FloatArray = (z_t.reshape(n * K, d) @ z_v.reshape(-1, d).T).reshape(n, K, K, -1)
    norms_t = np.einsum("nkd,nkd->nk", z_t, z_t)
    norms_v = np.einsum("kmd,kmd->km", z_v, z_v)
    _to_inputs(x, norms_t, norms_v, a, b)
    return x


@jit_sums
def _to_inputs(x: FloatArray, norms_t: FloatArray, norms_v: FloatArray, a: float, b: float) -> None:
    """Turn the inner products x [n, K, K, m] into sigmoid inputs, in place."""
    for text in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                row, near, own = x[text, i, j], norms_v[j], b - a * norms_t[text, i]
                for k in range(len(row)):
                    row[k] = own + a * (2.0 * row[k] - near[k])


SURE = 1e-6
"""If all x of a pair have one sign and are beyond this, rounding cannot swap p and 1-p in size."""

STEEP = 0.7
"""Relative standard error of a mean beyond which its logarithm is not linear within the error.

It is sqrt(2) if one of the K*K sigmoids makes up their whole sum.
"""


def mean_of_sigmoids(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log p, log(1-p) and the standard error of the logit, each [n, m], of x [n, K, K, m].

    The smaller of p and 1-p comes from its sum of sigmoids; the larger is 1 minus the smaller. If
    all x of a pair have one sign, only the sum that can be the smaller is computed. The error is
    for two samples, sqrt(var(row means)/K + var(column means)/K), since the K*K sigmoids share K
    samples per side. The delta method carries it to the logit, or the jackknife if it is more than
    0.7 of the mean.
    """
    x = np.ascontiguousarray(x)
    side, smaller, error = (np.empty((len(x), x.shape[3])) for _ in range(3))
    _smaller_means(x, side, smaller, error)
    for text in np.flatnonzero((error > STEEP).any(axis=1)):  # one at a time: they may be many
        steep = error[text] > STEEP
        error[text, steep] = _jackknife_error(side[text, steep] * x[text][:, :, steep])
    larger = np.log1p(-np.exp(smaller))
    # d logit / dp = 1 / (p (1-p)), the same from either side.
    error /= np.exp(larger)
    is_p = side > 0
    return np.where(is_p, smaller, larger), np.where(is_p, larger, smaller), error


@jit_fused
def _smaller_means(
    x: FloatArray, side: FloatArray, log_mean: FloatArray, error: FloatArray
) -> None:
    """Write which of p (1) and 1-p (-1) is less, its logarithm, and its relative error, [n, m].

    logsumexp of logsigmoid: sigmoid(y) e^-c = 1 / (e^(c-y) + e^c), with c near the largest log
    sigmoid. So the largest term is of order one, and no term that counts can underflow. If c is 0,
    sigmoid(-y) is e^-y times that.
    """
    n, K, _, m = x.shape
    low, high, c, shift = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    room, powers, terms = np.empty(m), np.empty(m), np.empty(m)
    sums = np.empty((2, 2, K, m))  # of both sides' rows and columns
    for text in range(n):
        low[:], high[:] = math.inf, -math.inf
        for i in range(K):
            for j in range(K):
                _widen(x[text, i, j], low, high)
        either = False
        for k in range(m):
            side[text, k] = -1.0 if low[k] >= SURE else 1.0
            top = high[k] if low[k] < SURE else -low[k]
            c[k] = top if top <= -SURE else 0.0
            shift[k] = math.exp(c[k])
            either |= (low[k] < SURE) & (high[k] > -SURE)
        sums[:] = 0.0
        for i in range(K):
            for j in range(K):
                _terms(x[text, i, j], side[text], c, shift, room, powers, terms)
                _add(terms, sums[0, 0, i])
                _add(terms, sums[0, 1, j])
                if either:
                    _multiply(terms, powers)  # now sigmoid(-side x), where c is 0
                    _add(powers, sums[1, 0, i])
                    _add(powers, sums[1, 1, j])
        for k in range(m):
            mean, spread = _mean(sums[0, :, :, k])
            if (low[k] < SURE) & (high[k] > -SURE):
                other, other_spread = _mean(sums[1, :, :, k])
                if other <= mean:
                    side[text, k], mean, spread = -1.0, other, other_spread
            log_mean[text, k], error[text, k] = c[k] + math.log(mean), spread / mean


@jit_fused_part
def _widen(x: FloatArray, low: FloatArray, high: FloatArray) -> None:
    for k in range(len(x)):
        low[k] = min(low[k], x[k])
        high[k] = max(high[k], x[k])


@jit_fused_part
def _terms(
    x: FloatArray, side: FloatArray, c: FloatArray, shift: FloatArray, room: FloatArray,
    powers: FloatArray, terms: FloatArray,
) -> None:  # fmt: skip
    """Write e^(c - side x) to `powers`, and from it sigmoid(side x) e^-c to `terms`."""
    for k in range(len(x)):
        powers[k] = c[k] - side[k] * x[k]
    exponentials(powers, room)
    for k in range(len(x)):
        terms[k] = 1.0 / (powers[k] + shift[k])


@jit_fused_part
def _add(terms: FloatArray, sums: FloatArray) -> None:
    for k in range(len(sums)):
        sums[k] += terms[k]


@jit_fused_part
def _multiply(factors: FloatArray, values: FloatArray) -> None:
    for k in range(len(values)):
        values[k] *= factors[k]


@jit_fused_part
def _mean(sums: FloatArray) -> tuple[float, float]:
    """The mean of K*K numbers from the sums [2, K] of their rows and columns, and its error.

    The error of one number is 0 / 0: NaN.
    """
    K = sums.shape[1]
    total = 0.0
    for i in range(K):
        total += sums[0, i]
    mean, square = total / (K * K), 0.0
    for i in range(K):
        square += (sums[0, i] / K - mean) ** 2 + (sums[1, i] / K - mean) ** 2
    return mean, math.sqrt(square / (K * (K - 1)))


def _jackknife_error(x: FloatArray) -> FloatArray:
    """Return the standard error of the log mean sigmoid of x [K, K, m], by leaving out samples.

    If one of the K*K sigmoids is nearly their whole sum, the relative error of the mean is sqrt(2),
    however much the largest varies between draws; the logarithm without its row shows how much.
    """
    K = len(x)
    log_sigmoids = -np.logaddexp(0.0, -x)
    others = _others(K)
    variance = np.zeros(x.shape[2])
    for axis in (0, 1):
        sums = np.logaddexp.reduce(log_sigmoids, axis=axis)
        left = np.logaddexp.reduce(sums[others], axis=1)
        # Row by row: for a single pair, NumPy would add in another order.
        mean = sum(left) / K
        variance += (K - 1) / K * sum(np.square(left - mean))
    return np.sqrt(variance)


@lru_cache(1)
def _others(K: int) -> IntArray:
    """The numbers below K but one, [K, K - 1], that one left out in turn."""
    found: IntArray = np.array([np.delete(np.arange(K), i) for i in range(K)])
    return found
