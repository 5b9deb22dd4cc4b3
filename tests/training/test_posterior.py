"""The posterior of a last projection: its factors against sums by hand and a dense inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.training.posterior import (
    PRIORS,
    KroneckerFactors,
    UnitRows,
    curvature,
    fit_posteriors,
    left_out,
)
from cimtool.training.sigmoid import fitted_sigmoid

A, B = 3.0, 1.5


def unit(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def pairs(texts: int = 7, videos: int = 5, width: int = 4, seed: int = 0) -> UnitRows:
    """Rows of which the first videos have two right texts."""
    rng = np.random.default_rng(seed)
    video = rng.normal(size=(videos, width))
    right = np.arange(texts) % videos
    text = video[right] + 0.5 * rng.normal(size=(texts, width))
    return UnitRows(unit(text), unit(video), right[:, None] == np.arange(videos))


def rare_directions(n: int = 200) -> UnitRows:
    """Rows of which a tenth have six directions of their own; texts are equally noisy."""
    rng = np.random.default_rng(0)
    rare = np.arange(n)[:, None] % 10 == 0
    video = rng.normal(size=(n, 12)) * np.where(rare, 1.0, np.repeat([1.0, 0.02], 6))
    text = video + 0.4 * rng.normal(size=(n, 12))
    return UnitRows(unit(text), unit(video), np.eye(n, dtype=bool))


def marked_texts(n: int = 200) -> UnitRows:
    """Rows of which a quarter of the texts have one direction that no video has."""
    rng = np.random.default_rng(0)
    marked = np.arange(n)[:, None] % 4 == 0
    video = rng.normal(size=(n, 12))
    text = video + np.where(marked, 0.2, 1.0) * rng.normal(size=(n, 12))
    text[:, :1], video[:, :1] = 4 * marked, 0
    return UnitRows(unit(text), unit(video), np.eye(n, dtype=bool))


def test_the_output_factor_is_the_mean_gauss_newton_matrix_of_each_row() -> None:
    rows = pairs()
    by_hand = np.zeros((4, 4))
    for x, right in zip(rows.text, rows.together, strict=True):
        for y, is_right in zip(rows.video, right, strict=True):

            def logit(z: torch.Tensor, y: np.ndarray = y) -> torch.Tensor:
                apart = z / z.norm() - torch.from_numpy(y)
                return B - A * apart.square().sum()

            slope = torch.func.grad(logit)(torch.from_numpy(x)).numpy()
            p = 1 / (1 + np.exp(A * np.square(x - y).sum() - B))
            weight = 0.5 / np.count_nonzero(right == is_right)
            by_hand += weight * p * (1 - p) * np.outer(slope, slope) / len(rows.text)
    np.testing.assert_allclose(curvature(rows, A, B), by_hand, atol=1e-12)


@pytest.mark.parametrize("prior", [0.01, 1.0, 100.0])
def test_the_variance_is_the_dense_kronecker_inverse_at_the_projected_row(prior: float) -> None:
    rows = pairs()
    hessian, unseen = curvature(rows, A, B), unit(np.random.default_rng(1).normal(size=(3, 4)))
    found = KroneckerFactors.of(rows.text, hessian).posterior(prior)
    inner = rows.text.T @ rows.text
    factors = (one + prior * np.trace(one) / 4 * np.eye(4) for one in (inner, hessian))
    covariance = np.linalg.inv(np.kron(*factors))
    for x, leverage in zip(unseen, found.leverage(unseen), strict=True):
        projection = np.kron(x, np.eye(4))  # dz / dW, [d, d d], with the columns of W in a row
        dense = projection @ covariance @ projection.T
        np.testing.assert_allclose(leverage * found.spread, np.diag(dense), rtol=1e-9)


def test_a_row_that_is_left_out_is_as_if_it_had_not_been_there() -> None:
    rows = pairs().text
    factors = KroneckerFactors.of(rows, np.eye(4))
    prior = 0.5
    found = left_out(factors.posterior(prior).leverage(rows))
    precision = rows.T @ rows + prior * len(rows) / 4 * np.eye(4)  # rows have unit norm
    for i, x in enumerate(rows):
        without = np.linalg.inv(precision - np.outer(x, x))
        assert found[i] == pytest.approx(x @ without @ x)


def test_rows_farther_from_the_data_have_a_larger_variance() -> None:
    rng = np.random.default_rng(0)
    data = unit(rng.normal(size=(50, 6)) * (1, 1, 1, 0.05, 0.05, 0.05))
    known, new = unit(rng.normal(size=(1, 3))), unit(rng.normal(size=(1, 3)))
    angles = np.linspace(0, np.pi / 2, 9)[:, None]
    rows = np.hstack([np.cos(angles) * known, np.sin(angles) * new])
    found = KroneckerFactors.of(data, np.eye(6)).posterior(0.1).leverage(rows)
    assert (np.diff(found) > 0).all()
    assert found[-1] > 3 * found[0]
    more = KroneckerFactors.of(np.vstack([data, data]), np.eye(6)).posterior(0.1).leverage(rows)
    np.testing.assert_allclose(more, found / 2)  # alpha follows the data


def log_loss(ed: np.ndarray, right: np.ndarray) -> float:
    a, b = fitted_sigmoid(ed[right], ed[~right])
    p = 1 / (1 + np.exp(a * ed - b))
    return float(-(np.log(p[right]).mean() + np.log1p(-p[~right]).mean()) / 2)


def test_the_prior_that_is_chosen_loses_least_on_rows_that_are_left_out() -> None:
    rows = marked_texts()
    distance = float(rows.distances[rows.together].mean())
    chosen = fit_posteriors(rows.text, rows.video, rows, distance, None)
    assert chosen is not None
    losses = {}
    for prior in PRIORS:
        fit = fit_posteriors(rows.text, rows.video, rows, distance, prior)
        assert fit is not None
        variances = [
            left_out(own.leverage(x))[:, None] * own.spread
            for own, x in ((fit.text, rows.text), (fit.video, rows.video))
        ]
        for one in variances:  # samples of right pairs are as far apart as these are
            assert one.sum(axis=1).mean() == pytest.approx(distance / 2)
        text, video = (one.sum(axis=1) for one in variances)
        losses[prior] = log_loss(rows.distances + text[:, None] + video, rows.together)
    assert chosen.prior == min(losses, key=losses.__getitem__)
    assert PRIORS[0] < chosen.prior < PRIORS[-1]
    assert losses[chosen.prior] < log_loss(rows.distances, rows.together)
    again = fit_posteriors(rows.text, rows.video, rows, distance, None)
    assert again is not None
    np.testing.assert_array_equal(chosen.text.factor, again.text.factor)


def test_a_posterior_that_predicts_nothing_is_none() -> None:
    """Rows with directions of their own are no noisier, and farther from all wrong ones."""
    rows = rare_directions()
    distance = float(rows.distances[rows.together].mean())
    assert fit_posteriors(rows.text, rows.video, rows, distance, None) is None
