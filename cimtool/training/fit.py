"""Fits a teacher's surrogate and checks it on pairs that the fit did not see.

The polynomial is fitted by ridge on standardised features of ed and vd.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.progress import Say, silent
from cimtool.reference.surrogate import MAX_DEGREE, Polynomial, Range, exponents, shifted
from cimtool.training.band import Band, extent
from cimtool.training.teacher import Labels
from cimtool.training.teacher_file import Teacher

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
    labels: Labels, degree: int = 4, alpha: float = ALPHA, weights: FloatArray | None = None
) -> Polynomial:
    """Fit the logit by a polynomial in ed and vd of total `degree`; `weights` [n] are the pairs'.

    ed and vd are standardised before their monomials are made: raw ones are so nearly collinear
    that ridge returns junk where ed varies by under 1%. The result is then rewritten, in rational
    arithmetic, in ed / scale_ed and vd / scale_vd. Raises CimError if the degree is not 1 to 6,
    alpha is negative, there are fewer pairs than coefficients, labels are not finite, they or
    ed vary by no more than ROUNDING, or the rewritten coefficients lose more than EXPORT_TOLERANCE.
    """
    from sklearn.linear_model import Ridge

    check_labels(labels, degree, alpha)
    ed, vd = _Standard.of(labels.ed), _Standard.of(labels.vd)
    u, v = ed.standardised(labels.ed), vd.standardised(labels.vd)
    ridge = Ridge(alpha=alpha, solver="svd").fit(_monomials(u, v, degree), labels.logit, weights)
    standard = Polynomial(degree, tuple(map(float, ridge.coef_)), float(ridge.intercept_))
    exported = _in_raw_features(standard, ed, vd)
    lost = float(np.abs(exported.evaluate(labels.ed, labels.vd) - standard.evaluate(u, v)).max())
    if lost > EXPORT_TOLERANCE:
        raise CimError(
            f"a polynomial of degree {degree} in raw ed and vd loses {lost:.1e} here, since ed "
            f"varies by {ed.spread:.3g} around {ed.mean:.3g}; try a lower degree"
        )
    return exported


def check_labels(labels: Labels, degree: int, alpha: float) -> None:
    """Raise CimError where `fit_logit` cannot fit these labels."""
    if not isinstance(degree, int) or not 1 <= degree <= MAX_DEGREE:
        raise CimError(f"degree is {degree}; expected 1 to {MAX_DEGREE}")
    if not 0 <= alpha < math.inf:
        raise CimError(f"alpha is {alpha}; expected a finite number, 0 or more")
    count = len(exponents(degree)) + 1  # with the constant
    if len(labels) < count:
        raise CimError(
            f"there are {len(labels)} pairs to fit; a polynomial of degree {degree} has {count} "
            "coefficients and needs as many"
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
    """Weigh pairs by 1 / (error^2 + FLOOR^2), with mean 1; None where no standard error is known.

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


def condition(labels: Labels, degree: int, weights: FloatArray | None = None) -> float:
    """The condition number of the weighted, centred features that `fit_logit` solves for.

    A statistic that never varies has no features. Its square is that of the normal equations.
    """
    u, v = (_Standard.of(x).standardised(x) for x in (labels.ed, labels.vd))
    features = _monomials(u, v, degree)
    features -= np.average(features, axis=0, weights=weights)
    if weights is not None:
        features *= np.sqrt(weights)[:, None]
    return float(np.linalg.cond(features[:, np.ptp(features, axis=0) > 0]))


def _monomials(u: FloatArray, v: FloatArray, degree: int) -> FloatArray:
    """Return u^i v^j for the terms of a polynomial, [n, terms]."""
    return np.stack([u**i * v**j for i, j in exponents(degree)], axis=1)


def _in_raw_features(standard: Polynomial, ed: _Standard, vd: _Standard) -> Polynomial:
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
    )


def polynomial_text(polynomial: Polynomial, domain: Mapping[str, Range] | None = None) -> str:
    """The JSON of a polynomial's file; `domain` is (low, high) of ed and vd where it was fitted."""
    values = asdict(polynomial)
    if domain is not None:
        values["domain"] = dict(domain)
    return json.dumps(values, indent=2) + "\n"


HELD = 0.1
"""The share of distinct pairs that the fit does not see."""

GROUPS = ("all pairs", "right pairs", "wrong pairs")


@dataclass(frozen=True)
class FitErrors:
    """Errors of a fit on labels that it did not see, in logits: fit less label.

    `noise` is the root mean square standard error of these labels, None where it is not known.
    """

    group: str
    pairs: int
    rmse: float
    bias: float
    worst: float
    noise: float | None


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted polynomial, and how it does on held-out pairs.

    `domain` is the range of the polynomial's own statistics over the `fitted` pairs; `held` are the
    held-out labels, `values` [n] what the polynomial gives for them, `matched` [n] which are right
    pairs, None where that is not known.
    """

    teacher: Teacher
    polynomial: Polynomial
    alpha: float
    scale_ed: float
    scale_vd: float
    domain: dict[str, Range]
    condition: float
    fitted: int
    held: Labels
    values: FloatArray
    matched: BoolArray | None
    errors: tuple[FitErrors, ...]
    notes: tuple[str, ...]


def fit_teacher(
    teacher: Teacher,
    degree: int = 4,
    alpha: float = ALPHA,
    scale_ed: float | None = None,
    scale_vd: float | None = None,
    seed: int = 0,
    say: Say = silent,
) -> Fit:
    """Fit a polynomial of `degree` to nine tenths of a teacher's pairs, check it on the others.

    A pair that was drawn several times is in one part only. ed and vd are divided by `scale_ed` and
    `scale_vd` first (default: the teacher's own). Pairs weigh what `noise_weights` says. The same
    pairs give the same bits. Raises CimError as `fit_logit` does, naming the teacher's file.
    """
    for name, scale in (("scale_ed", scale_ed), ("scale_vd", scale_vd)):
        if scale is not None and not 0 < scale < np.inf:
            raise ArgumentError(
                "{} is {:g}; expected a finite number above 0", Argument(name), scale
            )
    if seed < 0:
        raise CimError(f"seed is {seed}; expected 0 or more")
    scales = scale_ed or teacher.scale_ed, scale_vd or teacher.scale_vd
    known = teacher.labels
    with np.errstate(over="ignore"):
        labels = replace(known, ed=known.ed / scales[0], vd=known.vd / scales[1])
    seen, unseen = _parts(labels, seed)
    fitted = labels.of(seen)
    say(f"fitting {len(seen):,} pairs, degree {degree}")
    # One thread: sums over the pairs would else depend on how many there are.
    with naming(teacher.file), threadpool_limits(limits=1, user_api="blas"):
        check_labels(fitted, degree, alpha)
        weights = noise_weights(fitted)
        polynomial = fit_logit(fitted, degree, alpha, weights)
        number = condition(fitted, degree, weights)
    held = labels.of(unseen)
    values = polynomial.evaluate(held.ed, held.vd)
    matched = None if teacher.matched is None else teacher.matched[unseen]
    return Fit(
        teacher=teacher,
        polynomial=replace(polynomial, a=teacher.a, b=teacher.b, K=teacher.K),
        alpha=alpha,
        scale_ed=scales[0],
        scale_vd=scales[1],
        domain={"vd": extent(fitted.vd), **Band.of(fitted.ed, fitted.vd).domain()},
        condition=number,
        fitted=len(seen),
        held=held,
        values=values,
        matched=matched,
        errors=_errors(held, values, matched),
        notes=_notes(teacher),
    )


def _parts(labels: Labels, seed: int) -> tuple[IntArray, IntArray]:
    """Numbers of the pairs to fit and to hold out; equal (ed, vd) are one pair drawn again."""
    if not len(labels):
        none = np.arange(0)
        return none, none
    distinct, which = np.unique(labels.ed + 1j * labels.vd, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(distinct))
    chosen = np.zeros(len(distinct), bool)
    chosen[order[: max(1, round(HELD * len(distinct)))]] = len(distinct) > 1
    held = chosen[which]
    return np.flatnonzero(~held), np.flatnonzero(held)


def _errors(held: Labels, values: FloatArray, matched: BoolArray | None) -> tuple[FitErrors, ...]:
    masks = [np.ones(len(held), bool)]
    if matched is not None:
        masks += [matched, ~matched]
    found = []
    for group, mask in zip(GROUPS, masks, strict=False):
        if mask.any():
            off = (values - held.logit)[mask]
            error = held.standard_error
            noise = None if error is None else float(np.sqrt(np.mean(error[mask] ** 2)))
            rmse = float(np.sqrt(np.mean(off**2)))
            found.append(
                FitErrors(group, len(off), rmse, float(off.mean()), float(np.abs(off).max()), noise)
            )
    return tuple(found)


def _offset(labels: Labels) -> float:
    """The mean of E[label] less the exact logit, to second order: (p - 1/2) error^2 (Jensen)."""
    if labels.standard_error is None:
        return 0.0
    p = np.exp(labels.log_p)
    return float(np.mean((p - 0.5) * np.square(labels.standard_error)))


def _notes(teacher: Teacher) -> tuple[str, ...]:
    notes = []
    if teacher.clipped:
        share = teacher.clipped / (teacher.clipped + len(teacher))
        notes.append(
            f"warning: {teacher.clipped:,} labels ({share:.1%}) are probabilities clipped at 1e-6 "
            "and were left out: where they were, the fit extrapolates"
        )
    if teacher.probabilities:
        notes.append(
            "warning: all of y lies in [0, 1] and is taken for probabilities; if it holds logits, "
            "give log_p and log_1mp beside it"
        )
    if teacher.kind == "mc":
        notes.append(
            "the labels are Monte Carlo, so the errors hold their noise too; how far the fit is "
            "from the exact logit does not show in this file (cimtool teacher --labels exact)"
        )
        if known := _offset(teacher.labels):
            notes.append(
                f"as a logarithm of a mean, such a label is off the exact logit by {known:+.2g} on "
                "average, to second order; the fit follows the labels, and larger K or exact "
                "labels mend it"
            )
    elif teacher.kind is None:
        notes.append(
            "how the labels were made is not known, so how far the fit is from the exact logit is "
            "not either"
        )
    if teacher.a is None or teacher.b is None:
        notes.append("a and b are not in the file; give them to `cimtool compile`")
    return tuple(notes)
