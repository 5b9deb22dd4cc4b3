"""Measure the drift of each stage, and check the bits of every implementation."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cimtool.base.files import REPORT_FILES
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import Sentence
from cimtool.verification import api
from cimtool.verification.options import VerifyOptions
from cimtool.verification.render import remove_earlier, verdict_blocks
from cimtool.verification.report import Report, VerificationFailed


@record_command(VerifyOptions, at_once={"junit": remove_earlier})
def command(out: Output, options: VerifyOptions) -> None:
    """Measure the drift of each stage, and check the bits of every implementation.

    Ends with status 1 if a bit differs or a metric is over its --max-drift: {limits}.

    With --baseline it also fails if a metric is worse than in an earlier report on the same data:
    the 95% interval of its loss, paired query by query, is above its --tolerance. The default
    tolerances are r1_loss=0 (map_loss=0 if classes are known), top1_agreement_loss=0.05, and half
    of the earlier value for centred_rmse and logit_rmse.
    """
    written = [Path(options.report or options.bundle) / name for name in REPORT_FILES]
    written += [Path(options.junit)] if options.junit else []
    with failures_shown(out, written):
        found = api.verify(**vars(options), say=out.say)
    print_report(out, found, written, *_next(options, found))


def _next(options: VerifyOptions, found: Report) -> Iterator[str]:
    """The command on the gallery that will be searched; if its size is known, the hand-off.

    There is no hand-off if a line of the verdict speaks against the build, or none speaks for it.
    """
    bundle = shlex.quote(str(options.bundle))
    tones = {one.tone for one in verdict_blocks(found) if isinstance(one, Sentence)}
    if options.gallery is None:
        yield f"cimtool cost {bundle} --gallery N"
    elif "good" in tones and "bad" not in tones:
        yield f"cimtool export {bundle} --format handoff -o {bundle}-handoff"


@contextmanager
def failures_shown(out: Output, written: Sequence[Path] = ()) -> Iterator[None]:
    """Print the whole report of a VerificationFailed before its sentence ends the command."""
    try:
        yield
    except VerificationFailed as failed:
        print_report(out, failed.report, written)
        raise


def print_report(out: Output, report: Report, written: Sequence[Path], *next_: str) -> None:
    """Print a report, the names of its files, and the commands to run next."""
    shown = report.document()
    out.result(shown.wrote(written, *next_) if written else shown)
