"""Polynomial files: the trained surrogate's coefficients, and facts about its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import CimError, naming
from cimtool.base.json_files import read_json
from cimtool.base.named import require_one
from cimtool.ir.surrogate import MAX_DEGREE, FittedRange, Polynomial, exponents
from cimtool.loading.checkpoint import read_torch, require_suffix
from cimtool.loading.npy import read_npz

SUFFIXES = (".pt", ".pth", ".npz", ".json")
COEFFICIENTS = ("coeff", "coef_", "c")
INTERCEPTS = ("bias", "intercept_")
TEACHER = ("a", "b", "K")
SCALES = ("scale_ed", "scale_vd")
FITTED_TO = "fitted_to"
"""Key of the SHA-256 of the projectors whose pairs the polynomial was fitted to."""
KEYS = ("degree", *COEFFICIENTS, *INTERCEPTS, *SCALES, "fit_logit", *TEACHER, "teacher_meta")


def read_polynomial(path: Path) -> Polynomial:
    """Read a `.pt`, `.npz` or `.json` polynomial; CimError naming file and key."""
    return parse_polynomial(polynomial_values(path), str(path))


def polynomial_values(path: Path) -> dict[str, Any]:
    """Read the file's dictionary unchanged; CimError if the file holds none."""
    require_suffix(path, "a polynomial", SUFFIXES)
    if path.suffix == ".npz":
        return read_npz(path, KEYS)
    values = read_json(path) if path.suffix == ".json" else read_torch(path)
    if not isinstance(values, dict):
        raise CimError(f"{path}: expected a dictionary with degree, coeff and bias")
    return values


def fitted_to(path: Path) -> str | None:
    """The SHA-256 of the projectors that the polynomial was fitted to; None if not recorded."""
    found = polynomial_values(path).get(FITTED_TO)
    return found if isinstance(found, str) else None


def parse_polynomial(values: Mapping[str, Any], where: str) -> Polynomial:
    """Build a polynomial from a dictionary.

    The keys are `coeff` (or `coef_`, `c`), in scikit-learn's order without the constant; `bias` (or
    `intercept_`; with `c` and neither of these, `b`); `degree` (if absent, the degree that has this
    number of coefficients); `scale_ed`, `scale_vd`, `fit_logit`; and the teacher's `a`, `b`, `K`,
    which may also be in `teacher_meta`. If the file records the range of the fit, `domain` has two
    numbers each for `ed` and `vd`, and for the band's `vd_line` and `vd_beside_line`. The sentence
    of a CimError starts with `where` and names the key.
    """
    with naming(where):
        return _polynomial({key: value for key, value in values.items() if value is not None})


def _polynomial(values: dict[str, Any]) -> Polynomial:
    teacher = values.pop("teacher_meta", {})
    if not isinstance(teacher, Mapping):
        raise CimError(f"teacher_meta is {_text(teacher)}; expected a table of a, b, K")
    coeff_key = require_one(values, COEFFICIENTS, "no known key")
    if coeff_key == "c" and "b" in values and not any(key in values for key in INTERCEPTS):
        values["bias"] = values.pop("b")
    values = {**{key: teacher[key] for key in TEACHER if key in teacher}, **values}
    coeff = _vector(values[coeff_key], coeff_key)
    bias_key = require_one(values, INTERCEPTS)
    return Polynomial(
        degree=_degree(values, coeff, coeff_key),
        coeff=coeff,
        bias=_number(values[bias_key], bias_key),
        scale_ed=_number(values.get("scale_ed", 1.0), "scale_ed"),
        scale_vd=_number(values.get("scale_vd", 1.0), "scale_vd"),
        fit_logit=_flag(values.get("fit_logit", True), "fit_logit"),
        a=_positive(values["a"], "a") if "a" in values else None,
        b=_number(values["b"], "b") if "b" in values else None,
        K=_count(values["K"], "K") if "K" in values else None,
        domain=_domain(values.get("domain")),
    )


def _domain(value: Any) -> FittedRange | None:
    """The range of the fit; None if the file does not record it."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise CimError(f"domain is {_text(value)}; expected a table of ed and vd")
    if "ed" not in value:
        raise CimError(f"domain has no ed but {_text(sorted(value))}; expected ed and vd")
    names = [field.name for field in fields(FittedRange) if field.name in value]
    ends = {name: _vector(value[name], f"domain.{name}") for name in names}
    for name, found in ends.items():
        if len(found) != 2:
            raise CimError(f"domain.{name} has {len(found)} numbers; expected two")
    return FittedRange(**{name: (found[0], found[1]) for name, found in ends.items()})


def _degree(values: Mapping[str, Any], coeff: tuple[float, ...], coeff_key: str) -> int:
    if "degree" in values:
        return _count(values["degree"], "degree")
    counts = {len(exponents(degree)): degree for degree in range(1, MAX_DEGREE + 1)}
    if len(coeff) in counts:
        return counts[len(coeff)]
    known = ", ".join(f"{count} (degree {degree})" for count, degree in counts.items())
    raise CimError(f"{coeff_key} has {len(coeff)} numbers and degree is missing; expected {known}")


def _vector(value: Any, key: str) -> tuple[float, ...]:
    array = _numeric(value, key, "a list of numbers")
    if sum(extent != 1 for extent in array.shape) > 1 or array.ndim == 0:
        raise CimError(
            f"{key} has shape {list(array.shape)}; expected a list of numbers, in the "
            "order ed, vd, ed^2, ed vd, vd^2, ..."
        )
    return tuple(float(number) for number in array.ravel())


def _number(value: Any, key: str) -> float:
    array = _numeric(value, key, "a number")
    if array.size != 1:
        raise CimError(f"{key} has shape {list(array.shape)}; expected one number")
    return float(array.ravel()[0])


def _positive(value: Any, key: str) -> float:
    number = _number(value, key)
    if number <= 0:
        raise CimError(f"{key} is {number:g}; expected a number above 0")
    return number


def _count(value: Any, key: str) -> int:
    number = _number(value, key)
    if not number.is_integer() or number < 1:
        raise CimError(f"{key} is {number:.10g}; expected an integer of at least 1")
    return int(number)


def _flag(value: Any, key: str) -> bool:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biu" or array.ravel()[0] not in (0, 1):
        raise CimError(f"{key} is {_text(value)}; expected true or false")
    return bool(array.ravel()[0])


def _numeric(value: Any, key: str, expected: str) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray("")
    if array.dtype.kind not in "iuf":
        raise CimError(f"{key} is {_text(value)}; expected {expected}")
    return array.astype(np.float64)


def _text(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
