"""A report as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.costs import render as costs
from cimtool.costs.picture import placement_svg
from cimtool.reference.queries import WAYS
from cimtool.report.formats import ENERGIES, TIMES, number
from cimtool.report.page import picture_url, render
from cimtool.verification import answers, pictures, tables
from cimtool.verification.bits import bit_sentences
from cimtool.verification.report import Report


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
        answers=answers,
        costs=costs,
        tables=tables,
        pictures=pictures,
        placement=picture_url(placement_svg(estimate.placements, estimate.layout, placed)),
        bits=(*bit_sentences(report.checks.bits), answers.fidelity(report)),
        settings=flat(subject.settings),
        number=number,
        energies=ENERGIES,
        times=TIMES,
        ways=WAYS,
    )


def flat(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings and their texts, without lists that are empty."""
    return [(key, answers.setting_text(value)) for key, value in settings.items() if value != []]
