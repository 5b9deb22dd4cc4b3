"""Ridge on standardised features: what is found again, what weighs, what cannot be fitted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.surrogate import exponents
from cimtool.training.polynomial import FLOOR, condition, fit_logit, fitted_range, noise_weights
from cimtool.training.teacher import Labels


def labelled(ed: FloatArray, vd: FloatArray, logit: FloatArray) -> Labels:
    return Labels(ed, vd, logit, np.zeros_like(logit))


def sample(mean: float, spread: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    ed = mean + spread * rng.uniform(-1, 1, 800)
    vd = 60 + 20 * rng.uniform(-1, 1, 800)
    u, v = (ed - mean) / spread, (vd - 60) / 20
    return ed, vd, -30 - 5 * u + v + 0.3 * u * v + 0.2 * u**4 - 0.1 * v**3


@settings(max_examples=examples(20))
@given(st.floats(1, 1000), st.floats(0.02, 0.5))
def test_a_polynomial_is_found_again(mean: float, share: float) -> None:
    ed, vd, logit = sample(mean, share * mean)
    fitted = fit_logit(labelled(ed, vd, logit), alpha=1e-9)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), logit, atol=1e-5)
    x, y = ed / fitted.scale_ed, vd / fitted.scale_vd
    assert 0.5 <= x.max() <= 1
    assert 0.5 <= y.max() <= 1


def test_exported_coefficients_hold_in_plain_arithmetic() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    p = fit_logit(labelled(ed, vd, logit), alpha=1e-9)
    x, y = ed / p.scale_ed, vd / p.scale_vd
    terms = [x ** (n - j) * y**j for n in range(1, 5) for j in range(n + 1)]
    plain = p.bias + sum(c * t for c, t in zip(p.coeff, terms, strict=True))
    np.testing.assert_allclose(plain, logit, atol=1e-6)


def test_coefficients_that_raw_features_cannot_hold_are_refused() -> None:
    ed, vd, logit = sample(300.0, 0.003)
    with pytest.raises(CimError, match=r"degree 4 in raw ed and vd loses .*try a lower degree"):
        fit_logit(labelled(ed, vd, logit))
    assert fit_logit(labelled(ed, vd, logit), degree=1).degree == 1


def test_ed_that_never_varies_and_labels_that_are_not_finite_are_refused() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    with pytest.raises(CimError, match=r"ed is 7\.0 for all"):
        fit_logit(labelled(np.full_like(ed, 7.0), vd, logit))
    with pytest.raises(CimError, match="logit reaches inf"):
        fit_logit(labelled(ed, vd, np.full_like(ed, -np.inf)))


def test_a_point_embedding_without_variance_can_be_fitted() -> None:
    ed = np.linspace(1, 50, 100)
    fitted = fit_logit(labelled(ed, np.zeros(100), -0.1 * ed), degree=2)
    np.testing.assert_allclose(fitted.evaluate(ed, np.zeros(100)), -0.1 * ed, atol=1e-3)


@pytest.mark.parametrize("degree", range(1, 9))
def test_every_degree_finds_a_polynomial_of_its_own(degree: int) -> None:
    ed, vd, _ = sample(300.0, 60.0)
    u, v = (ed - 300) / 60, (vd - 60) / 20
    logit = -30 + sum(0.5 * u**i * v**j for i, j in exponents(degree))
    fitted = fit_logit(labelled(ed, vd, logit), degree, 1e-9)
    assert (fitted.degree, fitted.a, fitted.K) == (degree, None, None)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), logit, atol=1e-6)


@pytest.mark.parametrize(
    ("pairs", "degree", "alpha", "sentence"),
    [
        (800, 0, 0.1, "degree is 0; expected 1 to 8"),
        (800, 9, 0.1, "degree is 9; expected 1 to 8"),
        (800, 4, -1.0, "alpha is -1.0; expected a finite number, 0 or more"),
        (800, 4, math.inf, "alpha is inf; expected a finite number, 0 or more"),
        (14, 4, 0.1, "there are 14 pairs to fit; a polynomial of degree 4 has 15 coefficients"),
        (0, 1, 0.1, "there are 0 pairs to fit; a polynomial of degree 1 has 3 coefficients"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    pairs: int, degree: int, alpha: float, sentence: str
) -> None:
    some = labelled(*(values[:pairs] for values in sample(300.0, 60.0)))
    with pytest.raises(CimError, match=f"^{sentence}"):
        fit_logit(some, degree, alpha)


def test_labels_that_are_all_the_same_are_refused() -> None:
    ed, vd, _ = sample(300.0, 60.0)
    with pytest.raises(CimError, match=r"labels are all -13\.8155 \(logit\); expected"):
        fit_logit(labelled(ed, vd, np.full_like(ed, -13.81551)))


def test_what_varies_by_rounding_alone_does_not_vary() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    rounding = 1e-15 * np.random.default_rng(0).uniform(-1, 1, len(ed))
    with pytest.raises(CimError, match=r"labels are all -13 \(logit\); expected"):
        fit_logit(labelled(ed, vd, -13 * (1 + rounding)))
    with pytest.raises(CimError, match=r"labels are all \S+ \(logit\); expected"):
        fit_logit(Labels(ed, vd, np.log(0.5) * (1 + rounding), np.full_like(ed, np.log(0.5))))
    with pytest.raises(CimError, match=r"ed is \S+ for all of the teacher's pairs"):
        fit_logit(labelled(300 * (1 + rounding), vd, logit), degree=1)


def test_a_pair_of_weight_2_counts_as_two() -> None:
    ed, vd, logit = (values[:30] for values in sample(300.0, 60.0))
    twice = (np.concatenate([x, x[:10]]) for x in (ed, vd, logit))
    weights = np.repeat([2.0, 1.0], [10, 20])
    weighted = fit_logit(labelled(ed, vd, logit), 2, 1e-9, weights)
    np.testing.assert_allclose(
        weighted.evaluate(ed, vd), fit_logit(labelled(*twice), 2, 1e-9).evaluate(ed, vd), atol=1e-6
    )


def test_weights_follow_the_noise_that_is_usual_at_ed_and_vd() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    error = np.exp(ed / 100)
    known = replace(labelled(ed, vd, logit), standard_error=error)
    weights = noise_weights(known)
    assert weights is not None
    np.testing.assert_allclose(weights * error**2, (weights * error**2)[0], rtol=1e-4)
    assert weights.mean() == pytest.approx(1)
    assert noise_weights(labelled(ed, vd, logit)) is None
    assert noise_weights(replace(known, standard_error=np.zeros_like(ed))) is None


def test_an_error_that_goes_with_the_label_does_not_pull_the_fit() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    chance = np.random.default_rng(4).normal(size=len(ed)) * 0.2
    known = Labels(ed, vd, logit + chance, np.zeros_like(ed), np.exp(2 * chance))
    off = fit_logit(known, weights=noise_weights(known)).evaluate(ed, vd) - logit
    assert abs(off.mean()) < 0.02
    by_own = fit_logit(known, weights=np.exp(-4 * chance)).evaluate(ed, vd) - logit
    assert by_own.mean() < -0.1


def test_no_weight_grows_without_bound() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    tiny = replace(labelled(ed, vd, logit), standard_error=np.where(ed < 300, 1e-12, FLOOR / 1e3))
    weights = noise_weights(tiny)
    assert weights is not None
    np.testing.assert_allclose(weights, 1, rtol=1e-5)


def test_the_condition_number_is_that_of_the_centred_features() -> None:
    u = np.linspace(-1, 1, 101)
    some = labelled(300 + u, np.full(101, 7.0), u)
    assert condition(some, 1) == pytest.approx(1)
    features = np.stack([u / u.std(), (u / u.std()) ** 2], axis=1)
    features -= features.mean(axis=0)
    assert condition(some, 2) == pytest.approx(np.linalg.cond(features))
    heavy = np.where(u > 0.5, 1e4, 1.0)
    assert condition(some, 2, heavy) > 3 * condition(some, 2)


def test_statistics_beyond_reach_are_named() -> None:
    ed, vd, logit = sample(100.0, 20.0)
    with pytest.raises(CimError, match=r"ed reaches 1\.2e\+202 .* expected less than 1e\+100"):
        fit_logit(labelled(1e200 * ed, vd, logit))
    with pytest.raises(CimError, match=r"vd reaches .* expected less than 1e\+100"):
        fit_logit(labelled(ed, 1e200 * vd, logit))


def test_a_statistic_that_varies_by_rounding_alone_has_no_part() -> None:
    ed, _, logit = sample(100.0, 20.0)
    rounded = 5 * (1 + 1e-15 * np.random.default_rng(1).standard_normal(len(ed)))
    fitted = fit_logit(labelled(ed, rounded, logit))
    assert fitted.coeff == fit_logit(labelled(ed, np.full_like(ed, 5.0), logit)).coeff
    known = dict(zip(exponents(4), fitted.coeff, strict=True))
    assert {known[i, j] for i, j in known if j} == {0.0}
    assert condition(labelled(ed, rounded, logit), 4) < 1e4


def test_a_fit_in_ed_alone_has_no_coefficient_of_vd() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    known = labelled(ed, vd, logit)
    fitted = fit_logit(known, 3, ed_alone=True)
    assert not fitted.reads_vd
    line = np.polynomial.Polynomial.fit(ed, logit, 3)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), line(ed), atol=1e-3)
    assert fit_logit(known, 3).reads_vd
    assert condition(known, 3, ed_alone=True) < condition(known, 3)


def test_the_range_holds_its_pairs_in_a_narrow_band() -> None:
    rng = np.random.default_rng(0)
    ed = rng.uniform(200, 300, 500)
    vd = 5 + 0.3 * ed + rng.uniform(-0.1, 0.2, 500)
    found = fitted_range(ed, vd)
    assert found.vd_line is not None
    assert found.vd_beside_line is not None
    (start, slope), (least, most) = found.vd_line, found.vd_beside_line
    beside = vd - (start + slope * ed)
    assert slope == pytest.approx(0.3, abs=1e-3)
    assert found.ed == (ed.min(), ed.max())
    assert (least <= beside).all()
    assert (beside <= most).all()
    assert most - least < 0.32


def test_the_line_of_a_statistic_that_never_varies() -> None:
    found = fitted_range(np.full(3, 2.0), np.array([1.0, 2.0, 3.0]))
    assert found.vd_line == (2.0, 0)


def test_a_scaled_range_is_that_of_scaled_pairs() -> None:
    ed, vd = np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 7.0])
    scaled, direct = fitted_range(ed, vd).times(16.0, 256.0), fitted_range(16 * ed, 256 * vd)
    assert scaled.ed == direct.ed
    for name in ("vd", "vd_line", "vd_beside_line"):
        np.testing.assert_allclose(getattr(scaled, name), getattr(direct, name))
