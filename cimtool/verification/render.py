"""A report as text for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

from cimtool.costs.render import fit_sentence
from cimtool.costs.totals import Cost
from cimtool.report.formats import ENERGIES, TIMES
from cimtool.report.markdown import bullets, folded, meanings, plain, table_lines
from cimtool.report.terminal import table_text, wrapped
from cimtool.verification.answers import (
    clipped_sentence,
    clipping_sentence,
    domain_sentences,
    fidelity,
    floor_sentence,
    limit_sentences,
    margin_sentences,
    measured_on,
    noisiest_sentence,
    other_notes,
    survival_sentence,
    unmodelled,
    verdict,
)
from cimtool.verification.bits import bit_sentences
from cimtool.verification.report import Report
from cimtool.verification.tables import drift_table, retrieval_table, survival_table

WIDTH = 100
"""Columns of a terminal that hold all tables; on a narrower one only the essential stay."""

SMALLEST = 64
"""Columns that the essential ones need."""


def terminal_text(report: Report, width: int = WIDTH) -> str:
    """The report for a terminal `width` columns wide, plain text."""
    width = max(width, SMALLEST)
    drift = report.drift
    tables = (survival_table(drift), drift_table(drift), retrieval_table(drift))
    # What a reader must know first stands under the headline, not after everything that is well.
    later = [f"not modelled: {text}" for text in report.estimate.target.unmodelled]
    said = (*report.headline.sentences, *other_notes(report), *_next(report), *_findings(report))
    return "\n\n".join(
        [
            wrapped([f"{report.subject.bundle}: {measured_on(report)}"], width),
            *(table_text(table, width, gap=1) for table in tables),
            wrapped([*said, *later], width),
        ]
    )


def _next(report: Report) -> tuple[str, ...]:
    return tuple(f"Next: {text}." for text in report.causes.advice)


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
        *bit_sentences(report.checks.bits),
        *limit_sentences(report),
    )


def markdown(report: Report) -> str:
    """The text of `report.md`: what a reviewer asks first, the rest folded."""
    drift, title = drift_table(report.drift), plain(report.subject.bundle)
    lines = [f"# {title}: {verdict(report)}", "", plain(measured_on(report)), ""]
    if report.failures:
        lines += [*(f"* **{plain(text)}**" for text in report.failures), ""]
    lines += [f"**{survival_sentence(report)}.**", "", *report.headline.sentences, ""]
    lines += [*table_lines(survival_table(report.drift)), ""]
    lines += bullets(_answers(report))
    lines += ["", "## Drift", "", *table_lines(drift), ""]
    lines += folded("What the columns mean", meanings(drift))
    retrieval = table_lines(retrieval_table(report.drift))
    lines += folded("Retrieval", [*retrieval, "", "Shares in percent; rank is the median."])
    lines += folded("Checks and findings", bullets((*_findings(report), fidelity(report))))
    return "\n".join(lines)


def _answers(report: Report) -> list[str]:
    query = report.estimate.query or Cost()
    return [
        f"Fit: {fit_sentence(report.estimate.layout)}",
        *_next(report),
        f"Converters: {clipping_sentence(report)}",
        f"A query against {report.estimate.gallery:,} items: {query.energy_pj.text(ENERGIES)}, "
        f"{query.latency_ns.text(TIMES)}, energy known for {query.coverage:.0%} of its operations",
        *(f"Not modelled: {text}" for text in unmodelled(report)),
        *other_notes(report),
    ]
