"""A report as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.reference.queries import WAYS
from cimtool.report.formats import number
from cimtool.report.page import picture_url, render
from cimtool.verification import answers, pictures, tables
from cimtool.verification.report import Report
from cimtool.verification.sentences import (
    bit_sentences,
    clipped_sentence,
    fidelity,
    floor_sentence,
    limit_sentences,
    measured_on,
    setting_text,
)


def html(report: Report) -> str:
    """The text of `report.html`: one page that needs nothing else."""
    return render(
        "cimtool.verification",
        "report.html",
        title=f"{report.bundle}: what each step cost",
        report=report,
        measured_on=measured_on(report),
        answers=answers,
        tables=tables,
        pictures=pictures,
        placement=picture_url(report.placement),
        floor=floor_sentence(report),
        bits=(*bit_sentences(report), fidelity(report)),
        clipped=clipped_sentence(report),
        limits=limit_sentences(report),
        settings=flat(report.settings),
        number=number,
        ways=WAYS,
    )


def flat(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings and their texts, without lists that are empty."""
    return [(key, setting_text(value)) for key, value in settings.items() if value != []]
