"""The report's files, written all or nothing beside what else lies in their folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cimtool.errors import CimError
from cimtool.verification.render import html, markdown
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".report.partial-", dir=folder) as partial:
            for name, text in texts.items():
                (Path(partial) / name).write_text(text, "utf-8")
            for name in texts:
                os.replace(Path(partial) / name, folder / name)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CimError(f"{folder}: the report cannot be written ({reason})") from error
    return tuple(folder / name for name in texts)
