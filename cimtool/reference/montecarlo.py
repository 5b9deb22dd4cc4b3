"""The matching probability by sampling: K samples a side, K*K sigmoids, their mean in log space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.compiled import jit_sums
from cimtool.base.errors import ArgumentError
from cimtool.base.progress import Countdown, Say, silent
from cimtool.base.threads import side_by_side
from cimtool.reference.sigmoid_means import mean_of_sigmoids
from cimtool.reference.statistics import Gaussians, MatchProbabilities, blocks, centred

Modality = Literal["text", "video"]
_STREAM: dict[Modality, int] = {"text": 0, "video": 1}

# Sampled points: of videos that are drawn once and held, while the texts are drawn anew for each
# such block, by threads; of texts that a thread draws; and of the videos that it then takes at a
# time. Their product is the largest array, 13 MB whatever K: beyond 32 MB each would be new memory.
_VIDEO_POINTS = 20480
_TEXT_POINTS = 320
_NEAR_POINTS = 5120

# Blocks of texts between two lines of progress, enough for threads to end at about one time.
_TOLD = 16

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
    say: Say = silent,
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
    """Make sigmoid inputs of the inner products x [n, K, K, m], in place."""
    for text in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                row, near, own = x[text, i, j], norms_v[j], b - a * norms_t[text, i]
                for k in range(len(row)):
                    row[k] = own + a * (2.0 * row[k] - near[k])
