"""`cimtool inspect`: what a file is and what it holds."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool.cli.group import Command
from cimtool.cli.options import FILE
from cimtool.cli.output import Output
from cimtool.loading.inspect import format_facts, inspect


@click.command(cls=Command)
@click.argument("file", metavar="FILE", type=FILE)
@click.pass_obj
def command(out: Output, file: Path) -> None:
    """Say what a checkpoint, bundle, target, data or ONNX file holds.

    Of the folder of a hand-off every file is verified by its SHA-256, and the weights of each layer
    are read back from the cells of its arrays.
    """
    facts = inspect(file)
    out.result(facts, "\n".join(format_facts(facts)))
