"""Fits the polynomial surrogate to a teacher's labels: ridge on standardised features."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

from cimtool.arrays import FloatArray
from cimtool.errors import CimError
from cimtool.reference.surrogate import Polynomial, exponents, shifted
from cimtool.training.teacher import Labels, Sigmoid

# What the change to raw coefficients may cost, in logits.
EXPORT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class _Standard:
    """Mean and spread of a statistic over the teacher's pairs, and the scale of its export."""

    mean: float
    spread: float
    scale: float

    @classmethod
    def of(cls, values: FloatArray) -> _Standard:
        spread = float(values.std())
        if spread == 0:
            spread = 1.0  # a statistic that never varies: its features are all zero
        # The next power of two: the division is exact and the features are at most 1.
        scale = 2.0 ** math.ceil(math.log2(max(float(np.abs(values).max()), 1e-300)))
        return cls(float(values.mean()), spread, scale)


def fit_polynomial(
    labels: Labels, sigmoid: Sigmoid, degree: int = 4, alpha: float = 1e-3
) -> Polynomial:
    """Fit the logit by a polynomial in ed and vd of total `degree`.

    ed and vd are standardised before their monomials are made: raw ones are so nearly collinear
    that ridge returns junk where ed varies by under 1%. The result is then rewritten, in rational
    arithmetic, in ed / scale_ed and vd / scale_vd. Raises CimError if the labels are not finite, ed
    does not vary, or the rewritten coefficients lose more than EXPORT_TOLERANCE.
    """
    if not np.isfinite(labels.logit).all():
        raise CimError("the teacher's labels hold a value that is not finite")
    if np.ptp(labels.ed) == 0:
        raise CimError(f"ed is {labels.ed[0]} for all of the teacher's pairs; expected a range")
    ed, vd = _Standard.of(labels.ed), _Standard.of(labels.vd)
    u, v = (labels.ed - ed.mean) / ed.spread, (labels.vd - vd.mean) / vd.spread
    features = np.stack([u**i * v**j for i, j in exponents(degree)], axis=1)
    ridge = Ridge(alpha=alpha, solver="svd").fit(features, labels.logit)
    standard = Polynomial(degree, tuple(map(float, ridge.coef_)), float(ridge.intercept_))
    exported = _in_raw_features(standard, ed, vd, sigmoid)
    lost = float(np.abs(exported.evaluate(labels.ed, labels.vd) - standard.evaluate(u, v)).max())
    if lost > EXPORT_TOLERANCE:
        raise CimError(
            f"a polynomial of degree {degree} in raw ed and vd loses {lost:.1e} here, since ed "
            f"varies by {ed.spread:.3g} around {ed.mean:.3g}; try a lower degree"
        )
    return exported


def _in_raw_features(
    standard: Polynomial, ed: _Standard, vd: _Standard, sigmoid: Sigmoid
) -> Polynomial:
    """Rewrite a polynomial in (ed - mean) / spread as one in ed / scale, and so for vd."""
    matrix = shifted(
        standard,
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
        fit_logit=True,
        a=sigmoid.a,
        b=sigmoid.b,
        K=sigmoid.K,
    )


def save_polynomial(polynomial: Polynomial, path: Path) -> None:
    """Write `polynomial` as JSON; every float is written so that it reads back to the same bits."""
    path.write_text(json.dumps(asdict(polynomial), indent=2) + "\n", encoding="utf-8")
