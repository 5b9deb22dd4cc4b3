from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import MAX_DEGREE, FittedRange, Polynomial, exponents
from cimtool.loading.polynomial import parse_polynomial, read_polynomial

finite = st.floats(-1e6, 1e6)


@st.composite
def polynomials(draw: st.DrawFn) -> Polynomial:
    degree = draw(st.integers(1, MAX_DEGREE))
    count = len(exponents(degree))
    coeff = tuple(draw(st.lists(finite, min_size=count, max_size=count)))
    scale = st.floats(1e-3, 1e6)
    return Polynomial(
        degree,
        coeff,
        draw(finite),
        draw(scale),
        draw(scale),
        draw(st.booleans()),
        draw(st.none() | st.floats(1e-6, 1e6)),
        draw(st.none() | finite),
        draw(st.none() | st.integers(1, 100)),
    )


def written(p: Polynomial) -> dict[str, Any]:
    values = {**vars(p), "coeff": list(p.coeff)}
    return {key: value for key, value in values.items() if value is not None}


@given(polynomials())
def test_every_form_gives_the_same_polynomial(
    tmp_path_factory: pytest.TempPathFactory, p: Polynomial
) -> None:
    folder, values = tmp_path_factory.mktemp("poly"), written(p)
    (folder / "p.json").write_text(json.dumps(values))
    np.savez(folder / "p.npz", **values)
    tensors = {**values, "coeff": torch.tensor(p.coeff, dtype=torch.float64)}
    torch.save(tensors, folder / "p.pt")
    for name in ("p.json", "p.npz", "p.pt"):
        assert read_polynomial(folder / name) == p


TWO = [0.5, -0.25, 0.1, 0.2, 0.3]


def test_aliases_and_inferred_degree() -> None:
    p = parse_polynomial({"coef_": np.array([TWO]), "intercept_": np.array([2.0])}, "p")
    assert (p.degree, p.coeff, p.bias) == (2, tuple(TWO), 2.0)
    assert (p.scale_ed, p.scale_vd, p.fit_logit) == (1.0, 1.0, True)
    assert (p.a, p.b, p.K) == (None, None, None)


def test_b_beside_c_is_the_intercept_only_where_there_is_no_bias() -> None:
    p = parse_polynomial({"c": TWO, "b": 3.0, "a": 0.1}, "p")
    assert (p.bias, p.a, p.b) == (3.0, 0.1, None)
    p = parse_polynomial({"c": TWO, "b": 3.0, "bias": 1.0}, "p")
    assert (p.bias, p.b) == (1.0, 3.0)
    p = parse_polynomial({"c": TWO, "b": 3.0, "teacher_meta": {"a": 0.2, "b": 0.7, "K": 8}}, "p")
    assert (p.bias, p.a, p.b, p.K) == (3.0, 0.2, 0.7, 8)
    with pytest.raises(CimError, match=r"bias .* is missing"):
        parse_polynomial({"coeff": TWO, "b": 3.0}, "p")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"degree": 4}, r"f\.json: polynomial: coeff has 5 numbers; degree 4 has 14"),
        ({"coeff": [*TWO, 1.0], "degree": None}, "coeff has 6 numbers and degree is missing"),
        ({"coeff": [*TWO[:4], math.nan]}, r"f\.json: polynomial: coeff\[4\] is nan"),
        ({"coeff": ["x"] * 5}, r"f\.json: coeff is .*expected a list of numbers"),
        ({"coeff": [[1, 2], [3, 4]]}, r"f\.json: coeff has shape \[2, 2\]"),
        ({"coeff": [[1, 2], [3]]}, r"f\.json: coeff is"),
        ({"coeff": None}, r"f\.json: coeff \(or coef_, c\) is missing; it holds .*bias"),
        ({"coef_": TWO}, "holds coeff and coef_; expected one"),
        ({"bias": None}, r"f\.json: bias \(or intercept_\) is missing"),
        ({"bias": [1, 2]}, r"bias has shape \[2\]; expected one number"),
        ({"bias": "1"}, "bias is '1'; expected a number"),
        ({"degree": 2.5}, "degree is 2.5; expected an integer"),
        ({"degree": True}, "degree is True; expected a number"),
        ({"degree": 9}, "degree is 9; expected 1 to 8"),
        ({"scale_ed": 0}, "scale_ed is 0.0; expected more than 0"),
        ({"fit_logit": "yes"}, "fit_logit is 'yes'; expected true or false"),
        ({"a": math.inf}, "a is inf"),
        ({"a": 0}, r"f\.json: a is 0; expected a number above 0"),
        ({"teacher_meta": {"a": -0.5}}, r"f\.json: a is -0\.5; expected a number above 0"),
        ({"K": 0}, "K is 0"),
        ({"teacher_meta": 3}, "teacher_meta is 3; expected a table"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"degree": 2, "coeff": TWO, "bias": 1.0} | change))
    with pytest.raises(CimError, match=message):
        read_polynomial(path)


def test_broken_files(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text("{")
    with pytest.raises(CimError, match=r"f\.json: not valid JSON"):
        read_polynomial(tmp_path / "f.json")
    (tmp_path / "f.json").write_text("[1]")
    with pytest.raises(CimError, match="expected a dictionary"):
        read_polynomial(tmp_path / "f.json")
    (tmp_path / "f.npz").write_bytes(b"PK nonsense")
    with pytest.raises(CimError, match=r"f\.npz: is truncated, corrupt"):
        read_polynomial(tmp_path / "f.npz")
    np.savez(tmp_path / "g.npz", coeff=TWO, bias=1.0, teacher_meta={"a": 1})
    with pytest.raises(CimError, match=r"g\.npz: teacher_meta: holds Python objects"):
        read_polynomial(tmp_path / "g.npz")
    (tmp_path / "f.csv").touch()
    with pytest.raises(CimError, match=r'"\.csv" is not the suffix of a polynomial'):
        read_polynomial(tmp_path / "f.csv")


def test_the_range_of_a_fit_is_read_where_a_file_says_it() -> None:
    values: dict[str, Any] = {"degree": 1, "coeff": [-0.1, 0.0], "bias": 0.5}
    assert parse_polynomial(values, "p.json").domain is None
    band = {"ed": [1, 2.5], "vd_line": [0.0, 1.0], "vd_beside_line": [0.0, 0.1]}
    found = parse_polynomial({**values, "domain": band}, "p.json")
    lines = (0.0, 1.0), (0.0, 0.1)
    assert found.domain == FittedRange((1.0, 2.5), None, *lines)
    found = parse_polynomial({**values, "domain": {**band, "vd": [3.0, 4.0]}}, "p.json")
    assert found.domain == FittedRange((1.0, 2.5), (3.0, 4.0), *lines)


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ("wide", r"^p\.json: domain is 'wide'; expected a table of ed and vd"),
        ({}, r"^p\.json: domain has no ed but \[\]; expected ed and vd"),
        ({"vd": [1.0, 2.0]}, r"^p\.json: domain has no ed but \['vd'\]; expected ed and vd"),
        (
            {"ed": [1.0, 2.0]},
            r"^p\.json: polynomial: domain has only ed, and the",
        ),
        (
            {"ed": [1.0, 2.0], "vd": [1.0, 2.0], "vd_line": [2.0, -1.0]},
            r"^p\.json: domain has only ed, vd, vd_line; expected both of vd_line and vd",
        ),
    ],
)
def test_a_domain_that_says_too_little_is_refused(domain: Any, said: str) -> None:
    values = {"coeff": [-0.1, 0.2], "bias": 0.5, "domain": domain}
    with pytest.raises(CimError, match=said):
        parse_polynomial(values, "p.json")


def test_a_polynomial_in_ed_alone_needs_no_range_of_vd() -> None:
    values = {"coeff": [-0.1, 0.0], "bias": 0.5, "domain": {"ed": [1.0, 2.0]}}
    assert parse_polynomial(values, "p.json").domain == FittedRange((1.0, 2.0))


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            [2.0, 1.0],
            r"^p\.json: domain\.ed is 2 to 1; expected two numbers of .* in magnitude, the lower",
        ),
        ([0.0, math.inf], r"^p\.json: domain\.ed is 0 to inf; expected two numbers of at most"),
        ([1.0], r"^p\.json: domain\.ed has 1 numbers; expected two"),
        ("wide", r"^p\.json: domain\.ed is 'wide'; expected a list of numbers"),
    ],
)
def test_a_range_of_a_fit_that_is_none_is_refused(ends: Any, said: str) -> None:
    values = {"coeff": [-0.1, 0.0], "bias": 0.5, "domain": {"ed": ends, "vd": [0.0, 1.0]}}
    with pytest.raises(CimError, match=said):
        parse_polynomial(values, "p.json")
