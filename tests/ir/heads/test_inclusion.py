"""Head `inclusion`: ProLIP's test, against its published formula and numerical integration."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.ir.heads.inclusion import InclusionHead
from cimtool.ir.source import Inclusion
from cimtool.ir.types import real

finite = st.floats(-3, 3)


def log_integral(mu: float, s: float, nu: float, t: float) -> float:
    """log of the integral of N(mu, s)^2 N(nu, t), by sums over 14 deviations."""
    widest = np.sqrt(max(s, t))
    z = np.linspace(min(mu, nu) - 14 * widest, max(mu, nu) + 14 * widest, 200_001)

    def log_density(mean: float, variance: float) -> np.ndarray:
        return -np.square(z - mean) / (2 * variance) - np.log(2 * np.pi * variance) / 2

    logs = 2 * log_density(mu, s) + log_density(nu, t)
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum() * (z[1] - z[0])))


def inclusion(mu_t: float, l_t: float, mu_v: float, l_v: float) -> float:
    sides = (np.array([[x]]) for x in (mu_t, l_t, mu_v, l_v))
    return float(Inclusion().run(*sides)[0, 0])


@pytest.mark.parametrize("case", range(8))
def test_it_is_the_ratio_of_both_integrals_but_for_half_the_log_variances(case: int) -> None:
    mu_t, l_t, mu_v, l_v = np.random.default_rng(case).uniform(-2, 2, 4).tolist()
    s_t, s_v = np.exp(l_t), np.exp(l_v)
    wanted = log_integral(mu_v, s_v, mu_t, s_t) - log_integral(mu_t, s_t, mu_v, s_v)
    assert inclusion(mu_t, l_t, mu_v, l_v) == pytest.approx(wanted - (l_v - l_t) / 2, abs=1e-9)


def published(mu1: float, l1: float, mu2: float, l2: float) -> float:
    """`inclusion_test` of ProLIP's public code with eps = 0, as a sum of its five terms."""
    precision1, precision2 = np.exp(-l1), np.exp(-l2)
    a = precision1 + precision2 / 2
    b = 2 * mu1 * precision1 + mu2 * precision2
    c = mu1**2 * precision1 + mu2**2 * precision2 / 2
    return float(-2 * l1 - l2 - np.log(a) / 2 + b**2 / (4 * a) - c)


@given(finite, finite, finite, finite)
def test_it_is_the_difference_of_both_published_tests(
    mu_t: float, l_t: float, mu_v: float, l_v: float
) -> None:
    wanted = published(mu_v, l_v, mu_t, l_t) - published(mu_t, l_t, mu_v, l_v)
    assert inclusion(mu_t, l_t, mu_v, l_v) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@given(finite, finite, finite)
def test_the_two_functions_that_are_fitted_are_its_parts(mu: float, l_t: float, l_v: float) -> None:
    wanted = Inclusion.prior(np.array(l_t), np.array(l_v))
    wanted = wanted - mu**2 * Inclusion.weight(np.array(l_t), np.array(l_v))
    assert inclusion(mu, l_t, 0.0, l_v) == pytest.approx(float(wanted), rel=1e-9, abs=1e-12)


@given(finite, finite, finite, finite)
def test_exchanging_both_sides_changes_the_sign(
    mu_t: float, l_t: float, mu_v: float, l_v: float
) -> None:
    there, back = inclusion(mu_t, l_t, mu_v, l_v), inclusion(mu_v, l_v, mu_t, l_t)
    assert there == pytest.approx(-back, rel=1e-9, abs=1e-12)


@given(finite, finite, st.floats(0.01, 6))
def test_at_equal_means_the_narrower_one_is_inside(mu: float, l_t: float, less: float) -> None:
    assert inclusion(mu, l_t, mu, l_t - less) > 0
    assert inclusion(mu, l_t, mu, l_t) == 0


def test_the_score_adds_the_dimensions(made: Callable[..., Any], towers: SimpleNamespace) -> None:
    found = made(InclusionHead(), towers.gaussians)
    (mu_t, mu_v), (s_t, s_v) = found.mu, found.s
    wanted = np.log((2 * s_v + s_t) / (s_v + 2 * s_t)) / 2 - np.log(s_v / s_t)
    wanted = wanted - np.square(mu_t - mu_v) * (s_v - s_t) / ((s_v + 2 * s_t) * (2 * s_v + s_t))
    np.testing.assert_allclose(found.scores, wanted.sum(axis=-1), rtol=1e-10, atol=1e-12)
    assert "s" not in found.program.text.by_name


def test_sides_of_other_extents_have_no_inclusion() -> None:
    with pytest.raises(ValueError, match="both sides are not of one extent"):
        Inclusion().infer(real(("n", 3)), real(("n", 3)), real(("m", 4)), real(("m", 4)))
