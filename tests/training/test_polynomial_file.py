"""Files of a fitted polynomial: to the same bits, with and without scales."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import torch

from cimtool.loading.polynomial import parse_polynomial
from cimtool.reference.surrogate import FittedRange, Polynomial
from cimtool.training.polynomial_file import PT_KEYS, polynomial_pt, polynomial_text, without_scales

POLYNOMIAL = Polynomial(
    2, (-30.1, 0.7, -0.02, 0.3, 0.1 / 3), 0.25, 1024.0, 128.0, True, 0.2, 1.0, 6
)


def test_a_written_polynomial_reads_back_to_the_same_bits() -> None:
    fitted = POLYNOMIAL
    read = json.loads(polynomial_text(fitted))
    assert Polynomial(**read | {"coeff": tuple(read["coeff"])}) == fitted
    assert (read["a"], read["b"], read["K"], read["fit_logit"]) == (0.2, 1.0, 6, True)


def test_the_domain_stands_in_the_file() -> None:
    fitted = POLYNOMIAL
    text = polynomial_text(fitted, {"ed": (240.0, 360.0), "vd": (40.0, 80.0)})
    assert json.loads(text)["domain"] == {"ed": [240.0, 360.0], "vd": [40.0, 80.0]}
    assert "domain" not in json.loads(polynomial_text(fitted))


def test_scales_go_into_the_coefficients_without_rounding() -> None:
    plain = without_scales(POLYNOMIAL)
    assert (plain.scale_ed, plain.scale_vd) == (1.0, 1.0)
    ed, vd = np.random.default_rng(0).uniform(100, 900, (2, 50))
    np.testing.assert_array_equal(plain.evaluate(ed, vd), POLYNOMIAL.evaluate(ed, vd))


def test_a_pt_is_the_same_bytes_and_the_same_polynomial_under_both_names() -> None:
    domain = {"ed": (240.0, 360.0), "vd": (40.0, 80.0)}
    found = {}
    for keys in PT_KEYS:
        written = polynomial_pt(POLYNOMIAL, domain, keys)
        assert written == polynomial_pt(POLYNOMIAL, domain, keys)
        values = torch.load(io.BytesIO(written), weights_only=True)
        assert values["domain"] == {"ed": [240.0, 360.0], "vd": [40.0, 80.0]}
        found[keys] = parse_polynomial(values, "p.pt")
    assert found["coeff"] == found["c"]
    fitted = FittedRange((240.0, 360.0), (40.0, 80.0))
    assert found["c"] == replace(without_scales(POLYNOMIAL), domain=fitted)
    assert (found["c"].a, found["c"].b, found["c"].K) == (0.2, 1.0, 6)
