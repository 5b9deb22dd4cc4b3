"""The columns of the drift table, one definition for terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cimtool.reference.metrics import Drift, Recall
from cimtool.verification.drift import POLYNOMIAL, Row
from cimtool.verification.report import Report

NOTHING = "-"
"""A cell without a meaning: a row compared with itself, a figure that is not there."""

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Column:
    """A heading and the text of each row's cell; `essential` columns stay on a narrow terminal.

    The heading is in lines, for a table that must be narrow.
    """

    head: str
    cell: Callable[[Row], str]
    essential: bool = True
    meaning: str = ""

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.head.replace("\n", " ")


def number(value: float | None) -> str:
    """Four digits after the point, exponents for what would vanish."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    if abs(value) < 5e-5:
        return f"{value:.0e}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share in percent with one digit after the point; nothing where it is of nothing."""
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def drift_columns(report: Report) -> tuple[Column, ...]:
    """How far each stage's scores are off; shares in percent."""

    def of_drift(pick: Callable[[Drift], float], form: Callable[[float | None], str]):  # type: ignore[no-untyped-def]
        return lambda row: form(None if row.drift is None else pick(row.drift))

    def step(row: Row) -> str:
        mark = " *" if row.stage == report.headline.cause else ""
        return number(row.step_rmse) + mark

    against = report.reference.name
    return (
        Column("stage", lambda row: row.stage),
        Column(
            "RMSE",
            lambda row: rmse_cell(row, report),
            meaning=f"root mean square difference of the {report.score} from {against}; "
            "± is that reference's own standard error",
        ),
        Column(
            "centred",
            of_drift(lambda d: d.centred_rmse, number),
            False,
            "RMSE after removing each query's mean difference, which ranks nothing",
        ),
        Column(
            "% of\nspread",
            of_drift(lambda d: d.relative_rmse, percent),
            meaning="RMSE as a share of the mean spread of the reference within a query",
        ),
        Column("bias", of_drift(lambda d: d.bias, number), False, "mean difference"),
        Column("max", of_drift(lambda d: d.max_abs, number), meaning="largest difference"),
        Column(
            "step",
            step,
            meaning="RMSE against the row before: what this step alone changed; "
            "* is the largest after the polynomial",
        ),
        Column(
            "vs\npoly.",
            lambda row: number(row.polynomial_rmse),
            meaning="RMSE against the float polynomial: all that was lost since",
        ),
        Column(
            "top-1\n%",
            of_drift(lambda d: d.top1_agreement, percent),
            meaning="queries with the reference's best item, the worse of both directions",
        ),
        Column(
            "poly.\ntop-1",
            lambda row: percent(row.polynomial_top1),
            False,
            "the same against the float polynomial",
        ),
        Column(
            "rank\ncorr.",
            of_drift(lambda d: d.spearman, number),
            False,
            "Spearman's rank correlation with the reference, mean over queries",
        ),
    )


def rmse_cell(row: Row, report: Report) -> str:
    """The RMSE; the scatter of Monte Carlo in its own row; what is not known by these words."""
    if row.drift is not None:
        return number(row.drift.logit_rmse)
    if row.retrieval is None:
        return NOT_KNOWN
    if row.stage == POLYNOMIAL or report.reference.standard_error is None:
        return NOTHING
    return f"±{number(report.reference.standard_error)}"


def retrieval_columns(report: Report) -> tuple[Column, ...]:
    """How well each stage retrieves, texts to videos and back; shares in percent."""
    columns = [Column("stage", lambda row: row.stage)]
    for arrow, pick in (("t>v", _forth), ("v>t", _back)):
        columns += [
            Column(f"{arrow}\nR@1", _recall(pick, lambda r: percent(r.r1))),
            Column(f"{arrow}\nR@5", _recall(pick, lambda r: percent(r.r5)), False),
            Column(f"{arrow}\nR@10", _recall(pick, lambda r: percent(r.r10))),
            Column(f"{arrow}\nrank", _recall(pick, lambda r: f"{r.median_rank:g}"), False),
        ]
    if report.final.mean_precision is not None:
        columns += [
            Column("t>v\nmAP", lambda row: _map(row, "text_to_video")),
            Column("v>t\nmAP", lambda row: _map(row, "video_to_text")),
        ]
    if report.final.cosine_gap is not None:
        gap = Column("cosine\ngap", lambda row: number(row.cosine_gap), False)
        columns.append(gap)
    return tuple(columns)


def _forth(row: Row) -> Recall | None:
    return None if row.retrieval is None else row.retrieval.text_to_video


def _back(row: Row) -> Recall | None:
    return None if row.retrieval is None else row.retrieval.video_to_text


def _recall(
    pick: Callable[[Row], Recall | None], text: Callable[[Recall], str]
) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = pick(row)
        return NOTHING if found is None else text(found)

    return cell


def _map(row: Row, way: str) -> str:
    return NOTHING if row.mean_precision is None else percent(getattr(row.mean_precision, way))
