"""Files of a fitted polynomial: to the same bits, with and without scales."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.loading.polynomial import parse_polynomial, read_polynomial
from cimtool.training.polynomial import (
    PT_KEYS,
    checkpoint_values,
    polynomial_pt,
    polynomial_text,
    without_scales,
)

POLYNOMIAL = Polynomial(
    2, (-30.1, 0.7, -0.02, 0.3, 0.1 / 3), 0.25, 1024.0, 128.0, True, 0.2, 1.0, 6
)
DOMAIN = FittedRange((240.0, 360.0), (40.0, 80.0))


def test_a_written_polynomial_reads_back_to_the_same_bits() -> None:
    fitted = POLYNOMIAL
    read = json.loads(polynomial_text(fitted))
    assert Polynomial(**read | {"coeff": tuple(read["coeff"])}) == fitted
    assert (read["a"], read["b"], read["K"], read["fit_logit"]) == (0.2, 1.0, 6, True)


def test_the_domain_stands_in_the_file() -> None:
    fitted = POLYNOMIAL
    text = polynomial_text(replace(fitted, domain=DOMAIN))
    assert json.loads(text)["domain"] == {"ed": [240.0, 360.0], "vd": [40.0, 80.0]}
    assert "domain" not in json.loads(polynomial_text(fitted))


def test_scales_go_into_the_coefficients_without_rounding() -> None:
    plain = without_scales(POLYNOMIAL)
    assert (plain.scale_ed, plain.scale_vd) == (1.0, 1.0)
    ed, vd = np.random.default_rng(0).uniform(100, 900, (2, 50))
    np.testing.assert_array_equal(plain.evaluate(ed, vd), POLYNOMIAL.evaluate(ed, vd))


def test_a_pt_is_the_same_bytes_and_the_same_polynomial_under_both_names() -> None:
    found, given = {}, replace(POLYNOMIAL, domain=DOMAIN)
    for keys in PT_KEYS:
        written = polynomial_pt(given, keys)
        assert written == polynomial_pt(given, keys)
        values = torch.load(io.BytesIO(written), weights_only=True)
        assert values["domain"] == {"ed": [240.0, 360.0], "vd": [40.0, 80.0]}
        found[keys] = parse_polynomial(values, "p.pt")
    assert found["coeff"] == found["c"]
    assert found["c"] == without_scales(given)
    assert (found["c"].a, found["c"].b, found["c"].K) == (0.2, 1.0, 6)


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path: Path) -> None:
    given = replace(POLYNOMIAL, domain=FittedRange((1.0, 2.0), None, (3.0, 4.0), (-5.0, 6.0)))
    torch.save(checkpoint_values(given), tmp_path / "p.pth")
    values = torch.load(tmp_path / "p.pth", weights_only=True)
    assert parse_polynomial(values, "p.pth") == given


def test_a_file_gives_the_polynomial_and_its_domain(tmp_path: Path) -> None:
    path = tmp_path / "poly.json"
    given = replace(POLYNOMIAL, domain=FittedRange((1.0, 2.0), None, (3.0, 4.0), (-5.0, 6.0)))
    path.write_text(polynomial_text(given))
    assert read_polynomial(path) == given
    path.write_text(polynomial_text(POLYNOMIAL))
    assert read_polynomial(path).domain is None


@pytest.mark.parametrize("value", ["no", [1.0], [1.0, float("nan")], None])
def test_a_domain_of_other_values(value: object) -> None:
    given = replace(POLYNOMIAL, domain=FittedRange((1.0, 2.0), None, (3.0, 4.0), (-5.0, 6.0)))
    values = json.loads(polynomial_text(given))
    values["domain"]["vd_line"] = value
    with pytest.raises(CimError, match=r"p.json: domain.vd_line (is|has) .*; expected"):
        parse_polynomial(values, "p.json")
