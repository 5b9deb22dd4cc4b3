"""The charts of a report; every number in them is in a table beside them too."""

from __future__ import annotations

import math

from cimtool.base.modality_names import way_names
from cimtool.reference.measures import WAYS
from cimtool.report import charts
from cimtool.report.formats import number, percent
from cimtool.report.svg import percent_tick
from cimtool.verification.headline import DriftFindings
from cimtool.verification.layers import ColumnSums
from cimtool.verification.sensitivity import Sensitivity

MOST_PARTS = 12
"""Parts in the picture of the sensitivity, those that leave least error first."""


def survival_chart(drift: DriftFindings) -> str:
    """R@1 both ways of the reference, the surrogate, the compiled model and dies."""
    shown = [
        charts.Whisker(
            row.stage,
            tuple(row.with_interval(f"r1_{way}") for way in WAYS),
            row.stage == "compiled model",
        )
        for row in drift.survivors
    ]
    ways = list(way_names(drift.modalities).values())
    return charts.whiskers(shown, ways, "R@1 and its interval, stage by stage", percent_tick)


def budget_chart(drift: DriftFindings) -> str:
    """Centred mean square errors, which add where they are independent, up to the compiled model's.

    The rest closes the sum: errors of steps that add up, or cancel.
    """
    terms = [
        charts.Term(row.stage, step**2, number(step), row.stage == drift.headline.cause)
        for row in drift.compiled_rows
        if (step := row.get("step_centred_rmse")) is not None
    ]
    metrics = drift.final.metrics
    # From the float score where the reference is that.
    total = metrics.get("centred_rmse", metrics.get("float_centred_rmse", 0.0)) ** 2
    rest = total - sum(term.amount for term in terms)
    if abs(rest) > 1e-3 * max(total, *(term.amount for term in terms)):
        name = "steps that err alike" if rest > 0 else "steps that cancel"
        terms.append(charts.Term(name, rest, f"{rest:+.1g}"))
    last = charts.Term("compiled model", total, number(math.sqrt(total)), True)
    label = f"Mean square {drift.score} error of each step, up to {last.text} centred RMSE in all"
    return charts.waterfall(terms, last, label, f"mean square {drift.score} error")


def pairs_chart(drift: DriftFindings) -> str:
    """Compiled scores of a sample of pairs against the reference's."""
    pairs = drift.pairs
    both = list(zip(pairs.reference, pairs.compiled, pairs.right, strict=True))
    groups = [
        charts.Points(name, [(x, y) for x, y, right in both if right == kind])
        for name, kind in (("right pairs", True), ("wrong pairs", False))
    ]
    of = drift.reference
    label = f"Compiled {drift.score} of {len(both)} pairs against that of {of}"
    return charts.scatter(groups, f"{drift.score}, {of}", f"{drift.score}, compiled", label)


def recall_chart(drift: DriftFindings, way: str) -> str:
    """R@1 of reference, float score and compiled model against the size of the gallery."""
    found = [one for one in drift.curves if one.way == way and one.k == 1]
    lines = [
        charts.Points(
            "compiled model" if one.stage == drift.final.stage else one.stage,
            list(zip(one.sizes, one.recall, strict=True)),
        )
        for one in found
    ]
    said = way_names(drift.modalities)[way]
    label = f"R@1 {said} against the size of the gallery"
    return charts.curves(lines, "items in the gallery", f"R@1, {said}", label)


def sensitivity_chart(found: Sensitivity, score: str) -> str:
    """The error of each part alone, and how much goes where it is left in real numbers."""
    parts = sorted(found.parts, key=lambda part: part.left_float_centred_rmse)[:MOST_PARTS]
    rows = [
        (part.part, (part.alone_centred_rmse, found.centred_rmse - part.left_float_centred_rmse))
        for part in parts
    ]
    label = f"Centred RMSE of the {score} by part: {found.costliest} is the costliest"
    return charts.bars(rows, ("alone in integers", "goes when left float"), label, number)


def sums_picture(column: ColumnSums, layer: str) -> str:
    """A histogram of column sums for a cell of a table."""
    label = (
        f"Column sums of {layer}, {column.column}: {column.lowest:,} to {column.highest:,}, "
        f"{percent(column.clipped)}% clipped"
    )
    return charts.histogram(column.counts, label)
