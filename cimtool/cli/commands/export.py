"""Write a bundle's files for other tools."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.options import DIR, EMBEDDINGS, FILE, OneOfFamily, option, optional
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import DrawnDies
from cimtool.bundle.exporters import Exporter, Request, export_bundle
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.loading import api
from cimtool.loading.embeddings import EmbeddingsLike
from cimtool.report.document import Document, Verbatim


class ExportOptions(DrawnDies):
    """The options of `export`."""

    bundle: Path = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    format_name: str = option("Kind of files.", OneOfFamily(family=Exporter), flag="format")
    output: Path = option("Folder of the files.", DIR, short="o")
    layers: str | None = optional("Only these layers (default: all).", "PATTERN")
    inputs: EmbeddingsLike | None = optional(
        "Embeddings, for test vectors of real rows.", EMBEDDINGS
    )
    gallery: bool = option("Also export the gallery that `cimtool program` wrote.", default=False)


@record_command(ExportOptions)
def command(out: Output, options: ExportOptions) -> None:
    """Write a bundle's files for other tools.

    `testvectors` are stimuli for each layer (zero, extremes, one-hot, checkerboard, worst-case
    column, random, real rows) with the numbers at five taps of every row group, and embeddings with
    their features and logits, as .npy and as .mem for $readmemh; layout.json describes them.
    `conductances` are the level and the target conductance of every cell, one CSV file per layer;
    put in measured conductances and `simulate` and `verify` read them with `--chip`. `handoff` is
    for a chip team: a golden model in C, and a Makefile that checks it; with --noise also the
    cells of drawn dies and their outputs, as statistics.
    """
    read, output, name = read_bundle(options.bundle), options.output, options.format_name
    layers = "*" if options.layers is None else options.layers
    rows = None if options.inputs is None else api.read_data(options.inputs, read.model)
    request = Request(layers, rows, options.noise, options.gallery, out.say)
    written = export_bundle(read, name, output, request)
    size = sum(file.stat().st_size for file in written)
    shown = [f"wrote {file}" for file in written]
    if Exporter.named(name, "format").counted:
        shown = [f"wrote {output}: {len(written)} files, {size / 1e6:.1f} MB"]
    values = {"bundle": options.bundle, "format": name, "written": list(written), "bytes": size}
    out.result(Document("", tuple(map(Verbatim, shown)), lambda: values))
