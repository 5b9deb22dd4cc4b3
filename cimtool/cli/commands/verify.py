"""Measure the drift of each stage, and check the bits of every implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.base.files import REPORT_FILES
from cimtool.cli.group import Command
from cimtool.cli.options import (
    DIR,
    FILE,
    chip_option,
    embeddings_option,
    noise_options,
    qrels_option,
    reference_options,
    seen_rows_options,
    take_noise,
)
from cimtool.cli.output import Output
from cimtool.cli.values import parse_limits
from cimtool.verification.junit import remove_earlier
from cimtool.verification.report import Report, VerificationFailed


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@embeddings_option("--data", "Embeddings to measure on")
@qrels_option
@reference_options
@click.option("--max-drift", metavar="METRIC=VALUE", multiple=True, help="Fail above this value.")
@click.option("--baseline", type=FILE, help="An earlier report.json; fail where worse than it.")
@click.option(
    "--tolerance",
    metavar="METRIC=VALUE",
    multiple=True,
    help="Fail only where surely worse than the baseline by more than this.",
)
@click.option("--junit", type=FILE, help="Write the checks as JUnit XML (.xml).")
@click.option("--report", type=DIR, help="Folder of the report [default: the bundle].")
@seen_rows_options
@noise_options
@chip_option
@click.pass_obj
def command(
    out: Output,
    /,
    bundle: Path,
    max_drift: tuple[str, ...],
    report: Path | None,
    tolerance: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure the drift of each stage, and check the bits of every implementation.

    Ends with status 1 where a bit differs or a metric is over its --max-drift: {limits}.

    With --baseline also where a metric is worse than in an earlier report on the same data: the
    95% interval of its loss, paired query by query, is above its --tolerance. Without any named
    these are r1_loss=0 (map_loss=0 where classes are known), top1_agreement_loss=0.05, and of
    centred_rmse and logit_rmse half of what they were.
    """
    if options["junit"] is not None:
        remove_earlier(options["junit"])
    limits = parse_limits("max_drift", max_drift)
    tolerances = parse_limits("tolerance", tolerance)
    noise = take_noise(options, options["seed"])
    written = [(report or bundle) / name for name in REPORT_FILES]
    written += [options["junit"]] if options["junit"] else []
    with failures_shown(out, written):
        found = api.verify(
            bundle,
            max_drift=limits,
            tolerance=tolerances,
            report=report,
            noise=noise,
            say=out.say,
            **options,
        )
    print_report(out, found, written)


@contextmanager
def failures_shown(out: Output, written: Sequence[Path] = ()) -> Iterator[None]:
    """Print the whole report of a VerificationFailed before its one sentence ends the command."""
    try:
        yield
    except VerificationFailed as failed:
        print_report(out, failed.report, written)
        raise


def print_report(out: Output, report: Report, written: Sequence[Path]) -> None:
    """Print a report, and the files that hold it."""
    shown = report.document()
    out.result(shown.wrote(written) if written else shown)
