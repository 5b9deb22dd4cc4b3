import mpmath
import numpy as np
import pytest

from cimtool.reference.sigmoid_means import LIMIT, exponentials, mean_of_sigmoids


def by_definition(x):
    """log p, log(1-p) and the error of the logit of one pair's x [K, K], in 400 digits."""
    K = len(x)
    with mpmath.workdps(400):
        sigmoids, others = (
            np.array([[1 / (1 + mpmath.exp(sign * mpmath.mpf(y))) for y in row] for row in x])
            for sign in (-1, 1)
        )
        p, rest = sigmoids.mean(), others.mean()
        small, mean = (sigmoids, p) if p < rest else (others, rest)
        spread = sum((one - mean) ** 2 for axis in (0, 1) for one in small.mean(axis=axis))
        error = mpmath.sqrt(spread / (K * (K - 1))) / (p * rest)
        return [float(one) for one in (mpmath.log(p), mpmath.log(rest), error)]


# All x of one sign or of both, in a pair, a text or a block; sums that underflow or nearly do.
CENTRES = (-900.0, -690.0, -30.0, -2.0, 0.0, 2.0, 30.0, 690.0, 900.0)


def numbers(n, K, m, scatter, seed=0):
    """x [n, K, K, m] whose standard error is less than half of the mean."""
    rng = np.random.default_rng(seed)
    return scatter * rng.normal(size=(n, K, K, m)) + rng.choice(CENTRES, size=(n, 1, 1, m))


@pytest.mark.parametrize(("K", "m"), [(2, 5), (3, 17), (6, 4)])
@pytest.mark.parametrize("scatter", [1e-9, 0.1, 0.4])
def test_the_definition(K, m, scatter):
    x = numbers(3, K, m, scatter)
    found = np.stack(mean_of_sigmoids(x))
    for i, j in np.ndindex(3, m):
        log_p, log_1mp, error = by_definition(x[i, :, :, j])
        # What is left of 1 is a number of the size e^-690, and carries its exponent's rounding.
        np.testing.assert_allclose(found[:2, i, j], (log_p, log_1mp), rtol=1e-12)
        smaller = found[:2, i, j].min()
        assert smaller == pytest.approx(min(log_p, log_1mp), rel=1e-14)
        # The spread of sigmoids that are all but equal carries their rounding.
        assert found[2, i, j] == pytest.approx(error, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("centre", [-3.0, -1e-6, -5e-7, 0.0, 5e-7, 1e-6, 3.0])
def test_the_smaller_one_has_its_own_sum_where_signs_are_mixed(centre):
    x = centre + np.linspace(-2e-6, 2e-6, 4 * 4 * 9).reshape(1, 4, 4, 9)
    found = np.stack(mean_of_sigmoids(x))
    for j in range(9):
        expected = by_definition(x[0, :, :, j])
        np.testing.assert_allclose(found[:2, 0, j], expected[:2], rtol=1e-15)
        assert found[2, 0, j] == pytest.approx(expected[2], rel=1e-6)


@pytest.mark.parametrize("order", [[0, 3, 1, 2], [3, 0, 1, 2]])
def test_any_layout_and_any_neighbours_give_the_same_bits(order):
    x = numbers(4, 3, 50, 2.0)
    whole = np.stack(mean_of_sigmoids(x))
    strided = np.moveaxis(np.ascontiguousarray(np.transpose(x, order)), range(4), order)
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(np.stack(mean_of_sigmoids(strided)), whole)
    for row, some in ((2, slice(0, 1)), (3, slice(11, 44)), (0, slice(43, 50))):
        alone = mean_of_sigmoids(x[row : row + 1, :, :, some])
        np.testing.assert_array_equal(np.stack(alone)[:, 0], whole[:, row, some])


def test_a_mirrored_pair_is_the_same_the_other_way_round():
    x = numbers(2, 4, 60, 1.5)
    log_p, log_1mp, error = mean_of_sigmoids(x)
    mirrored = mean_of_sigmoids(-x)
    np.testing.assert_allclose(np.stack(mirrored), (log_1mp, log_p, error), rtol=1e-13)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_number_is_one_far_away_and_nan_stays_in_its_pair(value):
    x = numbers(1, 3, 20, 1.0)
    fine = np.stack(mean_of_sigmoids(x))
    x[0, 1, 2, 7] = value
    found = np.stack(mean_of_sigmoids(x))
    x[0, 1, 2, 7] = np.sign(value) * 1e5
    np.testing.assert_array_equal(found, np.stack(mean_of_sigmoids(x)))
    x[0, 1, 2, 7] = np.nan
    lost = np.stack(mean_of_sigmoids(x))
    assert np.isnan(lost[:, 0, 7]).all()
    for one in (found, lost):
        np.testing.assert_array_equal(np.delete(one, 7, axis=2), np.delete(fine, 7, axis=2))


@pytest.mark.parametrize("side", [1, -1])
def test_a_sum_of_one_sigmoid_takes_the_jackknife(side):
    x = np.full((1, 5, 5, 12), -40.0)
    x[0, 1, 3] = -10.0
    found = np.stack(mean_of_sigmoids(side * x))
    for j in range(12):
        logs = [
            -np.logaddexp(0, -np.delete(x[0, :, :, j], k, axis))
            for axis in (0, 1)
            for k in range(5)
        ]
        left = np.array([np.logaddexp.reduce(one, axis=None) for one in logs]).reshape(2, 5)
        expected = np.sqrt(4 * left.var(axis=1).sum()) / (1 - 1 / (1 + np.exp(10)) / 25)
        assert expected > 2
        assert found[2, 0, j] == pytest.approx(expected, rel=1e-12)


def test_exp_within_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    ends = [0.0, LIMIT, -LIMIT]
    points = np.array([*rng.uniform(-LIMIT, LIMIT, 4000), *rng.normal(size=2000), *ends])
    found = points.copy()
    exponentials(found, np.empty(len(points)))
    with mpmath.workdps(40):
        for y, one in zip(points.tolist(), found.tolist(), strict=True):
            expected = mpmath.exp(y)
            assert abs(one - expected) <= 2 * np.spacing(float(expected)), y
    beyond = np.array([np.inf, 1e308, -np.inf, -1e308, np.nan])
    exponentials(beyond, np.empty(5))
    np.testing.assert_array_equal(beyond, [found[-2], found[-2], found[-1], found[-1], np.nan])
    assert found[-3] == 1
