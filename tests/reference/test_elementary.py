"""Exponentials, logarithms, sines and cosines against many digits."""

from __future__ import annotations

import mpmath
import numpy as np

from cimtool.reference.elementary import (
    LIMIT,
    cosines,
    exponentials,
    logarithms_of_one_plus,
)


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


def test_cosines_and_sines_within_1e_15():
    rng = np.random.default_rng(0)
    turns = np.arange(-9, 10) * np.pi / 4
    points = np.array([*rng.normal(size=2000), *rng.uniform(-1e6, 1e6, 2000), *turns, 0.0])
    cosine, sine = points.copy(), np.empty(len(points))
    cosines(cosine, sine, np.empty(len(points)))
    with mpmath.workdps(40):
        for angle, *found in zip(points.tolist(), cosine.tolist(), sine.tolist(), strict=True):
            assert abs(found[0] - mpmath.cos(angle)) < 1e-15, angle
            assert abs(found[1] - mpmath.sin(angle)) < 1e-15, angle
    assert (cosine[-1], sine[-1]) == (1, 0)


def test_log_of_one_plus_within_four_units_in_the_last_place():
    rng = np.random.default_rng(0)
    ends = [1.0, 1e-17, 1e-300, 0.0]
    points = np.array([*rng.uniform(size=2000), *10.0 ** rng.uniform(-20, 0, 1000), *ends])
    found = points.copy()
    logarithms_of_one_plus(found)
    with mpmath.workdps(40):
        for y, one in zip(points.tolist(), found.tolist(), strict=True):
            expected = mpmath.log1p(y)
            assert abs(one - expected) <= 4 * np.spacing(float(expected)), y
