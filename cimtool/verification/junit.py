"""The checks of a report as JUnit XML, which build servers read as tests."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from cimtool.base.files import check_output, replace_texts, unwritable
from cimtool.verification.report import Report

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def junit_text(report: Report) -> str:
    """The text of a JUnit file: a suite of the bundle's name, and a case a check."""
    checks = report.checks.all
    failed = sum(bool(check.failures) for check in checks)
    counts = {"tests": f"{len(checks)}", "failures": f"{failed}", "errors": "0"}
    root = ElementTree.Element("testsuites", {"name": "cimtool verify", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _held(report.subject.bundle), **counts, "skipped": "0"}
    )
    for check in checks:
        place = {"classname": f"cimtool.verify.{check.kind}", "name": _held(check.name)}
        case = ElementTree.SubElement(suite, "testcase", place)
        for sentence in check.failures:
            ElementTree.SubElement(case, "failure", {"message": _held(sentence)})
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _held(text: str) -> str:
    """The text with U+FFFD for each character that XML cannot hold."""
    return NOT_XML.sub("\ufffd", text)


def remove_earlier(file: Path) -> None:
    """Remove the file of an earlier run, so that a build server reads none where this one fails.

    Raises CimError where no JUnit file can be written there.
    """
    check_output(file, ".xml")
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(file, error) from None


def write_junit(report: Report, file: Path) -> None:
    """Write the checks into a file, whose folder is made if missing.

    Raises CimError where it cannot be written.
    """
    replace_texts(file.parent, {file.name: junit_text(report)}, "the JUnit file")
