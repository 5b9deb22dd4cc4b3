"""The linear maps that rank unseen pairs best, with a variance and a sigmoid for their distances.

The penalty, the variance and the sigmoid come from folds of the training pairs: maps of all other
pairs are tried on each fold. No pair that validates is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray
from cimtool.base.threads import one_blas_thread
from cimtool.training.history import leading, recalls_of
from cimtool.training.linear_start import RIDGES, LinearFit, LinearStart, linear_starts
from cimtool.training.pairs import Pairs

FOLDS = 5
"""Parts of the videos, of which each is ranked by maps of the others."""

RANKED = 1000
"""Videos that are ranked: no fold has more, and folds beyond them are left out."""

NEWTON_STEPS = 50
"""Newton steps of a sigmoid at most; a handful are enough."""

LEAST_SLOPE = 1e-6
"""Slope of a sigmoid for a standard deviation of distances, where right pairs are no nearer."""


def fit_linear(pairs: Pairs, dimensions: int, by_class: bool = False) -> LinearFit:
    """Fit maps to `dimensions` at most, with the ridge of the best mean R@1 of the folds.

    With `by_class` of the best mAP. There are FOLDS videos or more. The same pairs give the same
    numbers whatever the threads.
    """
    with one_blas_thread:
        parts = list(folds(pairs))
        tried = [_starts(rest, dimensions, RIDGES) for rest, _ in parts]
        merits = np.zeros(len(RIDGES))
        for starts, (_, part) in zip(tried, parts, strict=True):
            for i, start in enumerate(starts):
                merits[i] += leading(recalls_of(-_distances(start, part), part, by_class))[1]
        chosen = int(merits.round(9).argmax())  # of equals the least, whatever the last bits say
        squares, right, wrong = [], [], []
        for starts, (_, part) in zip(tried, parts, strict=True):
            start, videos = starts[chosen], part.video[part.right].numpy()
            squares.append((start.text.of(part.text.numpy()) - start.video.of(videos)) ** 2)
            distances, together = _distances(start, part), right_pairs(part)
            right.append(distances[together])
            wrong.append(distances[~together])
        (start,) = _starts(pairs, dimensions, (RIDGES[chosen],))
        residual = np.concatenate(squares).mean(axis=0)
        return LinearFit(start, residual, *sigmoid_of(np.concatenate(right), np.concatenate(wrong)))


def folds(pairs: Pairs) -> Iterator[tuple[Pairs, Pairs]]:
    """Yield, for each fold, the pairs of all other videos and those of its own."""
    order = np.random.default_rng(0).permutation(len(pairs.video))
    ranked = 0
    for i in range(FOLDS):
        if ranked >= RANKED:
            return
        part = order[i::FOLDS][:RANKED]
        ranked += len(part)
        own: BoolArray = np.isin(pairs.right.numpy(), part)
        yield pairs.among(~own), pairs.among(own)


def _starts(pairs: Pairs, dimensions: int, ridges: tuple[float, ...]) -> list[LinearStart]:
    text, video = pairs.text.numpy(), pairs.video[pairs.right].numpy()
    return list(linear_starts(text, video, dimensions, ridges))


def _distances(start: LinearStart, pairs: Pairs) -> FloatArray:
    return start.distances(pairs.text.numpy(), pairs.video.numpy())


def right_pairs(pairs: Pairs) -> BoolArray:
    """Tell which of all texts and videos belong together, [n, m]."""
    found = np.zeros((len(pairs), len(pairs.video)), bool)
    found[np.arange(len(pairs)), pairs.right.numpy()] = True
    if pairs.judged is not None:
        found[pairs.judged.text, pairs.judged.video] = True
    return found


def sigmoid_of(right: FloatArray, wrong: FloatArray) -> tuple[float, float]:
    """The a > 0 and b of sigmoid(b - a d) for distances d of right pairs [n] and of wrong ones [m].

    Both kinds have half of the weight. Targets are Platt's, (n + 1) / (n + 2) and 1 / (m + 2)
    (Advances in Large Margin Classifiers, 1999), so that a is finite for pairs that a threshold
    parts. Newton steps, halved until the loss falls.
    """
    d = np.concatenate([right, wrong])
    if not len(right) or not len(wrong):  # no fold had two videos: nothing to tell apart
        return 1.0, float(d.mean()) if len(d) else 0.0
    n, m = len(right), len(wrong)
    targets = np.repeat([(n + 1) / (n + 2), 1 / (m + 2)], [n, m])
    weights = np.repeat([0.5 / n, 0.5 / m], [n, m])
    centre, spread = float(d.mean()), float(d.std()) or 1.0
    features = np.stack([np.ones(len(d)), (centre - d) / spread], axis=1)

    def loss(at: FloatArray) -> float:
        logits = features @ at
        return float(weights @ (np.logaddexp(0, logits) - targets * logits))

    found = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        p = 0.5 + 0.5 * np.tanh(features @ found / 2)
        gradient = features.T @ (weights * (p - targets))
        curvature = (features.T * (weights * p * (1 - p))) @ features
        step, *_ = np.linalg.lstsq(curvature, gradient, rcond=None)
        size, before = 1.0, loss(found)
        while size > 1e-6 and loss(found - size * step) > before:
            size /= 2
        if math.isclose(loss(found - size * step), before, rel_tol=1e-15):
            break
        found = found - size * step
    offset, slope = float(found[0]), float(found[1])
    if slope < LEAST_SLOPE:
        offset, slope = 0.0, LEAST_SLOPE
    return slope / spread, offset + slope * centre / spread
