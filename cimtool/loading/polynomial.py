"""Polynomial files: the trained surrogate's coefficients, and what is known of its teacher."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.named import nearest
from cimtool.loading.checkpoint import read_torch, require_suffix
from cimtool.loading.npy import read_npz
from cimtool.reference.surrogate import MAX_DEGREE, Polynomial, exponents

SUFFIXES = (".pt", ".pth", ".npz", ".json")
COEFFICIENTS = ("coeff", "coef_", "c")
INTERCEPTS = ("bias", "intercept_")
TEACHER = ("a", "b", "K")
SCALES = ("scale_ed", "scale_vd")
KEYS = ("degree", *COEFFICIENTS, *INTERCEPTS, *SCALES, "fit_logit", *TEACHER, "teacher_meta")


def read_polynomial(path: Path) -> Polynomial:
    """Read a `.pt`, `.npz` or `.json` polynomial; CimError naming file and key."""
    return parse_polynomial(polynomial_values(path), str(path))


def polynomial_values(path: Path) -> dict[str, Any]:
    """Read the file's dictionary as it is; CimError where the file holds none."""
    require_suffix(path, "a polynomial", SUFFIXES)
    if path.suffix == ".npz":
        return dict(read_npz(path, KEYS))
    values = _read_json(path) if path.suffix == ".json" else read_torch(path)
    if not isinstance(values, dict):
        raise CimError(f"{path}: expected a dictionary with degree, coeff and bias")
    return values


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CimError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CimError(f"{path}: not valid JSON: {error}") from None


def parse_polynomial(values: Mapping[str, Any], where: str) -> Polynomial:
    """Build the polynomial of a dictionary: DESIGN's keys with their aliases.

    `coeff` (`coef_`, `c`) in scikit-learn's order without the constant, `bias` (`intercept_`; `b`
    beside `c` where there is neither), `degree` (else the one that has as many coefficients),
    `scale_ed`, `scale_vd`, `fit_logit`, and the teacher's `a`, `b`, `K`, also in `teacher_meta`.
    Raises CimError starting with `where` that names the key.
    """
    values = {key: value for key, value in values.items() if value is not None}
    teacher = values.pop("teacher_meta", {})
    if not isinstance(teacher, Mapping):
        raise CimError(f"{where}: teacher_meta is {_text(teacher)}; expected a table of a, b, K")
    coeff_key = _one_of(values, COEFFICIENTS, where)
    if coeff_key == "c" and "b" in values and not any(key in values for key in INTERCEPTS):
        values["bias"] = values.pop("b")
    values = {**{key: teacher[key] for key in TEACHER if key in teacher}, **values}
    coeff = _vector(values[coeff_key], where, coeff_key)
    bias_key = _one_of(values, INTERCEPTS, where)
    try:
        return Polynomial(
            degree=_degree(values, coeff, where, coeff_key),
            coeff=coeff,
            bias=_number(values[bias_key], where, bias_key),
            scale_ed=_number(values.get("scale_ed", 1.0), where, "scale_ed"),
            scale_vd=_number(values.get("scale_vd", 1.0), where, "scale_vd"),
            fit_logit=_flag(values.get("fit_logit", True), where, "fit_logit"),
            a=_positive(values["a"], where, "a") if "a" in values else None,
            b=_number(values["b"], where, "b") if "b" in values else None,
            K=_count(values["K"], where, "K") if "K" in values else None,
        )
    except CimError as error:
        message = str(error)
        raise (error if message.startswith(where) else CimError(f"{where}: {message}")) from None


def _one_of(values: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    found = [name for name in names if name in values]
    if len(found) == 1:
        return found[0]
    if found:
        raise CimError(f"{where}: holds {' and '.join(found)}; expected one of them")
    held = ", ".join(list(values)[:8]) or "no known key"
    hint = next((h for h in (nearest(name, values) for name in names) if h), "")
    raise CimError(
        f"{where}: {names[0]} (or {', '.join(names[1:])}) is missing; it holds {held}{hint}"
    )


def _degree(values: Mapping[str, Any], coeff: tuple[float, ...], where: str, coeff_key: str) -> int:
    if "degree" in values:
        return _count(values["degree"], where, "degree")
    counts = {len(exponents(degree)): degree for degree in range(1, MAX_DEGREE + 1)}
    if len(coeff) in counts:
        return counts[len(coeff)]
    known = ", ".join(f"{count} (degree {degree})" for count, degree in counts.items())
    raise CimError(
        f"{where}: {coeff_key} has {len(coeff)} numbers and degree is missing; expected {known}"
    )


def _vector(value: Any, where: str, key: str) -> tuple[float, ...]:
    array = _numeric(value, where, key, "a list of numbers")
    if sum(extent != 1 for extent in array.shape) > 1 or array.ndim == 0:
        raise CimError(
            f"{where}: {key} has shape {list(array.shape)}; expected a list of numbers, in the "
            "order ed, vd, ed^2, ed vd, vd^2, ..."
        )
    return tuple(float(number) for number in array.ravel())


def _number(value: Any, where: str, key: str) -> float:
    array = _numeric(value, where, key, "a number")
    if array.size != 1:
        raise CimError(f"{where}: {key} has shape {list(array.shape)}; expected one number")
    return float(array.ravel()[0])


def _positive(value: Any, where: str, key: str) -> float:
    number = _number(value, where, key)
    if number <= 0:
        raise CimError(f"{where}: {key} is {number:g}; expected a number above 0")
    return number


def _count(value: Any, where: str, key: str) -> int:
    number = _number(value, where, key)
    if not number.is_integer() or number < 1:
        raise CimError(f"{where}: {key} is {number:g}; expected an integer of at least 1")
    return int(number)


def _flag(value: Any, where: str, key: str) -> bool:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biu" or array.ravel()[0] not in (0, 1):
        raise CimError(f"{where}: {key} is {_text(value)}; expected true or false")
    return bool(array.ravel()[0])


def _numeric(value: Any, where: str, key: str, expected: str) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray("")
    if array.dtype.kind not in "iuf":
        raise CimError(f"{where}: {key} is {_text(value)}; expected {expected}")
    return array.astype(np.float64)


def _text(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
