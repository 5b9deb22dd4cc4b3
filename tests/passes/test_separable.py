"""Sums of products of functions of one number, for a function of two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial import polynomial

from cimtool.ir.source import Inclusion
from cimtool.passes.separable import PairFunction, SeparableFit, fit_antisymmetric

SHARE = 2.0**-9
PAGE = (Path(__file__).parents[2] / "benchmarks" / "quantization.md").read_text("utf-8")


def values(
    fit: SeparableFit, centre: float, half: float, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    u, v = (x - centre) / half, (y - centre) / half
    return sum(
        polynomial.polyval(u, term.left) * polynomial.polyval(v, term.right) for term in fit.terms
    )


@pytest.mark.parametrize("function", [Inclusion.prior, Inclusion.weight])
@pytest.mark.parametrize("half", [0.1, 0.5, 1.0, 2.0, 3.0])
def test_the_stated_error_holds_between_the_points(function: PairFunction, half: float) -> None:
    centre = -3.0
    fit = fit_antisymmetric(function, centre, half, SHARE, 8)
    assert fit is not None
    x, y = np.random.default_rng(0).uniform(centre - half, centre + half, (2, 20_000))
    exact = function(x, y)
    assert np.abs(values(fit, centre, half, x, y) - exact).max() <= 1.01 * fit.error
    assert fit.error <= 1.01 * SHARE * np.abs(exact).max()
    u = np.linspace(-1, 1, 1001)
    for term in fit.terms:
        for powers, reach in zip((term.left, term.right), term.reach, strict=True):
            assert len(powers) >= 2
            assert np.abs(polynomial.polyval(u, powers)).max() <= reach * 1.001


def test_a_difference_takes_two_terms_and_wider_ranges_take_more() -> None:
    line = fit_antisymmetric(lambda x, y: y - x, 1.0, 2.0, 2.0**-20, 2)
    assert line is not None
    assert len(line.terms) == 2
    counts = [
        len(fit.terms)
        for half in (0.25, 1.0, 4.0)
        if (fit := fit_antisymmetric(Inclusion.weight, 0.0, half, SHARE, 20))
    ]
    assert counts == sorted(set(counts))
    assert len(counts) == 3


def test_too_few_terms_are_no_fit() -> None:
    assert fit_antisymmetric(Inclusion.weight, 0.0, 4.0, SHARE, 2) is None


def test_the_table_of_products_has_these_figures() -> None:
    lines = PAGE[PAGE.index("| log-variances span") :].splitlines()[2:8]
    for line in lines:
        span, prior, weight, errors = (cell.strip() for cell in line.strip("|").split("|"))
        half = float(span) / 2
        fits = [
            fit_antisymmetric(function, 0.0, half, SHARE, 8)
            for function in (Inclusion.prior, Inclusion.weight)
        ]
        x = np.linspace(-half, half, 301)
        tops = [np.abs(f(x[:, None], x)).max() for f in (Inclusion.prior, Inclusion.weight)]
        assert [len(fit.terms) for fit in fits if fit] == [int(prior), int(weight) // 3]
        said = [float(one) for one in errors.split(",")]
        shares = [fit.error / top for fit, top in zip(fits, tops, strict=True) if fit]
        np.testing.assert_allclose(said, shares, rtol=0.05)
    assert len(lines) == 6
