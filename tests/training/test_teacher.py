from __future__ import annotations

import math

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.reference.exact import log_match_probability
from cimtool.reference.montecarlo import monte_carlo
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.training import teacher
from cimtool.training.teacher import (
    Labels,
    TeacherSigmoid,
    exact_labels,
    mixed_pairs,
    monte_carlo_labels,
)

COLUMNS = ("ed", "vd", "log_p", "log_1mp", "standard_error")


def pairs(n: int, d: int, s: float, spread: float) -> tuple[Gaussians, Gaussians]:
    rng = np.random.default_rng(1)
    text, video = rng.standard_normal((2, n, d)) * spread
    return Gaussians(text, np.full((n, d), s)), Gaussians(video, np.full((n, d), s))


def aligned(
    text: Gaussians, video: Gaussians, sigmoid: TeacherSigmoid | None = None, seed: int = 0
) -> Labels:
    """Labels of row i beside row i."""
    rows = np.arange(len(text))
    return monte_carlo_labels(text, video, (rows, rows), sigmoid or TeacherSigmoid(0.1, 0.0), seed)


def test_without_variance_the_label_is_the_distance_itself() -> None:
    text, video = pairs(5, 16, 0.0, 1.0)
    distance = np.square(text.mu - video.mu).sum(axis=1)
    labels = aligned(text, video, TeacherSigmoid(a=0.3, b=2.0, K=3))
    np.testing.assert_allclose(labels.logit, 2.0 - 0.3 * distance, rtol=1e-12)
    np.testing.assert_allclose(np.exp(labels.log_p) + np.exp(labels.log_1mp), 1.0)


def test_labels_that_underflow_are_not_clipped() -> None:
    text, video = pairs(5, 16, 0.0, 100.0)
    labels = aligned(text, video)
    np.testing.assert_allclose(labels.logit, -0.1 * labels.ed, rtol=1e-12)
    assert labels.logit.max() < -5000


def test_labels_scatter_around_the_closed_form_beyond_one_block() -> None:
    text, video = pairs(600, 32, 0.05, 2.0)
    labels = aligned(text, video, TeacherSigmoid(a=0.1, b=0.0, K=40))
    delta2, s = np.square(text.mu - video.mu), text.s + video.s
    u = 0.1  # at these distances p is M(a), the first term of its series
    log_m = (-0.5 * np.log1p(2 * u * s) - u * delta2 / (1 + 2 * u * s)).sum(axis=1)
    assert delta2.sum(axis=1).min() > 80
    assert abs((labels.log_p - log_m).mean()) < 0.02
    assert 0.01 < (labels.log_p - log_m).std() < 0.3


def test_mixed_pairs_hold_the_share_of_right_ones() -> None:
    right = np.arange(1000)
    text, video = mixed_pairs(right, 1000, 4000, 0.25, seed=3)
    assert abs((text == video).mean() - 0.25) < 0.03
    assert len(np.unique(video[text != video])) > 500
    np.testing.assert_array_equal(video, mixed_pairs(right, 1000, 4000, 0.25, seed=3)[1])


def test_the_right_video_may_stand_in_another_row_of_a_larger_gallery() -> None:
    right = np.array([4, 0, 4])
    text, video = mixed_pairs(right, 6, 500, 1.0, seed=0)
    np.testing.assert_array_equal(video, right[text])
    _, others = mixed_pairs(right, 6, 500, 0.0, seed=0)
    assert set(others) == set(range(6))


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.0), (0.5, 30.0), (5.0, 900.0)])
def test_aligned_pairs_are_the_diagonal_of_the_reference(a: float, b: float) -> None:
    text, video = pairs(7, 24, 0.3, 1.0)
    labels = aligned(text, video, TeacherSigmoid(a, b, K=5), seed=3)
    reference = monte_carlo(text, video, a, b, samples=5, seed=3)
    sampled = (reference.log_p, reference.log_1mp, reference.standard_error_of_logit)
    statistics = (expected_distance(text, video), distance_variance(text, video))
    wanted = (*statistics, *map(np.diagonal, sampled))
    for name, values in zip(COLUMNS, wanted, strict=True):
        np.testing.assert_allclose(getattr(labels, name), values, rtol=1e-9, atol=1e-14)


def test_a_pair_drawn_again_has_samples_of_its_own() -> None:
    text, video = pairs(3, 16, 0.3, 1.0)
    again = np.zeros(6, int), np.ones(6, int)
    labels = monte_carlo_labels(text, video, again, TeacherSigmoid(0.1, 0.0))
    assert len(np.unique(labels.logit)) == 6
    assert len(np.unique(labels.ed)) == 1


def bits(labels: Labels) -> dict[str, bytes]:
    return {name: getattr(labels, name).tobytes() for name in COLUMNS}


@pytest.mark.parametrize("kind", ["mc", "exact"])
def test_bits_do_not_depend_on_threads_and_blocks(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, video = pairs(40, 48, 0.2, 1.0)
    rows = mixed_pairs(np.arange(40), 40, 130, 0.5, seed=2)
    said: list[str] = []

    def labels() -> Labels:
        if kind == "exact":
            return exact_labels(text, video, rows, 0.3, 8.0, said.append)
        return monte_carlo_labels(text, video, rows, TeacherSigmoid(0.3, 8.0, 6), 4, said.append)

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = bits(labels())
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(teacher, "AT_ONCE", 5)
    monkeypatch.setattr(teacher, "REPORTED", 50)
    assert bits(labels()) == one
    assert said == [f"labels: {n} of 130 pairs" for n in (50, 100, 130)]


def test_exact_labels_are_those_of_the_reference_and_have_no_error() -> None:
    text, video = pairs(6, 32, 0.2, 1.0)
    i, j = np.array([0, 5, 5, 2]), np.array([3, 3, 0, 2])
    labels = exact_labels(text, video, (i, j), 0.2, 3.0)
    log_p, log_1mp = log_match_probability(text.mu[i], text.s[i], video.mu[j], video.s[j], 0.2, 3.0)
    np.testing.assert_array_equal(labels.log_p, log_p)
    np.testing.assert_array_equal(labels.log_1mp, log_1mp)
    np.testing.assert_array_equal(labels.standard_error, np.zeros(4))


def test_the_standard_error_is_the_scatter_around_the_exact_logit() -> None:
    text, video = pairs(1, 64, 0.002, 1.0)
    again = np.zeros(400, int), np.zeros(400, int)
    labels = monte_carlo_labels(text, video, again, TeacherSigmoid(a=0.3, b=40.0, K=20))
    exact = exact_labels(text, video, (np.zeros(1, int),) * 2, 0.3, 40.0).logit
    scatter = np.sqrt(np.mean(np.square(labels.logit - exact)))
    assert labels.standard_error is not None
    assert scatter == pytest.approx(np.sqrt(np.mean(labels.standard_error**2)), rel=0.1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"a": 0.0}, "a is 0.0; expected a finite number above 0"),
        ({"a": math.nan}, "a is nan; expected a finite number above 0"),
        ({"b": math.inf}, "b is inf; expected a finite number"),
        ({"K": 1}, "samples is 1; expected an integer of at least 2"),
    ],
)
def test_a_sigmoid_that_cannot_be_is_refused(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(CimError, match=f"^{sentence}$"):
        TeacherSigmoid(**{"a": 0.1, "b": 0.0, **options})  # type: ignore[arg-type]


def test_some_labels_by_their_numbers() -> None:
    values = np.arange(5.0)
    some = Labels(values, values, values, -values, values).of(np.array([3, 1]))
    assert [getattr(some, name).tolist() for name in COLUMNS] == [
        *[[3.0, 1.0]] * 3, [-3.0, -1.0], [3.0, 1.0],
    ]  # fmt: skip
    assert Labels(values, values, values, values).of(np.array([0])).standard_error is None
