"""The checks of a report as JUnit XML, which build servers read as tests."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from cimtool.base.escapes import visible
from cimtool.base.files import check_output, replace_texts, unwritable
from cimtool.verification.report import Report


def junit_text(report: Report) -> str:
    """The text of a JUnit file: a suite of the bundle's name, and a case a check."""
    checks = report.checks.all
    failed = sum(bool(check.failures) for check in checks)
    counts = {"tests": f"{len(checks)}", "failures": f"{failed}", "errors": "0"}
    root = ElementTree.Element("testsuites", {"name": "cimtool verify", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": visible(report.subject.bundle), **counts, "skipped": "0"}
    )
    for check in checks:
        place = {"classname": f"cimtool.verify.{check.kind}", "name": visible(check.name)}
        case = ElementTree.SubElement(suite, "testcase", place)
        for sentence in check.failures:
            ElementTree.SubElement(case, "failure", {"message": visible(sentence)})
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


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
