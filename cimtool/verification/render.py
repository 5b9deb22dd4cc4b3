"""A report as text for a terminal, as Markdown, and as one self-contained page."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from cimtool.verification.columns import Column, drift_columns, number, percent, retrieval_columns
from cimtool.verification.drift import POLYNOMIAL, Row
from cimtool.verification.report import Report
from cimtool.verification.sentences import (
    bit_sentences,
    clipped_sentence,
    domain_sentences,
    fidelity,
    limit_sentences,
    measured_on,
)

WIDTH = 100
"""Columns of a terminal that hold the whole table; on a narrower one only the essential stay."""

SMALLEST = 64
"""Columns that the essential ones need."""


def terminal_table(report: Report, width: int = WIDTH) -> str:
    """The report for a terminal `width` columns wide, plain text."""
    stream = io.StringIO()
    console = Console(file=stream, width=max(width, SMALLEST), color_system=None, highlight=False)
    console.print(f"{report.bundle}: {measured_on(report)}", markup=False)
    for columns in (drift_columns(report), retrieval_columns(report)):
        console.print(_rich_table(columns, report.shown, width >= WIDTH))
    for sentence in (*report.headline.sentences, *_findings(report)):
        console.print(sentence, markup=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _rich_table(columns: Sequence[Column], rows: Sequence[Row], whole: bool) -> Table:
    shown = [column for column in columns if whole or column.essential]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for column in shown:
        justify: JustifyMethod = "left" if column is shown[0] else "right"
        table.add_column(column.head, justify=justify, vertical="bottom", no_wrap=True)
    for row in rows:
        table.add_row(*(column.cell(row) for column in shown))
    return table


def _findings(report: Report) -> tuple[str, ...]:
    clipped = clipped_sentence(report)
    return (
        *bit_sentences(report),
        *domain_sentences(report),
        *((clipped,) if clipped else ()),
        *limit_sentences(report),
        *report.notes,
    )


def markdown(report: Report) -> str:
    """The text of `report.md`."""
    lines = [f"# {report.bundle}", "", measured_on(report), ""]
    lines += [f"**{report.headline.sentences[0]}**", *report.headline.sentences[1:], ""]
    for title, columns in (
        ("Drift", drift_columns(report)),
        ("Retrieval", retrieval_columns(report)),
    ):
        lines += [f"## {title}", "", *_markdown_table(columns, report.shown), ""]
        lines += [f"* {c.title}: {c.meaning}" for c in columns if c.meaning]
        lines += [""]
    lines += ["## Checks", "", *(f"* {text}" for text in (*_findings(report), fidelity(report)))]
    return "\n".join(lines) + "\n"


def _markdown_table(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(column.title for column in columns) + " |"]
    lines.append("|" + "|".join([" --- "] + [" ---: "] * (len(columns) - 1)) + "|")
    lines += ["| " + " | ".join(column.cell(row) for column in columns) + " |" for row in rows]
    return lines


def html(report: Report) -> str:
    """The text of `report.html`: one page that needs nothing else."""
    environment = Environment(
        loader=PackageLoader("cimtool.verification", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        report=report,
        measured_on=measured_on(report),
        tables=(
            ("Drift", drift_columns(report)),
            ("Retrieval", retrieval_columns(report)),
        ),
        steps=_steps(report),
        bits=bit_sentences(report),
        fidelity=fidelity(report),
        domains=domain_sentences(report),
        clipped=clipped_sentence(report),
        settings=_flat(report.settings),
        number=number,
        percent=percent,
    )


def _steps(report: Report) -> list[tuple[str, str, float]]:
    """Name, text and share of the largest, of each step after the polynomial."""
    start = next(i for i, row in enumerate(report.rows) if row.stage == POLYNOMIAL)
    steps = [(row.stage, row.step_rmse or 0.0) for row in report.rows[start + 1 :]]
    largest = max(rmse for _, rmse in steps) or 1.0
    return [(stage, number(rmse), 100 * rmse / largest) for stage, rmse in steps]


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, setting_text(value)) for key, value in settings.items() if value != []]


def setting_text(value: Any) -> str:
    """A setting as a reader knows it; no converter and no limit of an array are `none`."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
