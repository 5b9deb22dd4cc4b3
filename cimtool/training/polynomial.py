"""The polynomial of a teacher: fitted by ridge on standardised features, and kept in files.

A file is JSON, or a `.pt` as others exchange it; a checkpoint holds its own polynomial.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.plugins import needing
from cimtool.ir.surrogate import (
    MAX_DEGREE,
    Extent,
    FittedRange,
    Polynomial,
    exponents,
)
from cimtool.loading.polynomial import FITTED_TO
from cimtool.training.teacher import Labels

# Of ridge, against a sum of squares over the pairs whose features are standardised.
ALPHA = 1e-3

# What a label may be off, in logits, beside its standard error: no weight grows without bound.
FLOOR = 0.01

LARGEST = 1e100
"""Statistics and labels stay below it: their squares, and sums of these, are then finite."""

ROUNDING = 1e-9
"""Relative difference within which statistics or labels count as equal."""

# What the change to raw coefficients may cost, in logits.
EXPORT_TOLERANCE = 1e-6


NO_DIRECTION = 1e-15
"""A singular value of standardised features up to which nothing is fitted along its direction."""


@dataclass(frozen=True)
class _Standard:
    """Mean and spread of a statistic over the teacher's pairs, and the scale of its export."""

    mean: float
    spread: float
    scale: float

    @classmethod
    def of(cls, values: FloatArray) -> _Standard:
        spread, mean = float(values.std()), float(values.mean())
        if np.ptp(values) <= ROUNDING * np.abs(values).max():
            spread = math.inf  # it does not vary but for rounding: its features are all zero
        # The next power of two: the division is exact and the features are at most 1.
        scale = 2.0 ** math.ceil(math.log2(max(float(np.abs(values).max()), 1e-300)))
        return cls(mean, spread, scale)

    def standardised(self, values: FloatArray) -> FloatArray:
        """Return (values - mean) / spread."""
        return (values - self.mean) / self.spread


def fit_logit(
    labels: Labels,
    degree: int = 4,
    alpha: float = ALPHA,
    weights: FloatArray | None = None,
    ed_alone: bool = False,
) -> Polynomial:
    """Fit the logit by a polynomial in ed and vd of total `degree`; `weights` [n] are the pairs'.

    With `ed_alone` every coefficient of a term with vd is zero.

    ed and vd are standardised before their monomials are made: raw ones are so nearly collinear
    that ridge returns junk when ed varies by under 1%. The result is then rewritten, in rational
    arithmetic, in ed / scale_ed and vd / scale_vd. Raises CimError if the degree is not 1 to 8,
    alpha is negative, there are fewer pairs than coefficients, labels are not finite, they or
    ed vary by no more than ROUNDING, or the rewritten coefficients lose more than EXPORT_TOLERANCE.
    """
    check_labels(labels, degree, alpha)
    ed, vd = _Standard.of(labels.ed), _Standard.of(labels.vd)
    u, v = ed.standardised(labels.ed), vd.standardised(labels.vd)
    features, kept = _features(u, v, degree, ed_alone)
    coeff = np.zeros(len(exponents(degree)))
    coeff[kept], bias = ridge_regression(features, labels.logit, alpha, weights)
    standard = Polynomial(degree, tuple(map(float, coeff)), bias)
    exported = _in_raw_features(standard, ed, vd)
    lost = float(np.abs(exported.evaluate(labels.ed, labels.vd) - standard.evaluate(u, v)).max())
    if lost > EXPORT_TOLERANCE:
        raise CimError(
            f"a polynomial of degree {degree} in raw ed and vd loses {lost:.1e} here, since ed "
            f"varies by {ed.spread:.3g} around {ed.mean:.3g}; try a lower degree"
        )
    return exported


def ridge_regression(
    features: FloatArray, wanted: FloatArray, alpha: float, weights: FloatArray | None
) -> tuple[FloatArray, float]:
    """Coefficients [f] and the constant, unpenalised, that fit `wanted` [n] by `features` [n, f].

    They minimise sum(w (wanted - X c - b)^2) + alpha |c|^2, by the singular values of the features
    less their weighted mean (Hastie, Tibshirani, Friedman, Elements of Statistical Learning,
    eq. 3.47).
    """
    weight = np.ones(len(wanted)) if weights is None else weights
    centre = np.average(features, axis=0, weights=weight)
    mean = float(np.average(wanted, weights=weight))
    root = np.sqrt(weight)
    left, values, right = np.linalg.svd((features - centre) * root[:, None], full_matrices=False)
    shrunk = np.zeros_like(values)
    kept = values > NO_DIRECTION
    shrunk[kept] = values[kept] / (values[kept] ** 2 + alpha)
    coeff = right.T @ (shrunk * (left.T @ ((wanted - mean) * root)))
    return coeff, mean - float(centre @ coeff)


def fitted_range(ed: FloatArray, vd: FloatArray) -> FittedRange:
    """The range of pairs [n]: the extents of ed and vd, and a least-squares line with its band.

    ed and vd of a model's pairs are nearly collinear, so a polynomial is fitted on a narrow band of
    the rectangle that they span. In the rectangle's other corners its powers mean nothing.
    """
    centred = ed - ed.mean()
    square = float(centred @ centred)
    slope = float(centred @ (vd - vd.mean())) / square if square else 0.0
    start = float(vd.mean() - slope * ed.mean())
    of_ed, of_vd, beside = (
        (float(one.min()), float(one.max())) for one in (ed, vd, vd - (start + slope * ed))
    )
    return FittedRange(of_ed, of_vd, (start, slope), beside)


def check_degree(degree: int) -> None:
    """Raise CimError, which names the argument, for a degree that no fit has."""
    if not isinstance(degree, int) or not 1 <= degree <= MAX_DEGREE:
        raise ArgumentError("{degree} is {}; expected 1 to {}", degree, MAX_DEGREE)


def check_alpha(alpha: float) -> None:
    """Raise CimError, which names the argument, for a weight that no penalty has."""
    if not 0 <= alpha < math.inf:
        raise ArgumentError("{alpha} is {}; expected a finite number, 0 or more", alpha)


def check_labels(labels: Labels, degree: int, alpha: float) -> None:
    """Raise CimError if `fit_logit` cannot fit these labels."""
    check_degree(degree)
    check_alpha(alpha)
    count = len(exponents(degree)) + 1  # with the constant
    if len(labels) < count:
        raise CimError(
            f"there are {len(labels)} pairs to fit; a polynomial of degree {degree} has {count} "
            "coefficients and needs at least that many"
        )
    for name, values in (
        ("logit", labels.logit),
        ("standard_error", labels.standard_error),
        ("ed", labels.ed),
        ("vd", labels.vd),
    ):
        if values is not None and not np.abs(values).max() < LARGEST:
            raise CimError(
                f"{name} reaches {np.abs(values).max():.3g} (ed and vd divided by their scales); "
                f"expected less than {LARGEST:g}"
            )
    magnitude = max(np.abs(labels.log_p).max(), np.abs(labels.log_1mp).max())
    if np.ptp(labels.logit) <= ROUNDING * magnitude:
        raise CimError(
            f"the teacher's labels are all {labels.logit[0]:.6g} (logit); expected labels that vary"
        )
    if np.ptp(labels.ed) <= ROUNDING * np.abs(labels.ed).max():
        raise CimError(f"ed is {labels.ed[0]} for all of the teacher's pairs; expected a range")


def noise_weights(labels: Labels) -> FloatArray | None:
    """Weigh pairs by 1 / (error^2 + FLOOR^2), with mean 1; None if no standard error is known.

    The error is what labels at a pair's ed and vd have on average, log-linear in both. A label's
    own would not do: one that came out high by chance has a larger error too, so that weights by it
    pull the fit below the labels.
    """
    if labels.standard_error is None or not labels.standard_error.any():
        return None
    u, v = (_Standard.of(x).standardised(x) for x in (labels.ed, labels.vd))
    terms = np.stack([np.ones_like(u), u, v], axis=1)
    variance = np.log(np.square(labels.standard_error) + FLOOR**2)
    weights: FloatArray = np.exp(-terms @ np.linalg.lstsq(terms, variance, rcond=None)[0])
    weights /= weights.mean()
    return weights


def condition(
    labels: Labels, degree: int, weights: FloatArray | None = None, ed_alone: bool = False
) -> float:
    """The condition number of the weighted, centred features that `fit_logit` solves for.

    A statistic that never varies has no features. Its square is that of the normal equations.
    """
    u, v = (_Standard.of(x).standardised(x) for x in (labels.ed, labels.vd))
    features, _ = _features(u, v, degree, ed_alone)
    features -= np.average(features, axis=0, weights=weights)
    if weights is not None:
        features *= np.sqrt(weights)[:, None]
    return float(np.linalg.cond(features[:, np.ptp(features, axis=0) > 0]))


def _features(
    u: FloatArray, v: FloatArray, degree: int, ed_alone: bool
) -> tuple[FloatArray, list[int]]:
    """Return u^i v^j for the terms of a polynomial, [n, terms], and the terms' numbers.

    With `ed_alone` those with v are left out.
    """
    terms = exponents(degree)
    kept = [number for number, (_, j) in enumerate(terms) if not (ed_alone and j)]
    return np.stack([u**i * v**j for i, j in (terms[number] for number in kept)], axis=1), kept


def _in_raw_features(standard: Polynomial, ed: _Standard, vd: _Standard) -> Polynomial:
    """Rewrite a polynomial in (ed - mean) / spread as one in ed / scale, and so for vd."""
    matrix = standard.shifted(
        -ed.mean / ed.spread,
        ed.scale / ed.spread,
        -vd.mean / vd.spread,
        vd.scale / vd.spread,
    )
    return Polynomial(
        degree=standard.degree,
        coeff=tuple(float(matrix[i][j]) for i, j in exponents(standard.degree)),
        bias=float(matrix[0][0]),
        scale_ed=ed.scale,
        scale_vd=vd.scale,
    )


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
