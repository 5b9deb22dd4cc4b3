"""`cimtool compare`: several bundles on the same data."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool import api
from cimtool.cli.checked import failures_shown
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.options import FILE, embeddings_files, embeddings_option
from cimtool.cli.output import Output
from cimtool.verification.compare import comparison_table


@click.command(cls=Command)
@click.argument("bundles", metavar="BUNDLE BUNDLE...", type=FILE, nargs=-1, required=True)
@embeddings_option("--data", "Embeddings to measure on")
@click.option("--samples", type=AtLeast(2), metavar="K", help="Samples a side (10).")
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="Of sampling.")
@click.pass_obj
def command(
    out: Output,
    bundles: tuple[Path, ...],
    paths: tuple[Path, ...],
    samples: int | None,
    seed: int,
) -> None:
    """Put the drift of several bundles side by side."""
    data = embeddings_files(paths, "--data")
    with failures_shown(out):
        found = api.compare(bundles, data, samples=samples, seed=seed, say=out.say)
    out.result(found.to_json(), comparison_table(found, out.width))
