"""`cimtool compare`: several bundles on the same data."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool import api
from cimtool.cli.checked import failures_shown
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.options import (
    FILE,
    Files,
    calibration_rows_option,
    embeddings_option,
    reference_option,
)
from cimtool.cli.output import Output
from cimtool.verification.compare import comparison_text


@click.command(cls=Command)
@click.argument("bundles", metavar="BUNDLE BUNDLE...", type=FILE, nargs=-1, required=True)
@embeddings_option("--data", "Embeddings to measure on")
@reference_option
@click.option("--samples", type=AtLeast(2), metavar="K", help="Samples a side (10).")
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="Of sampling.")
@calibration_rows_option
@click.pass_obj
def command(
    out: Output,
    bundles: tuple[Path, ...],
    data: Files,
    reference: str,
    samples: int | None,
    seed: int,
    allow_calibration_rows: bool,
) -> None:
    """Put the drift of several bundles side by side."""
    with failures_shown(out):
        found = api.compare(
            bundles,
            data,
            reference=reference,  # type: ignore[arg-type]  # OneOf checked it
            samples=samples,
            seed=seed,
            allow_calibration_rows=allow_calibration_rows,
            say=out.say,
        )
    out.result(found.to_json(), comparison_text(found, out.width))
