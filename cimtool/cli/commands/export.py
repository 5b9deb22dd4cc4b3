"""Write a bundle's files for other tools."""

from __future__ import annotations

import shlex

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import Exporter, ExportOptions, Request, export_bundle
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import Document, Verbatim


@record_command(ExportOptions)
def command(out: Output, options: ExportOptions) -> None:
    """Write a bundle's files for other tools.

    `testvectors` are stimuli for each layer (zero, extremes, one-hot, checkerboard, worst-case
    column, largest and smallest sum, random, real rows) with the numbers at five taps of every row
    group, and embeddings with their features and logits, as .npy and as .mem for $readmemh;
    layout.json describes them.
    `conductances` are the level and the target conductance of every cell, one CSV file per layer;
    put in measured conductances and `simulate` and `verify` read them with `--chip`. `handoff` is
    for a chip team: a golden model in C, and a Makefile that checks it; with --noise also the
    cells of drawn dies and their outputs, as statistics. `c`, `images`, `taps` and `bench` are
    parts of it.
    """
    read, output, name = read_bundle(options.bundle), options.output, options.format_name
    written = export_bundle(read, name, output, Request.of(read, options, out.say))
    size = sum(file.stat().st_size for file in written)
    shown = [f"wrote {file}" for file in written]
    if Exporter.named(name, "format").counted:
        shown = [f"wrote {output}: {len(written)} files, {size / 1e6:.1f} MB"]
    if (output / "Makefile").is_file():
        shown.append(f"next: make -C {shlex.quote(str(output))}")
    values = {"bundle": options.bundle, "format": name, "written": list(written), "bytes": size}
    out.result(Document("", tuple(map(Verbatim, shown)), lambda: values))
