"""A fitted polynomial as it is kept: JSON, a `.pt` as others exchange it, part of a checkpoint."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from cimtool.base.plugins import needing
from cimtool.loading.polynomial import FITTED_TO
from cimtool.reference.surrogate import Extent, Polynomial, exponents

PtKeys = Literal["coeff", "c"]
PT_KEYS: tuple[PtKeys, ...] = get_args(PtKeys)
"""Names in a `.pt`: `coeff` and `bias`, or `c` and `b`."""

SUFFIXES = (".json", ".pt")


DOMAIN = ("vd", "ed", "vd_line", "vd_beside_line")
"""Parts of a domain in the order of the file."""


def domain_values(polynomial: Polynomial) -> dict[str, Extent]:
    """The known parts of the domain by name; none if the polynomial has no domain."""
    found = {name: getattr(polynomial.domain, name, None) for name in DOMAIN}
    return {name: ends for name, ends in found.items() if ends is not None}


def polynomial_text(polynomial: Polynomial, model: str | None = None) -> str:
    """The JSON of a polynomial's file.

    `model` is the SHA-256 of the projectors whose pairs it was fitted to.
    """
    values = asdict(polynomial)
    del values["domain"]
    if domain := domain_values(polynomial):
        values["domain"] = domain
    if model is not None:
        values[FITTED_TO] = model
    return json.dumps(values, indent=2) + "\n"


def polynomial_pt(
    polynomial: Polynomial, keys: PtKeys = "coeff", model: str | None = None
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
    if domain := domain_values(polynomial):
        values["domain"] = {name: list(ends) for name, ends in domain.items()}
    if model is not None:
        values[FITTED_TO] = model
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def checkpoint_values(polynomial: Polynomial) -> dict[str, Any]:
    """The polynomial as a checkpoint holds it: a tensor and plain values."""
    import torch  # takes a second, and a `.json` does not need it

    known = {name: one for name, one in asdict(polynomial).items() if one is not None}
    known["coeff"] = torch.tensor(polynomial.coeff, dtype=torch.float64)
    if "domain" in known:
        ends = known["domain"].items()
        known["domain"] = {name: list(one) for name, one in ends if one is not None}
    return known


def without_scales(polynomial: Polynomial) -> Polynomial:
    """The same polynomial with scales of 1: exact if these are powers of two."""
    ed, vd = polynomial.scale_ed, polynomial.scale_vd
    coeff = tuple(
        c / ed**i / vd**j
        for (i, j), c in zip(exponents(polynomial.degree), polynomial.coeff, strict=True)
    )
    return replace(polynomial, coeff=coeff, scale_ed=1.0, scale_vd=1.0)
