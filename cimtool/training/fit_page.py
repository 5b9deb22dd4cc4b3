"""The report of a fit: its errors, the degrees side by side, the degree to take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.intervals import Change
from cimtool.base.modality_names import sizes_text, way_names
from cimtool.ir.surrogate import terms
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import RAW
from cimtool.report.charts import Points, scatter
from cimtool.report.document import Document, FactList, Picture, Section, Sentence, notes
from cimtool.report.formats import ENERGIES, NOT_KNOWN, four_digits, percent, whole
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, make_table
from cimtool.training.degrees import OF_SCATTER, OF_SPREAD, ComparedForm, Form, FormComparison
from cimtool.training.fit import Fit
from cimtool.training.polynomial import domain_values
from cimtool.training.teacher import pair_groups

DRAWN = 1000
"""Held-out pairs of a group in the picture, at most."""


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
    named = list(pair_groups(len(fit.held), fit.matched).items())
    points = np.stack([fit.held.logit, fit.values], axis=1)
    # Right and wrong pairs apart, if they are known.
    groups = [Points(name, points[mask][:DRAWN].tolist()) for name, mask in named[1:] or named]
    picture = Picture(
        "labels",
        scatter(groups, "label (logit)", "fit (logit)", fit_headline(fit)),
        f"Label against fit, logits, of at most {DRAWN:,} held-out pairs a group.",
    )
    polynomial = fit.polynomial
    coefficients = make_table(
        "Coefficients for the features in the file",
        (Column("term"), Column("coefficient", "{:.9g}".format)),
        [
            ("constant", polynomial.bias),
            *zip(terms(polynomial.degree), polynomial.coeff, strict=True),
        ],
    )
    return Document(
        f"Polynomial of {chosen} for {Path(fit.teacher.file).name}",
        (
            *raw,
            Sentence(fit_headline(fit), "verdict"),
            *notes(fit.notes),
            Section("On held-out pairs", (error_table(fit).named("errors"), picture)),
            Section(
                "Which degree?",
                (advised, degree_table(known, fit.form).named("degrees")),
            ),
            Section("How it was fitted", (FactList(tuple(facts(fit))),)),
            Section("Coefficients", (coefficients.named("coefficients", "detail"),)),
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
    """The scatter of the labels themselves, and that of samples if they are exact."""
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


def comparison_values(found: FormComparison) -> dict[str, Any]:
    """All of a comparison as plain values."""
    return {
        "candidates": [_values(one, found.d) for one in found.candidates],
        "best": found.best.name,
        "enough": found.enough.name,
        "tolerance": found.tolerance,
        "sampling": {"samples": found.samples, "scatter": found.scatter},
        "dimension": found.d,
        "data": found.data,
        "items": None if found.items is None else list(found.items),
    }


def _values(one: ComparedForm, d: int | None) -> dict[str, Any]:
    form, cost, priced = one.form, one.cost, one.in_memory
    return {
        "name": one.name,
        "degree": None if form is None else form.degree,
        "ed_alone": None if cost is None else form is None or form.ed_alone,
        "coefficients": None if form is None else form.terms,
        "rmse": _change(one.rmse),
        "worst": one.worst,
        "less_best": _change(one.less_best),
        **{f"r1_{way}": _change(one.recall.get(way)) for way in WAYS},
        **{f"r1_{way}_less_best": _change(one.recall_less_best.get(way)) for way in WAYS},
        "products": None if cost is None else cost.products,
        "features": None if cost is None else cost.features,
        "other_multiplications": None if cost is None else cost.multiplications,
        "multiplications": None if d is None or cost is None else cost.total(d),
        "in_memory": None
        if priced is None
        else {
            "target": priced.target,
            "energy_pj_an_item": priced.of_an_item.to_json(),
            "latency_ns": priced.cost.latency_ns.to_json(),
        },
    }


def _change(change: Change | None) -> dict[str, float] | None:
    return None if change is None else asdict(change)


def degree_table(found: FormComparison, chosen: Form) -> Table:
    """A row per score, the cheapest first; the one that is kept stands out."""
    ways = way_names(found.called) if any(one.recall for one in found.candidates) else {}
    priced = [one.in_memory for one in found.candidates if one.in_memory is not None]
    columns = [
        Column("score"),
        Column("coeff.", whole, "coefficients beside the constant"),
        Column("RMSE", four_digits, "from the labels of held-out pairs, logits; with its interval"),
        Column("worst", four_digits, "the largest distance from a label, logits"),
        *(
            Column(f"R@1 {name}, %", percent, f"on {found.data}: {name}, all of its pairs")
            for name in ways.values()
        ),
        Column("products", whole, "matrix products of a query with all items"),
        Column("mult.", whole, "multiplications of one pair on integers"),
    ]
    if priced:
        help_ = f"of one item, its products in the arrays of {priced[0].target}; > is a lower bound"
        columns.append(Column("energy", whole, help_))
    rows = []
    for one in found.candidates:
        row: list[Content] = [one.name, None if one.form is None else one.form.terms]
        row += [interval_cell(one.rmse, four_digits), one.worst]
        row += [interval_cell(one.recall[way], percent) for way in ways]
        if (cost := one.cost) is None:
            row += [None, None]
        elif found.d is None:
            text = f"{cost.vectors} d + {cost.multiplications}"
            row += [cost.products, Cell(text, cost.vectors)]
        else:
            row += [cost.products, cost.total(found.d)]
        if priced:
            row.append(None if one.in_memory is None else one.in_memory.of_an_item.cell(ENERGIES))
        rows.append(row)
    styles = ["result" if one.form == chosen else "" for one in found.candidates]
    note = "In brackets: 95% of 1,000 resamples of the texts."
    if found.items is not None:
        note += f" R@1 is of {sizes_text(found.items, found.called)}."
    if found.judged is not None:
        note += f" Right pairs are those that {found.judged} grades above 0."
    return make_table("Degrees side by side", columns, rows, styles, (note,))


def advice(found: FormComparison, chosen: Form, asked: bool) -> str:
    """The form that is enough, why, and what it saves; if one was asked for, whether it is."""
    if asked and found.enough == chosen:
        return f"No cheaper form is as good as {chosen.name}."
    enough, best = found.of(found.enough), found.of(found.best)
    assert enough.rmse is not None
    assert enough.less_best is not None
    assert best.rmse is not None
    text = f"{enough.name[0].upper()}{enough.name[1:]} is enough: "
    best_one = f"{best.name}, {best.rmse.value:.3g}"
    if enough is best:
        text += "its RMSE on held-out pairs is the lowest, and everything cheaper is surely worse"
    elif enough.less_best.low <= 0:
        text += f"its RMSE, {enough.rmse.value:.3g}, is not surely above that of {best_one}"
    else:
        why = ""
        if found.tolerance == OF_SPREAD * found.spread:
            why = f", {OF_SPREAD:.1%} of the spread of the labels"
        elif found.scatter is not None and found.tolerance == OF_SCATTER * found.scatter:
            why = f", a tenth of the scatter of K = {found.samples} samples per side"
        text += (
            f"its RMSE, {enough.rmse.value:.3g}, adds {enough.less_best.value:.3g} to that of "
            f"{best_one}, in the mean square: less than {found.tolerance:.3g}{why}"
        )
    against = found.of(chosen) if asked else best
    fewer, more = (0 if one.cost is None else one.cost.products for one in (enough, against))
    text += f"; it takes {fewer} matrix product{'' if fewer == 1 else 's'} per query"
    return f"{text} in place of {more}." if more > fewer else f"{text}."


def raw_sentence(found: FormComparison) -> str | None:
    """A sentence, if raw embeddings retrieve as well as the best polynomial, or better."""
    raw = next((one for one in found.candidates if one.name == RAW), None)
    if raw is None:
        return None
    best = found.of(found.best)
    way = max(raw.recall, key=lambda way: raw.recall_less_best[way].value)
    more = raw.recall_less_best[way]
    if more.high < 0:
        return None
    how = "BETTER" if more.low > 0 else "as well, as far as these queries tell"
    recall = f"R@1 {way_names(found.called)[way]} {percent(raw.recall[way].value)}%"
    return (
        f"Raw embeddings retrieve {how}: {recall} by their cosine, "
        f"{percent(best.recall[way].value)}% by {best.name}, {percent(more.value)} points less "
        f"({percent(more.low)} to {percent(more.high)})."
    )
