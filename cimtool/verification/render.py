"""A report as text for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from cimtool.verification.answers import (
    clipping_sentence,
    energy,
    fit_sentence,
    latency,
    noisiest_sentence,
    other_notes,
    survival_sentence,
    unmodelled,
    verdict,
)
from cimtool.verification.columns import (
    Column,
    drift_columns,
    retrieval_columns,
    survival_columns,
    survivors,
)
from cimtool.verification.drift import Row
from cimtool.verification.report import Report
from cimtool.verification.sentences import (
    bit_sentences,
    clipped_sentence,
    domain_sentences,
    fidelity,
    floor_sentence,
    limit_sentences,
    margin_sentences,
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
    for columns, rows in (
        (survival_columns(report), survivors(report)),
        (drift_columns(report), report.shown),
        (retrieval_columns(report), report.shown),
    ):
        console.print(_rich_table(columns, rows, width >= WIDTH))
    # What a reader must know first stands under the headline, not after everything that is well.
    later = [f"not modelled: {text}" for text in report.unmodelled]
    said = (*report.headline.sentences, *other_notes(report), *_next(report), *_findings(report))
    for sentence in (*said, *later):
        console.print(sentence, markup=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _rich_table(columns: Sequence[Column], rows: Sequence[Row], whole: bool) -> Table:
    shown = [column for column in columns if whole or column.essential]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for column in shown:
        justify: JustifyMethod = "left" if column is shown[0] else "right"
        table.add_column(column.head, justify=justify, vertical="bottom", no_wrap=True)
    for row in rows:
        cells = [column.cell(row) for column in shown]
        table.add_row(*(cells if whole else _in_two_lines(cells)))
    return table


def _in_two_lines(cells: Sequence[str]) -> list[str]:
    """Intervals below their figures, and all figures of a row in its first line."""
    if not any(" [" in cell for cell in cells):
        return list(cells)
    return [cell.replace(" [", "\n[") if " [" in cell else f"{cell}\n" for cell in cells]


def _next(report: Report) -> tuple[str, ...]:
    return tuple(f"Next: {text}." for text in report.advice)


def _findings(report: Report) -> tuple[str, ...]:
    known = (
        floor_sentence(report),
        clipping_sentence(report),
        noisiest_sentence(report),
        clipped_sentence(report),
    )
    return (
        *margin_sentences(report),
        *(sentence for sentence in known if sentence),
        *domain_sentences(report),
        *bit_sentences(report),
        *limit_sentences(report),
    )


def markdown(report: Report) -> str:
    """The text of `report.md`: what a reviewer asks first, the rest folded."""
    lines = [f"# {_plain(report.bundle)}: {verdict(report)}", "", _plain(measured_on(report)), ""]
    if report.failed:
        lines += [*(f"* **{_plain(text)}**" for text in report.failures), ""]
    lines += [f"**{survival_sentence(report)}.**", "", *report.headline.sentences, ""]
    lines += [*_markdown_table(survival_columns(report), survivors(report)), ""]
    lines += [f"* {_plain(text)}" for text in _answers(report)]
    lines += ["", "## Drift", "", *_markdown_table(drift_columns(report), report.shown), ""]
    lines += _folded("What the columns mean", _meanings(drift_columns(report)))
    retrieval = _markdown_table(retrieval_columns(report), report.shown)
    lines += _folded("Retrieval", [*retrieval, "", "Shares in percent; rank is the median."])
    checks = (*_findings(report), fidelity(report))
    lines += _folded("Checks and findings", [f"* {_plain(text)}" for text in checks])
    return "\n".join(lines)


def _answers(report: Report) -> list[str]:
    query, gallery = report.cost["query"], report.cost["gallery"]
    return [
        f"Fit: {fit_sentence(report)}",
        *_next(report),
        f"Converters: {clipping_sentence(report)}",
        f"A query against {gallery:,} items: {energy(query)}, {latency(query)}, energy known for "
        f"{query['coverage']:.0%} of its operations",
        *(f"Not modelled: {text}" for text in unmodelled(report)),
        *other_notes(report),
    ]


def _plain(text: str) -> str:
    """Text whose characters Markdown would take for markup or HTML, escaped."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return "".join(f"\\{c}" if c in "`*_[]" else c for c in escaped)


def _meanings(columns: Sequence[Column]) -> list[str]:
    return [f"* {c.title}: {_plain(c.meaning)}" for c in columns if c.meaning]


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _markdown_table(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(column.title for column in columns) + " |"]
    lines.append("|" + "|".join([" --- "] + [" ---: "] * (len(columns) - 1)) + "|")
    lines += ["| " + " | ".join(column.cell(row) for column in columns) + " |" for row in rows]
    return lines
