"""`cimtool export`: a bundle's files for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool.cli.group import Command, OneOf
from cimtool.cli.options import FILE
from cimtool.cli.output import Output
from cimtool.emit.bundle import read_bundle
from cimtool.emit.export import FORMATS, export_bundle


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@click.option(
    "--format", "format_name", type=OneOf(list(FORMATS)), required=True, help=", ".join(FORMATS)
)
@click.option("-o", "--output", type=FILE, metavar="DIR", required=True, help="Where they go.")
@click.pass_obj
def command(out: Output, bundle: Path, format_name: str, output: Path) -> None:
    """Hand a bundle's files to other tools."""
    written = export_bundle(read_bundle(bundle), format_name, output)
    out.result(
        {"bundle": bundle, "format": format_name, "written": list(written)},
        "\n".join(f"wrote {file}" for file in written),
    )
