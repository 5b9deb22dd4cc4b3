"""A failed check is shown whole before its one sentence ends the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cimtool.cli.output import Output
from cimtool.verification.render import terminal_table
from cimtool.verification.report import VerificationFailed


@contextmanager
def failures_shown(out: Output) -> Iterator[None]:
    """Print the report of a VerificationFailed that passes through."""
    try:
        yield
    except VerificationFailed as failed:
        out.result(failed.report.to_json(), terminal_table(failed.report, out.width))
        raise
