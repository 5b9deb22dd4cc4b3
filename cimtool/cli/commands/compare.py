"""Put the drift of several bundles side by side."""

from __future__ import annotations

from cimtool.cli.commands.verify import failures_shown
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.verification import api
from cimtool.verification.options import CompareOptions


@record_command(CompareOptions)
def command(out: Output, options: CompareOptions) -> None:
    """Put the drift of several bundles side by side."""
    with failures_shown(out):
        found = api.compare(**vars(options), say=out.say)
    out.result(found.document())
