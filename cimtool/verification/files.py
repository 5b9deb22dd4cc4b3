"""The report's files, written all or nothing beside what else lies in their folder."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.files import replace_texts
from cimtool.verification.page import html
from cimtool.verification.render import markdown
from cimtool.verification.report import Report

REPORT_FILES = ("report.json", "report.md", "report.html")


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write `report.json`, `report.md` and `report.html` into `folder`, which is made if missing.

    Earlier ones are replaced only once all new ones are written. Raises CimError where the folder
    cannot be written.
    """
    texts = dict(
        zip(REPORT_FILES, (report.json_text(), markdown(report), html(report)), strict=True)
    )
    return replace_texts(folder, texts, "the report")
