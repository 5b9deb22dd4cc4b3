"""Put the drift of several bundles side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.commands.verify import failures_shown
from cimtool.cli.group import Command
from cimtool.cli.options import (
    FILE,
    embeddings_option,
    qrels_option,
    reference_options,
    seen_rows_options,
)
from cimtool.cli.output import Output


@click.command(cls=Command)
@click.argument("bundles", metavar="BUNDLE BUNDLE...", type=FILE, nargs=-1, required=True)
@embeddings_option("--data", "Embeddings to measure on")
@qrels_option
@reference_options
@seen_rows_options
@click.pass_obj
def command(out: Output, /, bundles: tuple[Path, ...], **options: Any) -> None:
    """Put the drift of several bundles side by side."""
    with failures_shown(out):
        found = api.compare(bundles, say=out.say, **options)
    out.result(found.document())
