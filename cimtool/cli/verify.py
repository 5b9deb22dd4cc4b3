"""`cimtool verify`: what each stage cost, and whether every bit agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.checked import failures_shown, report_text
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.noise import noise_options, noise_request
from cimtool.cli.options import (
    FILE,
    Files,
    calibration_rows_option,
    embeddings_option,
    reference_option,
)
from cimtool.cli.output import Output
from cimtool.cli.values import parse_limits
from cimtool.verification.files import REPORT_FILES


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@embeddings_option("--data", "Embeddings to measure on")
@reference_option
@click.option("--samples", type=AtLeast(2), metavar="K", help="Samples a side (10).")
@click.option(
    "--seed", type=AtLeast(0), default=0, show_default=True, help="Of sampling, and of dies."
)
@click.option("--max-drift", metavar="METRIC=VALUE", multiple=True, help="Fail above this.")
@click.option("--report", type=FILE, metavar="DIR", help="Where the report goes (the bundle).")
@calibration_rows_option
@noise_options
@click.pass_obj
def command(
    out: Output,
    /,
    bundle: Path,
    data: Files,
    reference: str,
    samples: int | None,
    seed: int,
    max_drift: tuple[str, ...],
    report: Path | None,
    allow_calibration_rows: bool,
    noise: bool,
    **of_dies: Any,
) -> None:
    """Say what each stage cost, and check every implementation bit for bit.

    Ends with status 1 where a bit differs or a metric is over its --max-drift: logit_rmse,
    top1_agreement_loss, r1_loss, r5_loss, r10_loss (fractions, the worse of both directions).
    """
    limits = parse_limits("max_drift", max_drift)
    written = [(report or bundle) / name for name in REPORT_FILES]
    with failures_shown(out, written):
        found = api.verify(
            bundle,
            data,
            reference=reference,  # type: ignore[arg-type]  # OneOf checked it
            samples=samples,
            seed=seed,
            max_drift=limits,
            report=report,
            noise=noise_request(noise, seed, **of_dies),
            allow_calibration_rows=allow_calibration_rows,
            say=out.say,
        )
    out.result({**found.to_json(), "written": written}, report_text(found, out.width, written))
