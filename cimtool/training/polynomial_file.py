"""The file of a fitted polynomial: JSON, or a `.pt` in the forms in which others exchange it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from cimtool.base.plugins import needing
from cimtool.loading.polynomial import FITTED_TO
from cimtool.reference.surrogate import Extent, Polynomial, exponents

PtKeys = Literal["coeff", "c"]
PT_KEYS: tuple[PtKeys, ...] = get_args(PtKeys)
"""Names in a `.pt`: `coeff` and `bias`, or `c` and `b`."""

SUFFIXES = (".json", ".pt")


def polynomial_text(
    polynomial: Polynomial, domain: Mapping[str, Extent] | None = None, model: str | None = None
) -> str:
    """The JSON of a polynomial's file; `domain` is (low, high) of ed and vd where it was fitted.

    `model` is the SHA-256 of the projectors whose pairs it was fitted to.
    """
    values = asdict(polynomial)
    if domain is not None:
        values["domain"] = dict(domain)
    elif polynomial.domain is None:
        del values["domain"]
    else:
        ends = values["domain"].items()
        values["domain"] = {name: one for name, one in ends if one is not None}
    if model is not None:
        values[FITTED_TO] = model
    return json.dumps(values, indent=2) + "\n"


def polynomial_pt(
    polynomial: Polynomial,
    domain: Mapping[str, Extent] | None = None,
    keys: PtKeys = "coeff",
    model: str | None = None,
) -> bytes:
    """A `.pt` that `torch.load(weights_only=True)` reads: a dictionary of tensors and numbers.

    Its coefficients are of ed and vd as they are, since readers of this form know no scales: the
    same polynomial to the last bit, as scales are powers of two. `c` and `b` are the coefficients
    and the constant of the derivation; the teacher's own a, b and K stand in `teacher_meta`.
    """
    with needing("a polynomial as .pt", "one as .json"):
        import torch  # takes a second, and a `.json` does not need it

    plain = without_scales(polynomial)
    teacher = {name: getattr(plain, name) for name in ("a", "b", "K")}
    values: dict[str, Any] = {
        "degree": plain.degree,
        keys: torch.tensor(plain.coeff, dtype=torch.float64),
        "bias" if keys == "coeff" else "b": plain.bias,
        "fit_logit": plain.fit_logit,
        "teacher_meta": {name: value for name, value in teacher.items() if value is not None},
    }
    if domain is not None:
        values["domain"] = {name: list(ends) for name, ends in domain.items()}
    if model is not None:
        values[FITTED_TO] = model
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def without_scales(polynomial: Polynomial) -> Polynomial:
    """The same polynomial with scales of 1: exact where these are powers of two."""
    ed, vd = polynomial.scale_ed, polynomial.scale_vd
    coeff = tuple(
        c / ed**i / vd**j
        for (i, j), c in zip(exponents(polynomial.degree), polynomial.coeff, strict=True)
    )
    return replace(polynomial, coeff=coeff, scale_ed=1.0, scale_vd=1.0)
