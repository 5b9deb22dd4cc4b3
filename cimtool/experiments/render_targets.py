"""A comparison of targets for a reader: which keep the budget, the cheapest, a row for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cimtool.base.modality_names import way_names
from cimtool.costs.price_errors import ratio, times_cell, times_text
from cimtool.costs.totals import Quantity
from cimtool.experiments.budgets import DRIFT, ENERGY, held_text
from cimtool.experiments.point_cost import quantity_of
from cimtool.experiments.render_sweep import sizes_of
from cimtool.experiments.target_comparison import WAYS, TargetComparison, TargetRow
from cimtool.reference.measures import RANKINGS
from cimtool.report.charts import ParetoPoint, pareto
from cimtool.report.document import Document, FactList, Note, Picture, Section, Sentence, notes
from cimtool.report.formats import (
    ENERGIES,
    TIMES,
    Units,
    counted,
    four_digits,
    percent,
    scaled,
    unit_of,
    whole,
)
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, item_table

NOISE_FREE = (
    "figures are without the noise of devices; a sweep over targets with trials draws dies of "
    "those that have a noise model"
)


def document(found: TargetComparison) -> Document:
    """Targets within the budget, the cheapest, all rows, and reasons of those that cannot."""
    points = found.points
    reasons = [Note(f"{_named(row)}: {row.reason}") for row in found.rows if row.reason]
    facts = (
        ("pairs", f"{sizes_of(points)} of {points.data['file']}"),
        ("drift is measured against", points.reference),
        ("a query is priced among", counted(found.gallery, "item")),
    )
    return Document(
        f"{points.model} on {counted(len({row.target for row in found.rows}), 'target')}",
        (
            *points.remarks.blocks(list(summary(found))),
            target_table(found)
            .named("targets", "verdict")
            .keeping(index < FIRST_TARGETS for index in range(len(found.rows))),
            *([Section("Cannot", tuple(reasons))] if reasons else []),
            *pictures(found),
            *notes(_notes(found), "detail"),
            FactList(facts, "detail"),
        ),
        found.to_json,
    )


FIRST_TARGETS = 4
"""Rows that the first screen has."""


def summary(found: TargetComparison) -> Iterator[Sentence]:
    """Sentences on the targets within the budget, and on the cheapest, in each way of a gallery."""
    held = held_text(found.budget.limits)
    names = list(dict.fromkeys(row.target for row in found.within))
    every = len(dict.fromkeys(row.target for row in found.rows))
    if not names:
        open_ = dict.fromkeys(row.target for row in found.rows if row.maybe)
        if open_:
            yield Sentence(
                f"No target of {every} is shown to keep {held}; whether {', '.join(open_)} "
                f"{'does' if len(open_) == 1 else 'do'} is open: the intervals reach within, and "
                "more queries narrow them.",
                "verdict",
            )
        else:
            yield Sentence(f"No target of {every} keeps {held}.", "verdict", "bad")
        return
    priced = [row for row in found.within if row.priced]
    said = f"{len(names)} of {counted(every, 'target')} keep{'s' * (len(names) == 1)} {held}"
    if not priced:
        yield Sentence(f"{said}; the energy of none is known.", "verdict")
        return
    best = priced[0]
    energy = _amount(best, "energy")
    yield Sentence(
        f"{said}; a query among {found.gallery:,} items takes least on {_named(best)}: "
        f"{energy.full_text(ENERGIES)}, latency {_amount(best, 'latency').full_text(TIMES)}, "
        f"{_needs(best)}.",
        "verdict",
        "good",
    )
    other = next((row for row in priced if row.way != best.way), None)
    if other is not None:
        least = _amount(other, "energy")
        times = ratio({"of the other": least.ends}, {"of the best": energy.ends})
        multiple = f", {times_text(times)} as much if no price is common to both"
        # Ways on one target have their prices in common, which rows of targets do not tell apart.
        yield Sentence(
            f"With the gallery {WAYS.get(other.way, other.way)} the least is "
            f"{least.full_text(ENERGIES)} on {other.target}"
            f"{multiple * (other.target != best.target)}, {_needs(other)}.",
            "detail",
        )
    if not best.surely:
        yield Sentence(
            f"{_named(best)} may miss the budget on other queries: its interval over these reaches "
            "beyond; more queries narrow it."
        )


def _named(row: TargetRow) -> str:
    return f"{row.target}, {WAYS.get(row.way, row.way)}" if row.way else row.target


def _needs(row: TargetRow) -> str:
    chips = row.outcome.cost["chips"]
    arrays = counted(row.outcome.cost["arrays"], "array")
    return arrays if chips is None else f"{arrays} on {counted(chips, 'chip')}"


def _amount(row: TargetRow, name: str) -> Quantity:
    return quantity_of(row.outcome.cost, name)


def target_table(found: TargetComparison) -> Table:
    """All rows: within the budget by energy, then those without a price, over it, that cannot."""
    points = found.points
    lead = next(one for one in RANKINGS if one.name == "r1")
    ways = way_names(points.data["modalities"])
    best = next((row for row in found.rows if row.kept and row.priced), None)
    more = partial(Column, essential=False)

    def cost(name: str) -> Callable[[TargetRow], Content]:
        return lambda row: row.outcome.cost.get(name)

    def measured(name: str) -> Callable[[TargetRow], Content]:
        return lambda row: row.outcome.cell(name, percent)

    def measure(name: str, units: Units) -> Callable[[TargetRow], Content]:
        return lambda row: None if row.reason else _amount(row, name).full_cell(units)

    def sampled(row: TargetRow) -> Content:
        worth = row.outcome.worth
        known = None if worth is None else worth.sampled
        return None if known is None else interval_cell(known.centred, "{:,.0f}".format)

    def raw(row: TargetRow) -> Content:
        times = row.outcome.times_raw
        return None if times is None else times_cell(times.times)

    within = "yes: the interval keeps it too; value: its value alone does"
    energy = f"of one query among {found.gallery:,} items; > is a lower bound: parts have no price"
    columns: tuple[tuple[Column, Callable[[TargetRow], Content]], ...] = (
        (Column("target"), lambda row: row.target),
        (
            Column(
                "gallery",
                help="scored digitally, in arrays, or digitally after a shortlist from arrays",
            ),
            _way,
        ),
        (Column("keeps it", help=within), _state),
        (Column("query", help=energy), measure("energy", ENERGIES)),
        (more("latency", help="of the same query"), measure("latency", TIMES)),
        (Column("arrays", whole), cost("arrays")),
        (more("chips", whole, "- if their size is not known"), cost("chips")),
        *(
            (
                more(f"R@1, %\n{said}", percent, f"{lead.help}; 95% interval"),
                measured(lead.keys[way]),
            )
            for way, said in ways.items()
        ),
        *(
            (
                Column(
                    name,
                    four_digits,
                    "95% interval over queries",
                    essential=name in found.budget.limits,
                ),
                lambda row, name=name: row.outcome.cell(name, four_digits),
            )
            for name in dict.fromkeys((*found.budget.limits, DRIFT))
        ),
        (more("as Monte\nCarlo, K", whole, "K of the same centred error"), sampled),
        (
            more("encoding", help="energy of a text and a video"),
            measure("encoding_energy", ENERGIES),
        ),
        (more("times\nraw rows", help="energy of int8 rows in digital"), raw),
    )
    title = f"{points.model}, a query among {found.gallery:,} items"
    return item_table(title, found.rows, columns, lambda row: "result" if row is best else "")


def _way(row: TargetRow) -> Content:
    return WAYS.get(row.way, row.way)


def _state(row: TargetRow) -> Content:
    if row.reason:
        return Cell("cannot", None, style="bad")
    if not row.kept:
        return Cell("over", None, style="bad")
    return Cell("yes", None, style="good") if row.surely else "value"


def _notes(found: TargetComparison) -> Iterator[str]:
    unpriced = [_named(row) for row in found.within if not row.priced]
    if unpriced:
        yield f"not ranked by energy, of which parts have no price: {'; '.join(unpriced)}"
    done = [row for row in found.rows if not row.reason]
    bases = dict.fromkeys(row.outcome.cost["energy_basis"] for row in done)
    if len(bases) > 1:
        yield (
            "energies of arrays and converters rest on the targets' own figures or on reference "
            "prices: "
            + "; ".join(
                f"{basis or 'none'}: "
                + ", ".join(
                    dict.fromkeys(
                        row.target for row in done if row.outcome.cost["energy_basis"] == basis
                    )
                )
                for basis in bases
            )
        )
    for row in done:
        yield from (f"{_named(row)}: {note}" for note in row.outcome.warnings)
    yield NOISE_FREE
    yield from found.points.remarks.notes


def pictures(found: TargetComparison) -> Iterator[Picture]:
    """The centred error against the energy of a query, of rows that have both."""
    drawn = [row for row in found.rows if row.priced and DRIFT in row.outcome.metrics]
    if len(drawn) < 2:
        return
    size, unit = unit_of(max(row.outcome.cost[ENERGY] for row in drawn), ENERGIES)

    def place(row: TargetRow) -> tuple[float, float]:
        return row.outcome.cost[ENERGY], row.outcome.metrics[DRIFT]

    def best(row: TargetRow) -> bool:
        x, y = place(row)
        others = (place(other) for other in drawn)
        return not any(a <= x and b <= y and (a, b) != (x, y) for a, b in others)

    candidates = [
        ParetoPoint(
            _named(row), place(row)[0] / size, place(row)[1], best(row),
            scaled(place(row)[0], ENERGIES),
        )
        for row in drawn
    ]  # fmt: skip
    label = f"centred logit RMSE against the energy of a query of {len(drawn)} targets and ways"
    picture = pareto(
        candidates, f"energy per query ({unit})", "centred logit RMSE", label, log_y=True
    )
    said = (
        "Noise-free centred logit RMSE against the energy of a query; both are better when lower."
    )
    yield Picture("targets", picture, said)
