"""A report as text for a terminal, as Markdown for a pull request, as a page, and its files."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.files import REPORT_FILES, replace_texts
from cimtool.bundle.placement_picture import placement_svg
from cimtool.costs import render as costs
from cimtool.report import formats
from cimtool.report.page import picture_url, render, render_file
from cimtool.report.result import View, view
from cimtool.report.terminal import table_text, wrapped
from cimtool.verification import answers, pictures, tables
from cimtool.verification.bits import bit_sentences
from cimtool.verification.report import Report

PACKAGE = "cimtool.verification"

WIDTH = 100
"""Columns of a terminal that hold all tables; on a narrower one only the essential stay."""

SMALLEST = 64
"""Columns that the essential ones need."""


def terminal_text(report: Report, width: int = WIDTH) -> str:
    """The report for a terminal `width` columns wide, plain text."""
    width = max(width, SMALLEST)
    shown = (tables.survival_table, tables.drift_table, tables.retrieval_table)
    # What a reader must know first stands under the headline, not after everything that is well.
    said = [*report.headline.sentences, *report.notes]
    said += [f"Next: {text}." for text in report.causes.advice]
    said += _findings(report)
    said += [f"not modelled: {text}" for text in report.estimate.target.unmodelled]
    heading = wrapped([f"{report.subject.bundle}: {answers.measured_on(report)}"], width)
    blocks = [table_text(table(report.drift), width, gap=1) for table in shown]
    if report.checks.earlier is not None:
        made = tables.earlier_table(report.checks.earlier)
        blocks = [*blocks, wrapped([made.title], width), table_text(made, width, gap=1)]
    return "\n\n".join([heading, *blocks, wrapped(said, width)])


def _findings(report: Report) -> list[str]:
    said = (
        *answers.margin_sentences(report),
        answers.floor_sentence(report),
        answers.clipping_sentence(report),
        answers.noisiest_sentence(report),
        answers.clipped_sentence(report),
        *answers.domain_sentences(report),
        *bit_sentences(report.checks.bits),
        *answers.limit_sentences(report),
        *answers.earlier_sentences(report),
    )
    return [sentence for sentence in said if sentence]


def markdown(report: Report) -> str:
    """The text of `report.md`: what a reviewer asks first, the rest folded."""
    text = render_file(
        PACKAGE,
        "report.md",
        report=report,
        findings=(*_findings(report), answers.fidelity(report)),
        answers=answers,
        costs=costs,
        tables=tables,
        formats=formats,
    )
    return f"{text}\n"


def html(report: Report) -> str:
    """The text of `report.html`: one page that needs nothing else."""
    subject, estimate = report.subject, report.estimate
    placed = f"{subject.bundle} on {subject.target}"
    settings = [(k, answers.setting_text(v)) for k, v in subject.settings.items() if v != []]
    return render(
        PACKAGE,
        "report.html",
        title=f"{subject.bundle}: what each step cost",
        report=report,
        subject=subject,
        drift=report.drift,
        estimate=estimate,
        placement=picture_url(placement_svg(estimate.placements, estimate.floorplan, placed)),
        settings=settings,
        bits=(*bit_sentences(report.checks.bits), answers.fidelity(report)),
        answers=answers,
        costs=costs,
        tables=tables,
        pictures=pictures,
        formats=formats,
    )


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write `report.json`, `report.md` and `report.html` into `folder`, which is made if missing.

    Earlier ones are replaced only once all new ones are written. Raises CimError where the folder
    cannot be written.
    """
    texts = (report.json_text(), markdown(report), html(report))
    return replace_texts(folder, dict(zip(REPORT_FILES, texts, strict=True)), "the report")


@view.register
def _(report: Report) -> View:
    drift, causes = report.drift, report.causes
    sentences = [*report.headline.sentences, *report.failures, *report.notes]
    return View(
        f"{report.subject.bundle}, {answers.measured_on(report)}",
        [*sentences, *(f"Next: {text}." for text in causes.advice), *_findings(report)],
        report.to_json,
        {
            "survival": lambda: tables.survival_table(drift),
            "drift": lambda: tables.drift_table(drift),
            "retrieval": lambda: tables.retrieval_table(drift),
            "layers": lambda: tables.crossbar_layer_table(causes),
            "columns": lambda: tables.column_table(causes),
            "sensitivity": lambda: tables.sensitivity_table(causes),
            "margins": lambda: tables.margin_table(drift),
            "domains": lambda: tables.domain_table(report.saturation),
            "stored": lambda: tables.stored_table(report.saturation),
            "target": lambda: tables.target_table(report.estimate.target),
        },
        {
            "survival": lambda: pictures.survival_chart(drift),
            "budget": lambda: pictures.budget_chart(drift),
            "pairs": lambda: pictures.pairs_chart(drift),
        },
    )
