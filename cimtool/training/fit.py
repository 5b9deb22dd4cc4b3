"""Fits of polynomials to a teacher, checked on pairs that they did not see, and their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.files import (
    check_folder,
    check_output,
    keeping_inputs,
    replace_files,
    replace_texts,
)
from cimtool.base.options import (
    DIR,
    EMBEDDINGS,
    FILE,
    FILES,
    OneName,
    Topic,
    Word,
    option,
    optional,
    takes,
)
from cimtool.base.progress import Say, silent
from cimtool.hardware.target import Target, load_target
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import EmbeddingsLike, File, files_of
from cimtool.loading.source import ModelSource, Projectors
from cimtool.report.html import html
from cimtool.report.result import Result
from cimtool.training.arguments import FormOptions
from cimtool.training.degrees import Form, FormComparison, HeldOut, compare_forms, forms_of
from cimtool.training.items import Items, model_items
from cimtool.training.options import check_seed
from cimtool.training.polynomial import (
    PT_KEYS,
    SUFFIXES,
    PtKeys,
    check_alpha,
    check_degree,
    check_labels,
    condition,
    fit_logit,
    fitted_range,
    noise_weights,
    polynomial_pt,
    polynomial_text,
    without_scales,
)
from cimtool.training.teacher import Labels, pair_groups
from cimtool.training.teacher_file import Teacher, read_teacher

HELD = 0.1
"""The share of distinct pairs that the fit does not see."""


@dataclass(frozen=True)
class FitErrors:
    """Errors of a fit on labels that it did not see, in logits: fit less label.

    `noise` is the root mean square standard error of these labels, None if it is not known.
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
    `asked`: the user fixed the degree, so the comparison does not choose it. `fitted` counts the
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


def report_names(poly: Path) -> tuple[str, str]:
    """Return the names of the page and of its figures for the polynomial in `poly`."""
    return f"{poly.stem}.fit.html", f"{poly.stem}.fit.json"


class FitOptions(FormOptions):
    """The options of `fit`."""

    teacher: File | Teacher = option(
        "The teacher, or its file.", FILE, positional=True, argument="TEACHER"
    )
    projectors: Projectors | None = optional(
        "The checkpoint (or twice, .onnx: text, then video).", FILES
    )
    layer_map: File | None = optional(
        "Names of the layers (TOML).", FILE, flag="map", topic=Topic.MODEL
    )
    data: EmbeddingsLike | None = optional("Embeddings for R@1 in the table.", EMBEDDINGS)
    qrels: File | None = optional(
        "Judgements of right pairs of {data}: lines of text, 0, video, grade (TREC qrels).",
        FILE,
        topic=Topic.MEASUREMENT,
    )
    target: File | Target | None = optional(
        "Target for the energy per item in the table.", Word("NAME|FILE")
    )
    output: File | None = optional("File of the polynomial, .json or .pt.", FILE, short="o")
    pt_keys: PtKeys | None = optional(
        "Keys of a .pt: coeff and bias, or c and b [default: coeff].",
        OneName(names=PT_KEYS),
        topic=Topic.WRITTEN,
    )
    report: File | None = optional(
        "Folder of its report [default: beside it].", DIR, topic=Topic.WRITTEN
    )


@keeping_inputs
@takes(FitOptions)
def fit(options: FitOptions, say: Say = silent) -> Fit:
    """Fit the polynomial to a teacher's labels, and check it on held-out pairs.

    Of several degrees the first that is enough is kept: its RMSE is not surely above the best's,
    or surely adds less than `tolerance` in the mean square (default: a tenth of the scatter of
    samples, or 0.1% of the spread of the labels if that is less). With `ed_alone` no polynomial
    takes vd. ed and vd are divided by `scale_ed` and `scale_vd` first (default: what the teacher
    says). With `projectors` and `data` the table has R@1 on these, of their raw embeddings too
    where both are equally wide; with a file `qrels`, pairs graded above 0 are right. With a
    `target` it has the energy of an item in its arrays. With `output`, a `.json` or a `.pt` whose
    keys are `coeff` and `bias` or, with `pt_keys` "c", c and b, the polynomial is written there,
    its report into `report` (default: beside it); that of a `.pt` has no scales. `pt_keys` are
    refused without a `.pt`.
    """
    projectors, data, output = options.projectors, options.data, options.output
    report, pt_keys, target = options.report, options.pt_keys, options.target
    if output is not None:
        check_output(Path(output), *SUFFIXES)
    if report is not None:
        check_folder(Path(report))
    if pt_keys is not None and (output is None or Path(output).suffix != ".pt"):
        raise ArgumentError("{pt_keys} names the keys of a .pt; expected a .pt as {output}")
    if (projectors is None) != (data is None):
        raise ArgumentError("{data} is what {projectors} are run on; expected both or neither")
    if projectors is None and options.layer_map is not None:
        raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
    if projectors is None and options.qrels is not None:
        raise ArgumentError("{qrels} judges pairs of {data}; expected both")
    if projectors is None and target is not None:
        raise ArgumentError("{target} prices the items of {data}; expected both")
    hardware = target if target is None or isinstance(target, Target) else load_target(target)
    given = options.teacher
    known = given if isinstance(given, Teacher) else read_teacher(Path(given))
    items = None
    if projectors is not None and data is not None:
        source = ModelSource(projectors, layer_map=options.layer_map)
        items = model_items(source, data, say, options.qrels)
        # By name alone: the report has the same bytes wherever the files lie.
        names = ", ".join(file.name for file in files_of(data))
        items = replace(items, file=names or items.file)
    found = fit_teacher(known, options, items, hardware, say)
    if output is not None:
        if Path(output).suffix == ".pt":
            found = replace(found, polynomial=without_scales(found.polynomial))
        write_fit(found, Path(output), Path(report) if report else None, pt_keys or PT_KEYS[0])
    return found


def write_fit(fit: Fit, poly: Path, report: Path | None = None, pt_keys: PtKeys = "coeff") -> None:
    """Write the polynomial, and its report into `report` (default: beside it).

    Raises CimError if a place cannot be written.
    """
    shown = fit.document()
    figures = json.dumps(shown.values(), indent=2) + "\n"
    texts = dict(zip(report_names(poly), (html(shown), figures), strict=True))
    replace_texts(report or poly.parent, texts, "the report")
    model = fit.teacher.model
    content = polynomial_text(fit.polynomial, model).encode()
    if poly.suffix == ".pt":
        content = polynomial_pt(fit.polynomial, pt_keys, model)
    replace_files(poly.parent, {poly.name: content}, "the polynomial")


def fit_teacher(
    teacher: Teacher,
    options: FormOptions | None = None,
    items: Items | None = None,
    target: Target | None = None,
    say: Say = silent,
) -> Fit:
    """Fit polynomials to nine tenths of a teacher's pairs, check them on the others, choose one.

    One `degree`: it is used. Several: the first form that is good enough (`FormComparison`, with
    `tolerance`), in ed alone before those that take vd. With `ed_alone` none takes it. A pair that
    was drawn several times is in one part only. ed and vd are divided by `scale_ed` and `scale_vd`
    first (default: the teacher's own). Pairs weigh what `noise_weights` says. With `items` all
    their pairs are ranked too, and with a `target` their products priced. The same pairs give the
    same bits. Raises CimError as `fit_logit` does, naming the teacher's file.
    """
    options = options or FormOptions()
    degree, alpha, ed_alone = options.degree, options.alpha, options.ed_alone
    asked = isinstance(degree, int)
    degrees = [degree] if isinstance(degree, int) else list(degree)
    _check_options(options, degrees)
    scales = options.scale_ed or teacher.scale_ed, options.scale_vd or teacher.scale_vd
    known = teacher.labels
    with np.errstate(over="ignore"):
        labels = replace(known, ed=known.ed / scales[0], vd=known.vd / scales[1])
    seen, unseen = _parts(labels, options.seed)
    fitted = labels.of(seen)
    # One thread: sums over the pairs would else depend on how many there are.
    with naming(teacher.file), threadpool_limits(limits=1, user_api="blas"):
        check_labels(fitted, min(degrees), alpha)
        weights = noise_weights(fitted)
        wanted = Form(max(degrees), ed_alone) if asked else None
        tried = range(1, max(degrees) + 1) if asked else degrees
        found, notes = _fitted(fitted, forms_of(tried, ed_alone), wanted, alpha, weights, say)
        held = labels.of(unseen)
        # Pairs of one text belong together; without the texts, the draws of one pair.
        if teacher.text is not None:
            clusters = teacher.text[unseen]
        else:
            clusters = np.unique(held.ed + 1j * held.vd, return_inverse=True)[1]
        comparison = compare_forms(
            found,
            teacher,
            HeldOut(held, known.ed[unseen], clusters),
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


def _check_options(options: FormOptions, degrees: Sequence[int]) -> None:
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
    if not degrees:
        raise ArgumentError("{degree} is empty; expected one degree or more")
    for place, one in enumerate(degrees):
        check_degree(one)
        if one in degrees[:place]:
            raise ArgumentError("{degree} {} is given twice; expected each once", one)


def _fitted(
    labels: Labels,
    forms: Sequence[Form],
    wanted: Form | None,
    alpha: float,
    weights: FloatArray | None,
    say: Say,
) -> tuple[dict[Form, Polynomial], list[str]]:
    """The polynomial of each form, and a note on each that cannot be fitted.

    Raises CimError if that is the one `wanted`, or all of them.
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


def _parts(labels: Labels, seed: int) -> tuple[IntArray, IntArray]:
    """Numbers of the pairs to fit and to hold out; equal (ed, vd) are one pair drawn again."""
    distinct, which = np.unique(labels.ed + 1j * labels.vd, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(distinct))
    chosen = np.zeros(len(distinct), bool)
    chosen[order[: max(1, round(HELD * len(distinct)))]] = len(distinct) > 1
    held = chosen[which]
    return np.flatnonzero(~held), np.flatnonzero(held)


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


def _notes(teacher: Teacher, items: Items | None) -> tuple[str, ...]:
    notes = []
    models = {teacher.model, None if items is None else items.model}
    if None not in models and len(models) > 1:
        notes.append(f"warning: {teacher.file} has pairs of another model than R@1 is measured of")
    if teacher.clipped:
        share = teacher.clipped / (teacher.clipped + len(teacher))
        notes.append(
            f"warning: {teacher.clipped:,} labels ({share:.1%}) are probabilities clipped at 1e-6 "
            "and were left out: there the fit extrapolates"
        )
    if teacher.probabilities:
        notes.append(
            "warning: all of y lies in [0, 1] and is taken for probabilities; if it holds logits, "
            "give log_p and log_1mp beside it"
        )
    if teacher.kind == "mc":
        notes.append(
            "the labels are Monte Carlo, so the errors include their noise; this file does not "
            "show how far the fit is from the exact logit (cimtool teacher --labels exact)"
        )
        labels, error = teacher.labels, teacher.labels.standard_error
        if error is not None and error.any():
            # E[label] less the exact logit, to second order (Jensen).
            offset = float(np.mean((np.exp(labels.log_p) - 0.5) * np.square(error)))
            notes.append(
                "such a label is the logarithm of a mean and is off the exact logit by "
                f"{offset:+.2g} on average, to second order; the fit follows the labels, so use a "
                "larger K or exact labels"
            )
    elif teacher.kind is None:
        notes.append(
            "how the labels were made is not known, nor how far the fit is from the exact logit"
        )
    if teacher.a is None or teacher.b is None:
        notes.append("a and b are not in the file; give them to `cimtool compile`")
    return tuple(notes)
