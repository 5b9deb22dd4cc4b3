"""A report as text for a terminal, as Markdown for a pull request, as a page, and its files."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.files import replace_texts
from cimtool.costs import render as costs
from cimtool.costs.picture import placement_svg
from cimtool.costs.totals import Cost
from cimtool.report import formats
from cimtool.report.formats import ENERGIES, TIMES
from cimtool.report.markdown import bullets, folded, meanings, plain, table_lines
from cimtool.report.page import picture_url, render
from cimtool.report.terminal import table_text, wrapped
from cimtool.verification import answers, pictures, tables
from cimtool.verification.bits import bit_sentences
from cimtool.verification.report import Report

WIDTH = 100
"""Columns of a terminal that hold all tables; on a narrower one only the essential stay."""

SMALLEST = 64
"""Columns that the essential ones need."""

REPORT_FILES = ("report.json", "report.md", "report.html")


def terminal_text(report: Report, width: int = WIDTH) -> str:
    """The report for a terminal `width` columns wide, plain text."""
    width = max(width, SMALLEST)
    shown = (tables.survival_table, tables.drift_table, tables.retrieval_table)
    # What a reader must know first stands under the headline, not after everything that is well.
    said = [*report.headline.sentences, *answers.other_notes(report), *_next(report)]
    said += _findings(report)
    said += [f"not modelled: {text}" for text in report.estimate.target.unmodelled]
    heading = wrapped([f"{report.subject.bundle}: {answers.measured_on(report)}"], width)
    blocks = [table_text(table(report.drift), width, gap=1) for table in shown]
    return "\n\n".join([heading, *blocks, wrapped(said, width)])


def _next(report: Report) -> tuple[str, ...]:
    return tuple(f"Next: {text}." for text in report.causes.advice)


def _findings(report: Report) -> tuple[str, ...]:
    known = (
        answers.floor_sentence(report),
        answers.clipping_sentence(report),
        answers.noisiest_sentence(report),
        answers.clipped_sentence(report),
    )
    return (
        *answers.margin_sentences(report),
        *(sentence for sentence in known if sentence),
        *answers.domain_sentences(report),
        *bit_sentences(report.checks.bits),
        *answers.limit_sentences(report),
    )


def markdown(report: Report) -> str:
    """The text of `report.md`: what a reviewer asks first, the rest folded."""
    drift, title = tables.drift_table(report.drift), plain(report.subject.bundle)
    lines = [f"# {title}: {answers.verdict(report)}", "", plain(answers.measured_on(report)), ""]
    if report.failures:
        lines += [*(f"* **{plain(text)}**" for text in report.failures), ""]
    lines += [f"**{answers.survival_sentence(report)}.**", "", *report.headline.sentences, ""]
    lines += [*table_lines(tables.survival_table(report.drift)), ""]
    lines += bullets(_answers(report))
    lines += ["", "## Drift", "", *table_lines(drift), ""]
    lines += folded("What the columns mean", meanings(drift))
    retrieval = table_lines(tables.retrieval_table(report.drift))
    lines += folded("Retrieval", [*retrieval, "", "Shares in percent; rank is the median."])
    lines += folded("Checks and findings", bullets((*_findings(report), answers.fidelity(report))))
    return "\n".join(lines)


def _answers(report: Report) -> list[str]:
    query = report.estimate.query or Cost()
    return [
        f"Fit: {costs.fit_sentence(report.estimate.layout)}",
        *_next(report),
        f"Converters: {answers.clipping_sentence(report)}",
        f"A query against {report.estimate.gallery:,} items: {query.energy_pj.text(ENERGIES)}, "
        f"{query.latency_ns.text(TIMES)}, energy known for {query.coverage:.0%} of its operations",
        *(f"Not modelled: {text}" for text in answers.unmodelled(report)),
        *answers.other_notes(report),
    ]


def html(report: Report) -> str:
    """The text of `report.html`: one page that needs nothing else."""
    subject, estimate = report.subject, report.estimate
    placed = f"{subject.bundle} on {subject.target}"
    return render(
        "cimtool.verification",
        "report.html",
        title=f"{subject.bundle}: what each step cost",
        report=report,
        subject=subject,
        drift=report.drift,
        estimate=estimate,
        placement=picture_url(placement_svg(estimate.placements, estimate.layout, placed)),
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
