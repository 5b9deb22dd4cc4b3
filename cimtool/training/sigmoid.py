"""The sigmoid of distances, solved for right and wrong pairs of a sample."""

from __future__ import annotations

import math

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray
from cimtool.training.pairs import Pairs

NEWTON_STEPS = 50
"""Newton steps of a sigmoid at most; a handful are enough."""

LEAST_SLOPE = 1e-6
"""Slope of a sigmoid for a standard deviation of distances, where right pairs are no nearer."""


def right_pairs(pairs: Pairs) -> BoolArray:
    """Tell which of all texts and videos belong together, [n, m]."""
    found = np.zeros((len(pairs), len(pairs.video)), bool)
    found[np.arange(len(pairs)), pairs.right.numpy()] = True
    if pairs.judged is not None:
        found[pairs.judged.text, pairs.judged.video] = True
    return found


def fitted_sigmoid(right: FloatArray, wrong: FloatArray) -> tuple[float, float]:
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
