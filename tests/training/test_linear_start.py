"""The linear maps that a training may start from, against their definition."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from cimtool.training.linear_start import RIDGES, LinearStart, linear_starts


def rows(n: int = 200, text: int = 7, video: int = 5, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Rows of both sides with three common numbers of falling strength, and noise."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 3)) * (2.0, 1.0, 0.5)
    return tuple(
        (common @ rng.normal(size=(3, width)) + rng.normal(size=(n, width)) + 3).astype(np.float32)
        for width in (text, video)
    )


@pytest.mark.parametrize("k", [2, 5])
def test_maps_are_canonical_correlations_of_shrunk_covariances(k: int) -> None:
    """The correlations of mapped rows, under shrunk covariances, are diagonal and fall."""
    x, y = (one.astype(np.float64) for one in rows())
    for ridge, found in zip(RIDGES, linear_starts(x, y, k), strict=True):
        assert found.ridge == ridge
        wt, wv = found.text.weight, found.video.weight
        assert wt.shape == (7, k)
        assert wv.shape == (5, k)
        st, sv = (np.cov(one.T, bias=True) for one in (x, y))
        st, sv = (s + ridge * np.trace(s) / len(s) * np.eye(len(s)) for s in (st, sv))
        between = (x - x.mean(0)).T @ (y - y.mean(0)) / len(x)
        inside, other, cross = wt.T @ st @ wt, wv.T @ sv @ wv, wt.T @ between @ wv
        np.testing.assert_allclose(inside, other, atol=1e-9)  # diag(s), scaled
        np.testing.assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-9)
        strengths = np.diag(cross) / np.diag(inside)
        assert (np.diff(strengths) <= 1e-9).all()
        assert 0 < strengths[0] < 1
        # The best that any pair of directions reaches, by the eigenvalues of the definition.
        best = np.linalg.eigvals(np.linalg.solve(st, between) @ np.linalg.solve(sv, between.T))
        assert strengths[0] ** 2 == pytest.approx(best.real.max())
        square = (found.text.of(x) ** 2).mean() / 2 + (found.video.of(y) ** 2).mean() / 2
        assert square == pytest.approx(1)


def test_distances_are_of_mapped_rows() -> None:
    x, y = rows(20)
    found = next(linear_starts(x, y, 3))
    a, b = found.text.of(x), found.video.of(y)
    by_hand = ((a[:, None] - b[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.distances(x, y), by_hand, atol=1e-9)


def test_no_more_dimensions_than_the_narrower_rows_have() -> None:
    found = next(linear_starts(*rows(), 64))
    assert found.text.weight.shape == (7, 5)


@pytest.mark.parametrize("still", ["text", "both"])
def test_rows_that_are_all_alike_have_finite_maps(still: str) -> None:
    x, y = rows(30)
    x[:] = 1
    if still == "both":
        y[:] = 2
    for found in islice(linear_starts(x, y, 3), 2):
        assert isinstance(found, LinearStart)
        assert np.isfinite(found.distances(x, y)).all()


def test_few_pairs_in_many_dimensions_are_found_again() -> None:
    """Fewer pairs than dimensions: the covariance has no inverse, and the shrunk one has."""
    x, y = rows(40, 64, 48)
    for found in linear_starts(x, y, 16):
        distances = found.distances(x, y)
        assert np.isfinite(distances).all()
        assert (distances.argmin(axis=1) == np.arange(40)).mean() > 0.5
