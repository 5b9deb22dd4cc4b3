from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.arrays import FloatArray
from cimtool.errors import CimError
from cimtool.reference.surrogate import Polynomial
from cimtool.training.fit import fit_polynomial, save_polynomial
from cimtool.training.teacher import Labels, Sigmoid


def labels(ed: FloatArray, vd: FloatArray, logit: FloatArray) -> Labels:
    return Labels(ed, vd, logit, np.zeros_like(logit))


def sample(mean: float, spread: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    ed = mean + spread * rng.uniform(-1, 1, 800)
    vd = 60 + 20 * rng.uniform(-1, 1, 800)
    u, v = (ed - mean) / spread, (vd - 60) / 20
    return ed, vd, -30 - 5 * u + v + 0.3 * u * v + 0.2 * u**4 - 0.1 * v**3


@settings(deadline=None, max_examples=20)
@given(st.floats(1, 1000), st.floats(0.02, 0.5))
def test_a_polynomial_is_found_again(mean: float, share: float) -> None:
    ed, vd, logit = sample(mean, share * mean)
    fitted = fit_polynomial(labels(ed, vd, logit), Sigmoid(), alpha=1e-9)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), logit, atol=1e-5)
    x, y = ed / fitted.scale_ed, vd / fitted.scale_vd
    assert 0.5 <= x.max() <= 1
    assert 0.5 <= y.max() <= 1


def test_exported_coefficients_hold_in_plain_arithmetic() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    p = fit_polynomial(labels(ed, vd, logit), Sigmoid(), alpha=1e-9)
    x, y = ed / p.scale_ed, vd / p.scale_vd
    terms = [x ** (n - j) * y**j for n in range(1, 5) for j in range(n + 1)]
    plain = p.bias + sum(c * t for c, t in zip(p.coeff, terms, strict=True))
    np.testing.assert_allclose(plain, logit, atol=1e-6)


def test_coefficients_that_raw_features_cannot_hold_are_refused() -> None:
    ed, vd, logit = sample(300.0, 0.003)
    with pytest.raises(CimError, match=r"degree 4 in raw ed and vd loses .*try a lower degree"):
        fit_polynomial(labels(ed, vd, logit), Sigmoid())
    assert fit_polynomial(labels(ed, vd, logit), Sigmoid(), degree=1).degree == 1


def test_ed_that_never_varies_and_labels_that_are_not_finite_are_refused() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    with pytest.raises(CimError, match=r"ed is 7\.0 for all"):
        fit_polynomial(labels(np.full_like(ed, 7.0), vd, logit), Sigmoid())
    with pytest.raises(CimError, match="not finite"):
        fit_polynomial(labels(ed, vd, np.full_like(ed, -np.inf)), Sigmoid())


def test_a_point_embedding_without_variance_can_be_fitted() -> None:
    ed = np.linspace(1, 50, 100)
    fitted = fit_polynomial(labels(ed, np.zeros(100), -0.1 * ed), Sigmoid(), degree=2)
    np.testing.assert_allclose(fitted.evaluate(ed, np.zeros(100)), -0.1 * ed, atol=1e-3)


def test_a_saved_polynomial_reads_back_to_the_same_bits(tmp_path: Path) -> None:
    ed, vd, logit = sample(300.0, 60.0)
    fitted = fit_polynomial(labels(ed, vd, logit), Sigmoid(a=0.2, b=1.0, K=6))
    save_polynomial(fitted, tmp_path / "poly.json")
    read = json.loads((tmp_path / "poly.json").read_text())
    assert Polynomial(**read | {"coeff": tuple(read["coeff"])}) == fitted
    assert (read["a"], read["b"], read["K"], read["fit_logit"]) == (0.2, 1.0, 6, True)
