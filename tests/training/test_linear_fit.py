"""The fit of linear maps: its penalty, its sigmoid, and which rows they come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.reference.truth import Judgements
from cimtool.training.linear_fit import fit_linear, folds
from cimtool.training.linear_start import RIDGES, linear_starts
from cimtool.training.pairs import Pairs
from cimtool.training.sigmoid import LEAST_SLOPE, fitted_sigmoid, right_pairs


def pairs_of(n: int = 120, noise: float = 0.3, seed: int = 0, texts: int = 1) -> Pairs:
    """Texts of 9 numbers and videos of 7, linear in 4 common ones; `texts` of them a video."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.normal(size=(n, 4)), texts, axis=0)
    text = common @ rng.normal(size=(4, 9)) + noise * rng.normal(size=(n * texts, 9)) + 2
    video = common[::texts] @ rng.normal(size=(4, 7)) + noise * rng.normal(size=(n, 7)) - 1
    right = torch.arange(n).repeat_interleave(texts)
    return Pairs(*(torch.from_numpy(one.astype(np.float32)) for one in (text, video)), right)


def test_each_side_is_the_ridge_regression_onto_the_other() -> None:
    """(S + r t I) W s = C W', the normal equations, s being the correlations."""
    pairs = pairs_of()
    x, y = (one.numpy().astype(np.float64) for one in (pairs.text, pairs.video))
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    for found in linear_starts(pairs.text.numpy(), pairs.video.numpy(), 7):
        sides = (x, y, found.text.weight, found.video.weight)
        for own, other, weight, onto in (sides, (y, x, sides[3], sides[2])):
            square = own.T @ own / len(own)
            shrunk = square + found.ridge * np.trace(square) / len(square) * np.eye(len(square))
            solved = np.linalg.solve(shrunk, own.T @ other / len(own) @ onto)
            strengths = (solved * weight).sum(axis=0) / (weight**2).sum(axis=0)
            np.testing.assert_allclose(solved, weight * strengths, atol=1e-9)
            assert (np.diff(strengths) <= 1e-9).all()
            assert 0 <= strengths[-1] <= strengths[0] < 1


def test_a_linear_truth_is_recovered() -> None:
    """Without noise both sides map to the same points, up to what the ridge shrinks."""
    pairs = pairs_of(200, noise=0.0)
    fit = fit_linear(pairs.among(np.arange(200) < 150), 4)
    assert fit.start.ridge == RIDGES[0]
    unseen = pairs.among(np.arange(200) >= 150)
    distances = fit.start.distances(unseen.text.numpy(), unseen.video.numpy())
    assert (distances.argmin(axis=1) == np.arange(50)).all()
    assert np.diag(distances).max() < 1e-3 * distances.mean()


@pytest.mark.parametrize("texts", [1, 3])
def test_folds_part_the_videos_and_their_texts(texts: int) -> None:
    pairs = pairs_of(23, texts=texts)
    parts = list(folds(pairs))
    assert len(parts) == 5
    seen = torch.cat([own.video for _, own in parts])
    assert len(torch.unique(seen, dim=0)) == len(seen) == 23
    for rest, own in parts:
        assert len(rest) + len(own) == 23 * texts
        assert len(own) == len(own.video) * texts
        both = torch.cat([rest.video, own.video])
        assert len(torch.unique(both, dim=0)) == 23


def test_many_videos_are_ranked_in_part() -> None:
    (first, second), *others = ((len(rest), len(own)) for rest, own in folds(pairs_of(2600)))
    assert (first, second) == (2080, 520)
    assert others == [(2080, 520)]
    assert [len(own) for _, own in folds(pairs_of(6000))] == [1000]


def test_the_ridge_ranks_the_folds_best_and_is_the_same_again() -> None:
    pairs = pairs_of(60, noise=2.0)
    fit, again = fit_linear(pairs, 5), fit_linear(pairs, 5)
    np.testing.assert_array_equal(fit.start.text.weight, again.start.text.weight)
    np.testing.assert_array_equal(fit.residual, again.residual)
    assert (fit.a, fit.b) == (again.a, again.b)
    merits = np.zeros(len(RIDGES))
    for rest, own in folds(pairs):
        for i, start in enumerate(linear_starts(rest.text.numpy(), rest.video.numpy(), 5)):
            distances = start.distances(own.text.numpy(), own.video.numpy())
            right = np.diag(distances)
            for axis in (0, 1):
                others = right[:, None] if axis else right[None]
                merits[i] += ((distances <= others).sum(axis=axis) == 1).mean()
    assert fit.start.ridge == RIDGES[int(merits.round(9).argmax())]


def test_residuals_are_of_pairs_that_the_maps_had_not_seen() -> None:
    pairs = pairs_of(60, noise=1.0)
    fit = fit_linear(pairs, 5)
    squares = []
    for rest, own in folds(pairs):
        (start,) = linear_starts(rest.text.numpy(), rest.video.numpy(), 5, (fit.start.ridge,))
        squares.append((start.text.of(own.text.numpy()) - start.video.of(own.video.numpy())) ** 2)
    np.testing.assert_allclose(fit.residual, np.concatenate(squares).mean(axis=0), atol=1e-12)
    seen = fit.start.text.of(pairs.text.numpy()) - fit.start.video.of(pairs.video.numpy())
    assert (seen**2).mean() < fit.residual.mean()


def test_the_sigmoid_is_where_its_loss_has_no_slope() -> None:
    rng = np.random.default_rng(0)
    right, wrong = rng.gamma(4, 1, 50), rng.gamma(9, 1, 400)
    a, b = fitted_sigmoid(right, wrong)
    assert a > 0
    miss = [1 / (1 + np.exp(a * d - b)) for d in (right, wrong)]
    miss = [miss[0] - 51 / 52, miss[1] - 1 / 402]
    assert sum(one.mean() for one in miss) == pytest.approx(0, abs=1e-9)
    moments = [(one * d).mean() for one, d in zip(miss, (right, wrong), strict=True)]
    assert sum(moments) == pytest.approx(0, abs=1e-7)
    twice, offset = fitted_sigmoid(2 * right + 3, 2 * wrong + 3)
    assert (2 * twice, offset - 3 * twice) == pytest.approx((a, b))


def test_a_sigmoid_of_distances_that_a_threshold_parts_or_that_say_nothing() -> None:
    a, b = fitted_sigmoid(np.array([1.0, 2.0]), np.array([5.0, 6.0, 7.0]))
    assert 0 < a < 10
    assert 2 < b / a < 5
    for right, wrong in (([3.0, 4.0], [1.0, 2.0]), ([1.0, 1.0], [1.0, 1.0])):
        a, b = fitted_sigmoid(np.array(right), np.array(wrong))
        spread = np.std([*right, *wrong]) or 1.0
        assert a == pytest.approx(LEAST_SLOPE / spread)
        assert b == pytest.approx(a * np.mean([*right, *wrong]))
    assert fitted_sigmoid(np.ones(2), np.zeros(0)) == (1.0, 1.0)


def test_variances_move_the_offset_by_what_they_add_to_ed() -> None:
    fit = fit_linear(pairs_of(), 4)
    assert fit.sigmoid(0.0) == {"a": fit.a, "b": fit.b}
    assert fit.sigmoid(7.0) == {"a": fit.a, "b": pytest.approx(fit.b + 7 * fit.a)}


def test_judged_pairs_are_no_wrong_ones() -> None:
    pairs = pairs_of(4)
    judged = Judgements(*(np.array(one) for one in ([0, 1, 2, 3, 0], [0, 1, 2, 3, 2], [1] * 5)))
    also = Pairs(pairs.text, pairs.video, pairs.right, judged=judged)
    assert right_pairs(pairs).sum() == 4
    assert right_pairs(also).sum() == 5
    assert right_pairs(also)[0, 2]


def test_items_that_are_all_alike_have_finite_maps() -> None:
    flat = Pairs(torch.ones(12, 5), torch.ones(12, 4), torch.arange(12))
    fit = fit_linear(flat, 3)
    assert np.isfinite([*fit.residual, fit.a, fit.b]).all()
    assert np.isfinite(fit.start.text.weight).all()
