"""The report of a fit: a page with errors and a picture, and the figures as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError
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
    Word,
    option,
    optional,
    takes,
)
from cimtool.base.progress import Say, silent
from cimtool.hardware.target import Target, load_target
from cimtool.loading.embeddings import EmbeddingsLike, File, files_of
from cimtool.loading.source import ModelSource, Projectors
from cimtool.reference.surrogate import terms
from cimtool.report.charts import Points, scatter
from cimtool.report.document import (
    Document,
    FactList,
    Picture,
    Section,
    Sentence,
    notes,
)
from cimtool.report.formats import NOT_KNOWN, four_digits, whole
from cimtool.report.html import html
from cimtool.report.table import Column, Table, make_table
from cimtool.training.arguments import FormOptions
from cimtool.training.degrees_table import (
    advice,
    comparison_values,
    degree_table,
    raw_sentence,
)
from cimtool.training.fit import Fit, fit_teacher, pair_groups
from cimtool.training.items import model_items
from cimtool.training.polynomial_file import (
    PT_KEYS,
    SUFFIXES,
    PtKeys,
    domain_values,
    polynomial_pt,
    polynomial_text,
    without_scales,
)
from cimtool.training.teacher_file import Teacher, read_teacher

DRAWN = 1000
"""Held-out pairs of a group in the picture, at most."""


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
    layer_map: File | None = optional("Names of the layers (TOML).", FILE, flag="map")
    data: EmbeddingsLike | None = optional("Embeddings of which the table has R@1.", EMBEDDINGS)
    target: File | Target | None = optional(
        "Target by which the table has an item's energy.", Word("NAME|FILE")
    )
    output: File | None = optional("File of the polynomial, .json or .pt.", FILE, short="o")
    pt_keys: PtKeys | None = optional(
        "Keys of a .pt: coeff and bias, or c and b [default: coeff].", OneName(names=PT_KEYS)
    )
    report: File | None = optional("Folder of its report [default: beside it].", DIR)


@keeping_inputs
@takes(FitOptions)
def fit(options: FitOptions, say: Say = silent) -> Fit:
    """Fit the polynomial to a teacher's labels, and check it on held-out pairs.

    Of several degrees the first that is enough is kept: its RMSE is not surely above the best's,
    or surely by less than `tolerance` (default: a tenth of what samples scatter by, or of what
    labels spread by where that is less). With `ed_alone` no polynomial takes vd. ed and vd are
    divided by `scale_ed` and `scale_vd` first (default: what the teacher says). With `projectors`
    and `data` the table has R@1 on these, of their raw embeddings too where both are equally
    wide, and with a `target` the energy of an item in its
    arrays. With `output`, a `.json` or a `.pt` whose keys are `coeff` and `bias` or, with `pt_keys`
    "c", c and b, the polynomial is written there, its report into `report` (default: beside it);
    that of a `.pt` has no scales.
    `pt_keys` are refused without a `.pt`.
    """
    projectors, data, output = options.projectors, options.data, options.output
    report, pt_keys, target = options.report, options.pt_keys, options.target
    if output is not None:
        check_output(Path(output), *SUFFIXES)
    if report is not None:
        check_folder(Path(report))
    if pt_keys is not None and (output is None or Path(output).suffix != ".pt"):
        raise ArgumentError("{pt_keys} names the keys of a .pt; expected one as {output}")
    if (projectors is None) != (data is None):
        raise ArgumentError("{data} is what {projectors} are run on; expected both or neither")
    if projectors is None and options.layer_map is not None:
        raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
    if projectors is None and target is not None:
        raise ArgumentError("{target} prices the items of {data}; expected them with it")
    hardware = target if target is None or isinstance(target, Target) else load_target(target)
    given = options.teacher
    known = given if isinstance(given, Teacher) else read_teacher(Path(given))
    items = None
    if projectors is not None and data is not None:
        items = model_items(ModelSource(projectors, layer_map=options.layer_map), data, say)
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

    Raises CimError where a place cannot be written.
    """
    figures = json.dumps(fit_values(fit), indent=2) + "\n"
    texts = dict(zip(report_names(poly), (html(document(fit)), figures), strict=True))
    replace_texts(report or poly.parent, texts, "the report")
    model = fit.teacher.model
    content = polynomial_text(fit.polynomial, model).encode()
    if poly.suffix == ".pt":
        content = polynomial_pt(fit.polynomial, pt_keys, model)
    replace_files(poly.parent, {poly.name: content}, "the polynomial")


def fit_values(fit: Fit) -> dict[str, Any]:
    """The figures of a fit as plain values."""
    teacher = fit.teacher
    return {
        "degree": fit.polynomial.degree,
        "ed_alone": fit.form.ed_alone,
        "alpha": fit.alpha,
        "fitted_pairs": fit.fitted,
        "held_out_pairs": len(fit.held),
        "clipped_pairs": teacher.clipped,
        "errors": [asdict(one) for one in fit.errors],
        "comparison": comparison_values(fit.comparison),
        "condition": fit.condition,
        "domain": domain_values(fit.polynomial),
        "divisors": {"ed": fit.scale_ed, "vd": fit.scale_vd},
        "teacher": {
            "labels": teacher.kind,
            **{name: getattr(teacher, name) for name in ("a", "b", "K", "seed", "model")},
            "trained": None if teacher.trained is None else vars(teacher.trained),
        },
        "notes": list(fit.notes),
    }


def fit_headline(fit: Fit) -> str:
    """One sentence: how far the polynomial is from the labels of the held-out pairs."""
    whole = fit.errors[0]
    against = "the exact logit" if fit.teacher.kind == "exact" else "their labels"
    text = (
        f"On {whole.pairs:,} held-out pairs the polynomial of {fit.form.name} is "
        f"{whole.rmse:.3g} (RMSE, logit) from {against}, at worst {whole.worst:.3g}"
    )
    if whole.noise:
        text += f"; the labels' own standard error is {whole.noise:.3g}"
    return text + "."


def document(fit: Fit) -> Document:
    """The errors of a polynomial, the degrees beside it, how it was fitted, its coefficients."""
    known, chosen = fit.comparison, fit.form.name
    raw = [Sentence(one, "verdict") for one in [raw_sentence(known)] if one]
    advised = Sentence(advice(known, fit.form, fit.asked), "verdict")
    caption = f"Label against fit, logits, of at most {DRAWN:,} held-out pairs a group."
    return Document(
        f"Polynomial of {chosen} for {Path(fit.teacher.file).name}",
        (
            *raw,
            Sentence(fit_headline(fit), "verdict"),
            Section(
                "On pairs that it did not see",
                (
                    *notes(fit.notes),
                    error_table(fit).named("errors"),
                    Picture("labels", _picture(fit), caption),
                ),
            ),
            Section(
                "Which degree?",
                (advised, degree_table(known, fit.form).named("degrees")),
            ),
            Section("How it was fitted", (FactList(tuple(facts(fit))),)),
            Section("Coefficients", (_coefficients(fit).named("coefficients", "detail"),)),
        ),
        lambda: fit_values(fit),
    )


def facts(fit: Fit) -> list[tuple[str, str]]:
    """The settings and the domain of a fit, as names and texts."""
    teacher, polynomial = fit.teacher, fit.polynomial
    made = {"mc": "Monte Carlo", "exact": "exact", None: "not known how"}[teacher.kind]
    known = {"a": teacher.a, "b": teacher.b, "K": teacher.K}
    of = ", ".join(f"{name} = {value:g}" for name, value in known.items() if value is not None)
    trained = None if teacher.trained is None else teacher.trained.said(teacher.called)
    found = [
        ("labels", f"{made}; {of}" if of else made),
        ("scatter of the labels", scatter_text(fit)),
        ("pairs", f"{fit.fitted:,} fitted, {len(fit.held):,} held out"),
        *([("training rows", f"{trained} of the teacher")] if trained else []),
        ("ridge", f"alpha = {fit.alpha:g} on standardised features"),
        ("condition number", f"{fit.condition:.2g}"),
    ]
    ed, vd = _quotient("ed", fit.scale_ed), _quotient("vd", fit.scale_vd)
    domain = domain_values(polynomial)
    for name, quotient in (("ed", ed), ("vd", vd)):
        low, high = domain[name]
        found.append((f"domain of {quotient}", f"{low:.6g} to {high:.6g}"))
    ed, vd = _quotient(ed, polynomial.scale_ed), _quotient(vd, polynomial.scale_vd)
    found.append(("file's features", f"{ed} and {vd}"))
    return found


def _quotient(name: str, scale: float) -> str:
    return name if scale == 1 else f"{name} / {scale:g}"


def scatter_text(fit: Fit) -> str:
    """The scatter of the labels themselves, and that of samples where they are exact."""
    known, error = fit.comparison, fit.teacher.labels.standard_error
    if fit.teacher.kind == "mc":
        return f"{known.scatter or 0:.3g} (root mean square standard error, logit)"
    if error is None or error.any() or fit.teacher.kind is None:
        return NOT_KNOWN
    if known.scatter is None:
        return "none, as they are exact"
    return (
        f"none, as they are exact; samples, K = {known.samples} a side, would scatter by about "
        f"{known.scatter:.3g} (a sqrt(vd / K))"
    )


def error_table(fit: Fit) -> Table:
    """The errors on held-out pairs by group."""
    columns = (
        Column("held-out pairs"),
        Column("count", whole, "held-out labels; a pair that was drawn again has another label"),
        Column("RMSE", four_digits, "root mean square of fit less label, logits"),
        Column("bias", "{:+.4g}".format, "mean of fit less label"),
        Column("worst", four_digits, "the largest distance of a fit from its label"),
        Column(
            "label noise",
            four_digits,
            "root mean square standard error of the labels; 0 for exact ones",
        ),
    )
    rows = [(one.group, one.pairs, one.rmse, one.bias, one.worst, one.noise) for one in fit.errors]
    return make_table("Errors on held-out pairs", columns, rows, absent=NOT_KNOWN)


def _picture(fit: Fit) -> str:
    named = list(pair_groups(len(fit.held), fit.matched).items())
    points = np.stack([fit.held.logit, fit.values], axis=1)
    # Right and wrong pairs apart where they are known.
    groups = [Points(name, points[mask][:DRAWN].tolist()) for name, mask in named[1:] or named]
    return scatter(groups, "label (logit)", "fit (logit)", fit_headline(fit))


def _coefficients(fit: Fit) -> Table:
    polynomial = fit.polynomial
    named = zip(terms(polynomial.degree), polynomial.coeff, strict=True)
    rows = [("constant", polynomial.bias), *named]
    columns = (Column("term"), Column("coefficient", "{:.9g}".format))
    return make_table("Of the features in the file", columns, rows)
