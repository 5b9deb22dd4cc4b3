"""A comparison of degrees in words: its table, its plain values, and the degree to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.base.modality_names import sizes_text, way_names
from cimtool.reference.bootstrap import Change
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import RAW
from cimtool.report.formats import ENERGIES, four_digits, percent, whole
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, make_table
from cimtool.training.degrees import TOLERATED, ComparedForm, Form, FormComparison
from cimtool.training.score_cost import QueryCost, ScoreCost


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
    form, cost = one.form, one.cost
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
        "in_memory": None if one.in_memory is None else _priced(one.in_memory),
    }


def _priced(found: QueryCost) -> dict[str, Any]:
    return {
        "target": found.target,
        "energy_pj_an_item": found.of_an_item.to_json(),
        "latency_ns": found.cost.latency_ns.to_json(),
    }


def _change(change: Change | None) -> dict[str, float] | None:
    return None if change is None else {k: getattr(change, k) for k in ("value", "low", "high")}


def degree_table(found: FormComparison, chosen: Form) -> Table:
    """A row a score, the cheapest first; the one that is kept stands out."""
    columns = [
        Column("score"),
        Column("coeff.", whole, "coefficients beside the constant"),
        Column("RMSE", four_digits, "from the labels of held-out pairs, logits; with its interval"),
        Column("worst", four_digits, "the largest distance from a label, logits"),
    ]
    columns += [
        Column(f"R@1 {name}, %", percent, f"on {found.data}: {name}, all of its pairs")
        for name in _ways(found).values()
    ]
    columns += [
        Column("products", whole, "matrix products of a query with all items"),
        Column("mult.", whole, "multiplications of one pair on integers"),
    ]
    priced = [one.in_memory for one in found.candidates if one.in_memory is not None]
    if priced:
        help_ = f"of one item, its products in the arrays of {priced[0].target}; > is a lower bound"
        columns.append(Column("energy", whole, help_))
    rows = [_row(one, found) for one in found.candidates]
    styles = ["result" if one.form == chosen else "" for one in found.candidates]
    note = "In brackets: 95% of 1,000 resamples of the texts."
    if found.items is not None:
        note += f" R@1 is of {sizes_text(found.items, found.called)}."
    return make_table("Degrees side by side", columns, rows, styles, (note,))


def _ways(found: FormComparison) -> Mapping[str, str]:
    return way_names(found.called) if any(one.recall for one in found.candidates) else {}


def _row(one: ComparedForm, found: FormComparison) -> list[Content]:
    rmse = interval_cell(one.rmse, four_digits)
    recalls = [interval_cell(one.recall[way], percent) for way in _ways(found)]
    coefficients = None if one.form is None else one.form.terms
    row: list[Content] = [one.name, coefficients, rmse, one.worst, *recalls]
    row += [None, None] if one.cost is None else [one.cost.products, _taken(one.cost, found.d)]
    if any(other.in_memory for other in found.candidates):
        row.append(None if one.in_memory is None else one.in_memory.of_an_item.cell(ENERGIES))
    return row


def _taken(cost: ScoreCost, d: int | None) -> Content:
    if d is None:
        return Cell(f"{cost.vectors} d + {cost.multiplications}", cost.vectors)
    return cost.total(d)


def advice(found: FormComparison, chosen: Form, asked: bool) -> str:
    """The form that is enough, why, and what it saves; of one that was asked for, whether it is."""
    enough, best = found.of(found.enough), found.of(found.best)
    assert enough.rmse is not None
    assert enough.less_best is not None
    if asked and found.enough == chosen:
        return f"No cheaper form is as good as {chosen.name}."
    text = f"{enough.name[0].upper()}{enough.name[1:]} is enough: "
    if enough is best:
        text += "its RMSE on held-out pairs is the lowest, and everything cheaper is surely worse"
    elif enough.less_best.low <= 0:
        text += (
            f"its RMSE, {enough.rmse.value:.3g}, is not surely above that of {best.name}, "
            f"{_rmse(best):.3g}"
        )
    else:
        text += (
            f"its RMSE, {enough.rmse.value:.3g}, is above that of {best.name}, {_rmse(best):.3g}, "
            f"by less than {found.tolerance:.3g}{_reason(found)}"
        )
    against = found.of(chosen) if asked else best
    fewer, more = _products(enough), _products(against)
    text += f"; it takes {fewer} matrix product{'' if fewer == 1 else 's'} a query"
    if more > fewer:
        text += f" in place of {more}"
    return f"{text}."


def raw_sentence(found: FormComparison) -> str | None:
    """The sentence where raw embeddings retrieve as well as the best polynomial, or better."""
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


def _reason(found: FormComparison) -> str:
    if found.tolerance == TOLERATED * found.spread:
        return ", a tenth of what the labels spread by"
    if found.scatter is None or found.tolerance != TOLERATED * found.scatter:
        return ""
    return f", a tenth of what K = {found.samples} samples a side scatter by"


def _products(one: ComparedForm) -> int:
    return 0 if one.cost is None else one.cost.products


def _rmse(one: ComparedForm) -> float:
    return float("nan") if one.rmse is None else one.rmse.value
