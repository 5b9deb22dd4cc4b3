"""Stand-ins for exp and 1/sqrt: the stated error holds at points that were not measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial
from scipy.special import erf

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.source import Abs, Elu, Erf, Sigmoid, Softplus, Tanh
from cimtool.passes.approximate import (
    DENSE_POINTS,
    LEAST_TOLERANCE,
    CurvePolynomial,
    SplitCurve,
    fit_curve,
    fit_exp,
    fit_inverse,
    fit_inverse_root,
)

SLACK = 1.02  # between two of the points measured


@settings(max_examples=examples(40))
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
        fit_exp(-60, 60, 2.0**-17, "logvar")


CURVES = {op.name: op.run for op in (Tanh(), Sigmoid(), Erf(), Softplus(), Elu(1.67), Abs())}
CURVES["gelu"] = lambda x: x * (1 + erf(x / np.sqrt(2))) / 2
CURVES["silu"] = lambda x: x * Sigmoid().run(x)
CURVES["mish"] = lambda x: x * np.tanh(np.logaddexp(0, x))


@settings(max_examples=examples(60))
@given(st.sampled_from(list(CURVES)), st.floats(-40, 20), st.floats(1e-3, 40))
def test_a_curve_is_within_its_tolerance_everywhere(name: str, lo: float, span: float) -> None:
    function, hi = CURVES[name], lo + span
    fit = fit_curve(function, lo, hi, 2.0**-14)
    assert fit is not None
    dense = function(np.linspace(lo, hi, DENSE_POINTS))
    assert fit.error <= max(2.0**-14 * np.abs(dense).max(), LEAST_TOLERANCE)
    x = np.random.default_rng(0).uniform(lo, hi, 7919)
    exact = function(x)
    assert np.abs(fit(x) - exact).max() <= SLACK * fit.error + 1e-13


def fitted(function: Callable[[FloatArray], FloatArray], lo: float, hi: float) -> CurvePolynomial:
    """A curve that is not split."""
    fit = fit_curve(function, lo, hi, 2.0**-14)
    assert isinstance(fit, CurvePolynomial)
    return fit


@pytest.mark.parametrize(("name", "lo"), [("silu", -14.0), ("silu", -20.0), ("mish", -11.0)])
def test_a_curve_whose_coefficients_would_cancel_is_split(name: str, lo: float) -> None:
    fit = fit_curve(CURVES[name], lo, 0.5, 2.0**-14)
    assert isinstance(fit, SplitCurve)
    assert fit.ends == (pytest.approx(max(lo, -14.58)), 0.5)
    assert fit.sides[0].ends[1] == pytest.approx(fit.sides[1].ends[0])
    assert fit.multiply_adds == sum(fit.degrees) <= 22
    sums = [np.abs(side.even).sum() for side in fit.sides]
    assert max(sums) < 12


def test_a_curve_far_from_0_is_a_line() -> None:
    fits = {name: fitted(function, -40, 40) for name, function in CURVES.items()}
    slopes = {name: (fit.below, fit.above) for name, fit in fits.items()}
    assert slopes == {
        "tanh": (0, 0), "sigmoid": (0, 0), "erf": (0, 0), "softplus": (0, 1), "elu": (0, 1),
        "abs": (-1, 1), "gelu": (0, 1), "silu": (0, 1), "mish": (0, 1),
    }  # fmt: skip
    scaled = fitted(lambda x: 1.05 * Elu(1.67).run(x), -40, 40)
    assert scaled.above == pytest.approx(1.05, abs=1e-6)


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_fitted_without_coefficients_that_cancel(name: str) -> None:
    fit = fitted(CURVES[name], -5, 4)
    assert fit.multiply_adds <= 21
    assert np.abs((*fit.even, *(fit.odd or ()))).max() < 5


def test_a_curve_of_one_side_is_one_polynomial() -> None:
    fit = fitted(np.log, 0.5, 3.0)
    assert fit.odd is None
    assert fit.ends == (0.5, 3.0)


@pytest.mark.parametrize(
    ("function", "lo", "hi"),
    [(np.reciprocal, -1.0, 1.0), (np.log, -1.0, 2.0), (lambda x: np.sin(40 * x), -3.0, 3.0)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_polynomial_comes_close_to_has_none(
    function: Callable[[FloatArray], FloatArray], lo: float, hi: float
) -> None:
    assert fit_curve(function, lo, hi, 2.0**-14) is None


@settings(max_examples=examples(40))
@given(st.floats(1e-3, 1e3), st.floats(0.0, 7.0), st.sampled_from([2.0**-8, 2.0**-18]))
def test_the_reciprocal_root_is_within_its_tolerance(
    lo: float, decades: float, tolerance: float
) -> None:
    hi = lo * 10**decades
    fits = fit_inverse_root(lo, hi, tolerance)
    x = lo * 10 ** np.random.default_rng(0).uniform(0, decades, 7919)
    root = -sum(fit.hi**-0.5 for fit in fits[:-1])
    for fit in fits:
        inside = np.clip(x, fit.lo, fit.hi)
        y = fit.alpha + fit.beta * inside
        for _ in range(fit.steps):
            y = y * (3 - inside * y * y) / 2
        root = root + y
    # Errors were measured at points evenly apart, of which the least norms have few.
    assert np.abs(root * np.sqrt(x) - 1).max() <= 2 * tolerance
    assert max(fit.error for fit in fits) <= tolerance
    assert len(fits) == (1 if decades < 3.5 else len(fits))


@pytest.mark.parametrize("hi", [1.0, 2.0, 8.0, 77.0, 256.0])
def test_the_reciprocal_of_a_sum_is_within_its_tolerance(hi: float) -> None:
    fit = fit_inverse(1.0, hi, 2.0**-18)
    x = np.random.default_rng(0).uniform(1.0, hi, 7919)
    y = fit.alpha + fit.beta * x
    for _ in range(fit.steps):
        y = y * (2 - x * y)
    assert np.abs(y * x - 1).max() <= SLACK * fit.error + 1e-13
    assert fit.error <= 2.0**-18


def test_a_softmax_of_too_many_numbers_is_refused() -> None:
    with pytest.raises(CimError, match=r"a sum of 100000 powers needs more than 12 Newton steps"):
        fit_inverse(1.0, 1e5, 2.0**-18)


def test_equal_norms_need_no_slope() -> None:
    (fit,) = fit_inverse_root(1.0, 1.0, 2.0**-18)
    assert (fit.beta, fit.steps) == (0.0, 0)


@pytest.mark.parametrize("lo", [0.0, 1e-9])
def test_norms_too_far_apart_are_refused(lo: float) -> None:
    with pytest.raises(CimError, match=r"row norms before normalisation span .* too wide for two"):
        fit_inverse_root(lo, 100.0, 2.0**-18)
