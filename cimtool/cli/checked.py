"""A failed check is shown whole before its one sentence ends the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cimtool.cli.output import Output
from cimtool.verification.render import terminal_text
from cimtool.verification.report import Report, VerificationFailed


def report_text(report: Report, width: int, written: Sequence[Path]) -> str:
    """The report for a terminal, and which files hold it."""
    said = [terminal_text(report, width)]
    if written:
        said += ["", f"wrote {', '.join(map(str, written))}"]
    return "\n".join(said)


@contextmanager
def failures_shown(out: Output, written: Sequence[Path] = ()) -> Iterator[None]:
    """Print the report of a VerificationFailed that passes through, and where it is `written`."""
    try:
        yield
    except VerificationFailed as failed:
        values: dict[str, Any] = failed.report.to_json()
        out.result(
            values | {"written": list(written)} if written else values,
            report_text(failed.report, out.width, written),
        )
        raise
