"""`cimtool program`: a gallery goes into the arrays of a compiled bundle."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import click

from cimtool import api
from cimtool.cli.group import Command
from cimtool.cli.options import FILE, Files, files_option
from cimtool.cli.output import Output, converters_text
from cimtool.costs.memory_use import MemoryUse, StoredMatrix
from cimtool.deployment.programming import Accuracy, ProgrammedBundle
from cimtool.report.formats import counted, whole
from cimtool.report.table import Column, Content, Table, item_table
from cimtool.report.terminal import table_text


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@files_option("--gallery", "Embeddings whose video rows are the items (.npz, .npy or .pt).")
@click.option("-o", "--output", type=FILE, metavar="DIR", help="Where the new bundle goes.")
@click.option("--shortlist", type=int, metavar="L", help="Items that a hybrid score rescores.")
@click.option("--chips", type=int, metavar="N", help="Refuse a gallery that needs more chips.")
@click.pass_obj
def command(
    out: Output,
    bundle: Path,
    gallery: Files,
    output: Path | None,
    shortlist: int | None,
    chips: int | None,
) -> None:
    """Write a gallery into the arrays, for a score in the memory.

    BUNDLE was compiled with --score-mapping in-memory or hybrid. The new bundle goes to
    BUNDLE+<gallery's name> unless -o says otherwise; it answers texts against these items alone.
    """
    found = api.program(
        bundle,
        gallery,
        output=output,
        shortlist=shortlist,
        chips=chips,
        say=out.say,
    )
    out.result(found.to_json(), _text(found))


def _text(found: ProgrammedBundle) -> str:
    gallery, use = found.gallery, found.use
    kind = (
        gallery.mapping if gallery.shortlist is None else f"hybrid, shortlist {gallery.shortlist}"
    )
    folder = found.bundle.folder
    return "\n".join(
        [
            f"{gallery.file}: {gallery.items:,} items on {found.bundle.target.name} ({kind})",
            "",
            table_text(stored_table(use.matrices)),
            "",
            *(f"* {line}" for line in (*use_lines(use), accuracy_line(found.accuracy))),
            "",
            f"wrote {folder}",
            f"next: cimtool simulate {shlex.quote(str(folder))} --inputs NPZ",
        ]
    )


def stored_table(matrices: tuple[StoredMatrix, ...]) -> Table:
    """Each stored matrix: its products, its cells, and one conversion scheme a drive."""
    columns: tuple[tuple[Column, Callable[[StoredMatrix], Content]], ...] = (
        (Column("products"), lambda m: ", ".join(drive.product for drive in m.drives)),
        (Column("rows x items", str), lambda m: f"{m.rows} x {m.items}"),
        (Column("values"), lambda m: f"{m.weight_bits} {m.encoding}"),
        (Column("cells", whole), lambda m: m.cells_per_value),
        (Column("arrays", whole), lambda m: m.arrays),
        (
            Column("query bits in cycles"),
            lambda m: ", ".join(f"{drive.input_bits} in {drive.cycles}" for drive in m.drives),
        ),
        (
            Column("converters"),
            lambda m: "; ".join(converters_text(d.adc_bits, d.steps) for d in m.drives),
        ),
    )
    return item_table("Stored matrices", matrices, columns)


def use_lines(use: MemoryUse) -> list[str]:
    """What the gallery takes of the target, a line each; `not given` where it has no figure."""
    lines = [f"{counted(use.arrays, 'array')} for the gallery; {_chips(use)}"]
    lines.append(f"items a chip: {_items(use)}")
    written = f"{use.cells:,} cells are written"
    if use.writes is None:
        written += "; pulses a cell: not given"
    else:
        written += f" in {use.writes:,.0f} pulses ({use.pulses:g} a cell)"
    if use.programmings is None:
        written += "; endurance: not given"
    else:
        written += f"; a cell stands {use.programmings:,.0f} such programmings"
    return [*lines, written]


def _chips(use: MemoryUse) -> str:
    if use.arrays_per_chip is None or use.chips is None:
        return "arrays a chip: not given"
    return f"{use.arrays_per_chip:,} a chip: {counted(use.chips, 'chip')}"


def _items(use: MemoryUse) -> str:
    if use.items_per_chip is None:
        return "not given"
    text = f"{use.items_per_chip:,} in as many slices as the values need"
    if use.items_at_one_weight is None:
        return text
    return f"{text}, {use.items_at_one_weight:,} at one weight a value"


def accuracy_line(accuracy: Accuracy) -> str:
    """How far the score in the memory is from the digital one, on how many queries."""
    of = f"on {accuracy.queries} calibration queries"
    if accuracy.shortlist_top1 is not None and accuracy.shortlist_top10 is not None:
        return (
            f"the shortlist holds the best item of {accuracy.shortlist_top1:.1%} of the queries "
            f"and {accuracy.shortlist_top10:.1%} of their best ten, {of}"
        )
    return (
        f"against the digital score: logit RMSE {accuracy.logit_rmse:.4g}, top-1 agreement "
        f"{accuracy.top1_agreement:.1%}, {of}"
    )
