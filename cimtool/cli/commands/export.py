"""Write a bundle's files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import Exporter, Request, export_bundle
from cimtool.cli.group import AtLeast, Command, NameOf
from cimtool.cli.options import (
    DIR,
    FILE,
    Files,
    embeddings_option,
    noise_options,
    take_noise,
)
from cimtool.cli.output import Output
from cimtool.report.document import Document, Verbatim


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@click.option(
    "--format", "format_name", type=NameOf(Exporter), required=True, help="Kind of files."
)
@click.option("-o", "--output", type=DIR, required=True, help="Folder of the files.")
@click.option("--layers", metavar="PATTERN", help="Only these layers (default: all).")
@embeddings_option("--inputs", "Embeddings, for test vectors of real rows", required=False)
@click.option("--gallery", is_flag=True, help="Also what `cimtool program` put into the arrays.")
@noise_options
@click.option("--seed", type=AtLeast(0), default=0, help="Seed of the dies.")
@click.pass_obj
def command(
    out: Output,
    /,
    bundle: Path,
    format_name: str,
    output: Path,
    layers: str | None,
    inputs: Files | None,
    gallery: bool,
    seed: int,
    **options: Any,
) -> None:
    """Write a bundle's files for other tools.

    `testvectors` are stimuli of each layer (zero, extremes, one-hot, checkerboard, worst-case
    column, random, real rows) with the numbers at five taps of every row group, and embeddings with
    their features and logits, as .npy and as .mem for $readmemh; layout.json describes them.
    `conductances` are the level and the target conductance of every cell, a CSV file a layer: what
    `--chip` of `simulate` and `verify` reads with measured ones in their place. `handoff` is what a
    chip team needs: a golden model in C, and a Makefile that checks it; with --noise also
    what cells of drawn dies came to and what they show, which is statistics.
    """
    read = read_bundle(bundle)
    noise = take_noise(options, seed)
    rows = None if inputs is None else api.read_data(inputs, read.model)
    request = Request("*" if layers is None else layers, rows, noise, gallery, out.say)
    written = export_bundle(read, format_name, output, request)
    size = sum(file.stat().st_size for file in written)
    shown = [f"wrote {file}" for file in written]
    if Exporter.named(format_name, "format").counted:
        shown = [f"wrote {output}: {len(written)} files, {size / 1e6:.1f} MB"]
    values = {"bundle": bundle, "format": format_name, "written": list(written), "bytes": size}
    out.result(Document("", tuple(map(Verbatim, shown)), lambda: values))
