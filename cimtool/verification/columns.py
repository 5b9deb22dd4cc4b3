"""The columns of the report's tables of stages, one definition for terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cimtool.reference.bootstrap import Change, Interval
from cimtool.reference.metrics import Drift, Recall
from cimtool.verification.drift import Row
from cimtool.verification.report import Report

NOTHING = "-"
"""A cell without a meaning: a row compared with itself, a figure that is not there."""

NOT_KNOWN = "not known"

Value = Callable[[Row], float | None]
Form = Callable[[float | None], str]


def number(value: float | None) -> str:
    """Four digits after the point or in all, exponents for what would vanish."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    if abs(value) < 5e-5:
        return f"{value:.0e}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share in percent with one digit after the point; nothing where it is of nothing."""
    return (
        NOTHING
        if value is None or not math.isfinite(value)
        else f"{round(100 * value, 1) + 0.0:.1f}"
    )


@dataclass(frozen=True)
class Column:
    """A heading, the value of each row and how it is written; `text` where a value does not say it.

    The heading is in lines, for a table that must be narrow; only `essential` columns stay on a
    narrow terminal.
    """

    head: str
    value: Value
    form: Form = number
    essential: bool = True
    meaning: str = ""
    text: Callable[[Row], str] | None = None

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.head.replace("\n", " ")

    def cell(self, row: Row) -> str:
        """What the row's cell says."""
        return self.form(self.value(row)) if self.text is None else self.text(row)


STAGE = Column("stage", lambda row: None, text=lambda row: row.stage)


def survivors(report: Report) -> tuple[Row, ...]:
    """The rows that say whether a model survives: reference, surrogate, compiled model, dies."""
    names = (report.reference.name, report.surrogate)
    start = [row for row in report.rows if row.stage in dict.fromkeys(names)]
    compiled = replace(report.final, stage="compiled model")
    return (*start, compiled, *(row for one in report.noisy for row in one.rows))


def survival_columns(report: Report) -> tuple[Column, ...]:
    """R@1 of a stage both ways and what the reference has more of it, with their intervals."""

    def loss(row: Row) -> Change | None:
        return None if row.stage == report.reference.name else row.losses.get("r1_loss")

    return (
        STAGE,
        _with_interval("R@1\ntext to video", _forth),
        _with_interval("R@1\nvideo to text", _back),
        Column(
            "R@1 loss,\npoints",
            lambda row: None if (found := loss(row)) is None else found.value,
            meaning="what the reference has more of R@1 on the same queries, the worse of both "
            "directions; it is real where its interval leaves out 0",
            text=lambda row: change_text(loss(row)),
        ),
    )


def _with_interval(head: str, pick: Callable[[Row], Recall | None]) -> Column:
    way = "text_to_video" if pick is _forth else "video_to_text"

    def value(row: Row) -> float | None:
        found = pick(row)
        return None if found is None else found.r1

    def text(row: Row) -> str:
        return percent(value(row)) + interval_text(row.intervals, f"r1_{way}")

    meaning = "queries whose right item is the best, %; in brackets where 95% of resamples lie"
    return Column(head, value, percent, True, meaning, text)


def interval_text(intervals: Mapping[str, Interval], name: str) -> str:
    """The interval of a share in percent, ` [24.4, 28.9]`; empty where there is none."""
    found = intervals.get(name)
    return "" if found is None else f" [{percent(found.low)}, {percent(found.high)}]"


def change_text(change: Change | None) -> str:
    """A difference of shares in points with its interval."""
    if change is None:
        return NOTHING
    low, high = (percent(end) for end in (change.low, change.high))
    return f"{percent(change.value)} [{low}, {high}]"


def drift_columns(report: Report) -> tuple[Column, ...]:
    """How far each stage's scores are off; shares in percent."""

    def of_drift(pick: Callable[[Drift], float]) -> Value:
        return lambda row: None if row.drift is None else pick(row.drift)

    def step(row: Row) -> str:
        return number(row.step_rmse) + (" *" if row.stage == report.headline.cause else "")

    against = report.reference.name
    return (
        STAGE,
        Column(
            "RMSE",
            of_drift(lambda d: d.logit_rmse),
            meaning=f"root mean square difference of the {report.score} from {against}; "
            "± is that reference's own standard error, where it is sampled",
            text=lambda row: rmse_cell(row, report),
        ),
        Column(
            "centred",
            of_drift(lambda d: d.centred_rmse),
            number,
            False,
            "RMSE after removing each query's mean difference, which ranks nothing",
        ),
        Column(
            "% of\nspread",
            of_drift(lambda d: d.relative_rmse),
            percent,
            meaning="RMSE as a share of the mean spread of the reference within a query",
        ),
        Column("bias", of_drift(lambda d: d.bias), number, False, "mean difference"),
        Column("max", of_drift(lambda d: d.max_abs), meaning="largest difference"),
        Column(
            "step",
            lambda row: row.step_rmse,
            meaning="RMSE against the row before: what this step alone changed; * is the largest",
            text=step,
        ),
        Column(
            "vs\nMC",
            lambda row: row.monte_carlo_rmse,
            number,
            False,
            "RMSE against Monte Carlo, whose own scatter is in it",
        ),
        Column(
            "vs\nfloat",
            lambda row: row.float_rmse,
            meaning=f"RMSE against the float {report.surrogate}: all that was lost since",
        ),
        Column(
            "top-1\n%",
            of_drift(lambda d: d.top1_agreement),
            percent,
            meaning="queries with the reference's best item, the worse of both directions",
        ),
        Column(
            "float\ntop-1",
            lambda row: row.float_top1,
            percent,
            False,
            f"the same against the float {report.surrogate}",
        ),
        Column(
            "rank\ncorr.",
            of_drift(lambda d: d.spearman),
            number,
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
    if row.stage != report.reference.name or report.scatter is None or report.scatter.rmse:
        return NOTHING
    return f"±{number(report.scatter.standard_error)}"


def retrieval_columns(report: Report) -> tuple[Column, ...]:
    """How well each stage retrieves, texts to videos and back; shares in percent."""
    columns = [STAGE]
    for arrow, pick in (("t>v", _forth), ("v>t", _back)):
        columns += [
            Column(f"{arrow}\nR@1", _recall(pick, lambda r: r.r1), percent),
            Column(f"{arrow}\nR@5", _recall(pick, lambda r: r.r5), percent, False),
            Column(f"{arrow}\nR@10", _recall(pick, lambda r: r.r10), percent),
            Column(f"{arrow}\nrank", _recall(pick, lambda r: r.median_rank), _rank, False),
        ]
    if report.final.mean_precision is not None:
        columns += [
            Column("t>v\nmAP", _map("text_to_video"), percent),
            Column("v>t\nmAP", _map("video_to_text"), percent),
        ]
    if report.final.cosine_gap is not None:
        columns.append(Column("cosine\ngap", lambda row: row.cosine_gap, number, False))
    return tuple(columns)


def _rank(value: float | None) -> str:
    return NOTHING if value is None else f"{value:g}"


def _forth(row: Row) -> Recall | None:
    return None if row.retrieval is None else row.retrieval.text_to_video


def _back(row: Row) -> Recall | None:
    return None if row.retrieval is None else row.retrieval.video_to_text


def _recall(pick: Callable[[Row], Recall | None], figure: Callable[[Recall], float]) -> Value:
    def value(row: Row) -> float | None:
        found = pick(row)
        return None if found is None else figure(found)

    return value


def _map(way: str) -> Value:
    def value(row: Row) -> float | None:
        return None if row.mean_precision is None else float(getattr(row.mean_precision, way))

    return value
