from __future__ import annotations

import numpy as np

from cimtool.reference.statistics import Gaussians
from cimtool.training.teacher import Sigmoid, mixed_pairs, teacher_labels


def pairs(n: int, d: int, s: float, spread: float) -> tuple[Gaussians, Gaussians]:
    rng = np.random.default_rng(1)
    text, video = rng.standard_normal((2, n, d)) * spread
    return Gaussians(text, np.full((n, d), s)), Gaussians(video, np.full((n, d), s))


def test_without_variance_the_label_is_the_distance_itself() -> None:
    text, video = pairs(5, 16, 0.0, 1.0)
    distance = np.square(text.mu - video.mu).sum(axis=1)
    labels = teacher_labels(text, video, Sigmoid(a=0.3, b=2.0, K=3))
    np.testing.assert_allclose(labels.logit, 2.0 - 0.3 * distance, rtol=1e-12)
    np.testing.assert_allclose(np.exp(labels.log_p) + np.exp(labels.log_1mp), 1.0)


def test_labels_that_underflow_are_not_clipped() -> None:
    text, video = pairs(5, 16, 0.0, 100.0)
    labels = teacher_labels(text, video, Sigmoid())
    np.testing.assert_allclose(labels.logit, -0.1 * labels.ed, rtol=1e-12)
    assert labels.logit.max() < -5000


def test_labels_scatter_around_the_closed_form_beyond_one_block() -> None:
    text, video = pairs(600, 32, 0.05, 2.0)
    labels = teacher_labels(text, video, Sigmoid(a=0.1, b=0.0, K=40))
    delta2, s = np.square(text.mu - video.mu), text.s + video.s
    u = 0.1  # at these distances p is M(a), the first term of its series
    log_m = (-0.5 * np.log1p(2 * u * s) - u * delta2 / (1 + 2 * u * s)).sum(axis=1)
    assert delta2.sum(axis=1).min() > 80
    assert abs((labels.log_p - log_m).mean()) < 0.02
    assert 0.01 < (labels.log_p - log_m).std() < 0.3


def test_mixed_pairs_hold_the_share_of_right_ones() -> None:
    text, video = mixed_pairs(1000, 4000, matched=0.25, seed=3)
    assert abs((text == video).mean() - 0.25) < 0.03
    assert len(np.unique(video[text != video])) > 500
    np.testing.assert_array_equal(video, mixed_pairs(1000, 4000, matched=0.25, seed=3)[1])
