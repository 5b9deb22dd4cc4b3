"""Fits a teacher's surrogate and checks it on pairs that the fit did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.progress import Say, silent
from cimtool.hardware.target import Target
from cimtool.reference.surrogate import Polynomial
from cimtool.report.result import Result
from cimtool.training.arguments import FormOptions
from cimtool.training.degrees import Form, FormComparison, HeldOut, compare_forms, forms_of
from cimtool.training.items import Items
from cimtool.training.options import check_seed
from cimtool.training.ridge import (
    check_alpha,
    check_degree,
    check_labels,
    condition,
    fit_logit,
    fitted_range,
    noise_weights,
)
from cimtool.training.teacher import Labels
from cimtool.training.teacher_file import Teacher

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


SCALES = (1e-30, 1e30)
"""Least and largest number that divides ed or vd: powers of the quotients stay finite."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Result, shown_by="cimtool.training.fit_page"):
    """A fitted polynomial, and how it does on held-out pairs.

    `form` is what was fitted, `comparison` holds it against lower degrees and the closed form;
    `asked` says that this one degree was wanted whatever the comparison finds. `fitted` counts the
    pairs of the fit; `held` are the held-out labels, `values` [n] what the polynomial gives for
    them, `matched` [n] which are right pairs, None if that is not known.
    """

    teacher: Teacher
    polynomial: Polynomial
    form: Form
    comparison: FormComparison
    asked: bool
    alpha: float
    scale_ed: float
    scale_vd: float
    condition: float
    fitted: int
    held: Labels
    values: FloatArray
    matched: BoolArray | None
    errors: tuple[FitErrors, ...]
    notes: tuple[str, ...]


def fit_teacher(
    teacher: Teacher,
    options: FormOptions | None = None,
    items: Items | None = None,
    target: Target | None = None,
    say: Say = silent,
) -> Fit:
    """Fit polynomials to nine tenths of a teacher's pairs, check them on the others, choose one.

    Of one `degree` that one is chosen, whatever lower ones do; of several the first form that is
    enough (`FormComparison`, with `tolerance`), in ed alone before those that take vd. With
    `ed_alone` none takes it. A pair that was drawn several times is in one part only. ed and vd are
    divided by `scale_ed` and `scale_vd` first (default: the teacher's own). Pairs weigh what
    `noise_weights` says. With `items` all their pairs are ranked too, and with a `target` their
    products priced. The same pairs give the same bits. Raises CimError as `fit_logit` does, naming
    the teacher's file.
    """
    options = options or FormOptions()
    degree, alpha, ed_alone = options.degree, options.alpha, options.ed_alone
    _check_options(options)
    asked = isinstance(degree, int)
    degrees = [degree] if isinstance(degree, int) else list(degree)
    _check_degrees(degrees)
    scales = options.scale_ed or teacher.scale_ed, options.scale_vd or teacher.scale_vd
    known = teacher.labels
    with np.errstate(over="ignore"):
        labels = replace(known, ed=known.ed / scales[0], vd=known.vd / scales[1])
    seen, unseen = _parts(labels, options.seed)
    fitted = labels.of(seen)
    # One thread: sums over the pairs would else depend on how many there are.
    with naming(teacher.file), threadpool_limits(limits=1, user_api="blas"):
        for one in degrees:
            check_labels(fitted, one, alpha)
        weights = noise_weights(fitted)
        wanted = Form(max(degrees), ed_alone) if asked else None
        tried = range(1, max(degrees) + 1) if asked else degrees
        found, notes = _fitted(fitted, forms_of(tried, ed_alone), wanted, alpha, weights, say)
        held = labels.of(unseen)
        comparison = compare_forms(
            found,
            teacher,
            HeldOut(held, known.ed[unseen], _clusters(teacher, held, unseen)),
            options,
            items,
            target,
            say,
        )
        form = wanted or comparison.enough
        number = condition(fitted, form.degree, weights, form.ed_alone)
    polynomial = found[form]
    values = polynomial.evaluate(held.ed, held.vd)
    matched = None if teacher.matched is None else teacher.matched[unseen]
    domain = fitted_range(fitted.ed, fitted.vd)
    return Fit(
        teacher=teacher,
        polynomial=replace(polynomial, a=teacher.a, b=teacher.b, K=teacher.K, domain=domain),
        form=form,
        comparison=comparison,
        asked=asked,
        alpha=alpha,
        scale_ed=scales[0],
        scale_vd=scales[1],
        condition=number,
        fitted=len(seen),
        held=held,
        values=values,
        matched=matched,
        errors=_errors(held, values, matched),
        notes=(*_notes(teacher, items), *notes),
    )


def _check_options(options: FormOptions) -> None:
    low, high = SCALES
    for name in ("scale_ed", "scale_vd"):
        scale = getattr(options, name)
        if scale is not None and not low <= scale <= high:
            raise ArgumentError(
                "{} is {:g}; expected a number from {:g} to {:g}", Argument(name), scale, low, high
            )
    check_seed(options.seed)
    tolerance = options.tolerance
    if tolerance is not None and not 0 <= tolerance < np.inf:
        raise ArgumentError("{tolerance} is {:g}; expected a finite number, 0 or more", tolerance)
    check_alpha(options.alpha)


def _fitted(
    labels: Labels,
    forms: Sequence[Form],
    wanted: Form | None,
    alpha: float,
    weights: FloatArray | None,
    say: Say,
) -> tuple[dict[Form, Polynomial], list[str]]:
    """The polynomial of each form, and a note on each that cannot be fitted.

    Raises CimError where that is the one `wanted`, or all of them.
    """
    found: dict[Form, Polynomial] = {}
    refused: dict[Form, CimError] = {}
    for form in forms:
        say(f"fitting {len(labels):,} pairs, {form.name}")
        try:
            found[form] = fit_logit(labels, form.degree, alpha, weights, form.ed_alone)
        except CimError as error:
            refused[form] = error
    if wanted in refused or not found:
        raise refused[wanted or forms[0]]
    return found, [f"{form.name} is left out: {error}" for form, error in refused.items()]


def _clusters(teacher: Teacher, held: Labels, unseen: IntArray) -> IntArray:
    """The clusters of pairs: their text, or where that is not known the pair itself."""
    if teacher.text is not None:
        return teacher.text[unseen]
    _, which = np.unique(held.ed + 1j * held.vd, return_inverse=True)
    return which


def _check_degrees(degrees: Sequence[int]) -> None:
    for place, one in enumerate(degrees):
        check_degree(one)
        if one in degrees[:place]:
            raise ArgumentError("{degree} {} is given twice; expected each once", one)


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


def pair_groups(pairs: int, matched: BoolArray | None) -> dict[str, BoolArray]:
    """Masks [pairs] of the groups that have pairs: all, and right and wrong ones where known."""
    masks = [np.ones(pairs, bool)]
    if matched is not None:
        masks += [matched, ~matched]
    return {group: mask for group, mask in zip(GROUPS, masks, strict=False) if mask.any()}


def _errors(held: Labels, values: FloatArray, matched: BoolArray | None) -> tuple[FitErrors, ...]:
    found = []
    for group, mask in pair_groups(len(held), matched).items():
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


def _notes(teacher: Teacher, items: Items | None) -> tuple[str, ...]:
    notes = []
    models = {teacher.model, None if items is None else items.model}
    if None not in models and len(models) > 1:
        notes.append(f"warning: {teacher.file} has pairs of another model than R@1 is measured of")
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
