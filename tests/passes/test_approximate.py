"""Stand-ins for exp and 1/sqrt: the stated error holds at points that were not measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial

from cimtool.base.errors import CimError
from cimtool.passes.approximate import TANH_LIMIT, fit_exp, fit_inverse_root, fit_tanh

SLACK = 1.02  # between two of the points measured


@settings(deadline=None, max_examples=40)
@given(st.floats(-20, 5), st.floats(0, 16), st.sampled_from([2.0**-9, 2.0**-17]))
def test_exp_is_within_its_tolerance_everywhere(lo: float, span: float, tolerance: float) -> None:
    fit = fit_exp(lo, lo + span, tolerance)
    assert fit.error <= tolerance
    u = np.sort(np.random.default_rng(0).uniform(-1, 1, 7919))
    exact = np.exp(fit.centre + fit.half * u)
    found = polynomial.polyval(u, fit.coefficients)
    assert np.abs(found - exact).max() <= SLACK * fit.error * np.exp(fit.centre + fit.half) + 1e-13
    assert fit.centre - fit.half <= lo + 1e-6
    assert fit.centre + fit.half >= lo + span - 1e-6


def test_exp_takes_the_lowest_degree_that_is_close_enough() -> None:
    degrees = [len(fit_exp(-3, 1, t).coefficients) for t in (2.0**-5, 2.0**-10, 2.0**-17)]
    assert degrees == sorted(set(degrees))


def test_coefficients_have_no_more_bits_than_every_machine_agrees_on() -> None:
    fit = fit_exp(-3.0, 1.0, 2.0**-17)
    mantissas = np.frexp(fit.coefficients)[0] * 2.0**52
    np.testing.assert_array_equal(mantissas, np.rint(mantissas))


def test_a_constant_variance_is_a_line() -> None:
    fit = fit_exp(-2.0, -2.0, 2.0**-17)
    assert len(fit.coefficients) == 2
    assert abs(fit.coefficients[0] - np.exp(-2)) < 1e-6


def test_a_variance_too_wide_is_refused() -> None:
    with pytest.raises(CimError, match=r"logvar spans -60 to 60 .* too wide for exp in 24"):
        fit_exp(-60, 60, 2.0**-17)


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 12), st.sampled_from([2.0**-8, 2.0**-14]))
def test_tanh_is_within_its_tolerance_everywhere(top: float, tolerance: float) -> None:
    fit = fit_tanh(top, tolerance)
    assert fit.error <= tolerance
    reach = 20.0 if fit.limit == TANH_LIMIT else fit.limit
    x = np.random.default_rng(0).uniform(-reach, reach, 7919)
    u = np.clip(x / fit.limit, -1, 1)
    found = u * polynomial.polyval(2 * np.abs(u) - 1, fit.coefficients)
    assert np.abs(found - np.tanh(x)).max() <= SLACK * fit.error + 1e-13
    assert fit.limit >= min(top, TANH_LIMIT)


def test_tanh_is_fitted_without_coefficients_that_cancel() -> None:
    fit = fit_tanh(100.0, 2.0**-14)
    assert len(fit.coefficients) <= 14
    assert np.abs(fit.coefficients).max() < 4


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-3, 1e3), st.floats(1.0, 12.0), st.sampled_from([2.0**-8, 2.0**-18]))
def test_the_reciprocal_root_is_within_its_tolerance(
    lo: float, ratio: float, tolerance: float
) -> None:
    hi = lo * ratio
    fit = fit_inverse_root(lo, hi, tolerance)
    x = np.random.default_rng(0).uniform(lo, hi, 7919)
    y = fit.alpha + fit.beta * x
    for _ in range(fit.steps):
        y = y * (3 - x * y * y) / 2
    assert np.abs(y * np.sqrt(x) - 1).max() <= SLACK * fit.error + 1e-13
    assert fit.error <= tolerance


def test_equal_norms_need_no_slope() -> None:
    fit = fit_inverse_root(1.0, 1.0, 2.0**-18)
    assert (fit.beta, fit.steps) == (0.0, 0)


@pytest.mark.parametrize("lo", [0.0, 1e-9])
def test_norms_too_far_apart_are_refused(lo: float) -> None:
    with pytest.raises(CimError, match=r"row norms before normalisation span .* too wide for 8"):
        fit_inverse_root(lo, 100.0, 2.0**-18)
