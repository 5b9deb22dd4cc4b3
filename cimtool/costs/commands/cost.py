"""Estimate arrays, time, energy and area of a bundle on its target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cimtool.base.files import COST_FILES, check_folder, replace_texts
from cimtool.base.options import DIR, Record, optional
from cimtool.bundle.matcher import open_bundle
from cimtool.cli.output import Output, json_text
from cimtool.cli.records import record_command
from cimtool.costs import api
from cimtool.costs.estimate import CostOptions
from cimtool.costs.render import document
from cimtool.costs.roofline import roofline_svg
from cimtool.costs.ways import GalleryWay, query_ways
from cimtool.report.document import Sentence
from cimtool.report.formats import ENERGIES, TIMES, whole
from cimtool.report.table import Column, Content, Table, item_table


class CostPlace(Record):
    """The folder of the command's files."""

    output: Path | None = optional("Folder of the files [default: the bundle].", DIR, short="o")


@record_command(CostOptions, CostPlace)
def command(out: Output, options: CostOptions, folder: CostPlace) -> None:
    """Estimate arrays, time, energy and area of a bundle on its target.

    Uses the target's figures at one operating point, and reference prices for parts without a
    figure. A total that lacks a part is a lower bound. Writes cost.json, placement.svg,
    schedule.svg and, with a gallery, roofline.svg. For a bundle compiled with --score-mapping
    in-memory or hybrid, all ways to compute a query against the gallery stand side by side.
    """
    bundle = Path(options.bundle)
    output = folder.output or bundle
    check_folder(output)
    found = api.cost(**vars(options))
    ways = query_ways(open_bundle(bundle), found)
    name = bundle.name
    shown = document(found, name).plus(bundle=name, ways=[one.to_json() for one in ways])
    if ways:
        refused = [Sentence(f"{one.way}: {one.refused}") for one in ways if one.refused]
        shown = shown.plus(ways_table(ways, found.gallery or 0), *refused)
    pictures = (shown.pictures[one].svg for one in ("placement", "schedule"))
    contents = (json_text(shown.values()) + "\n", *pictures, roofline_svg(found, name))
    texts = {n: one for n, one in zip(COST_FILES, contents, strict=True) if one is not None}
    out.result(shown.wrote(replace_texts(output, texts, "the cost")))


def ways_table(ways: Sequence[GalleryWay], items: int) -> Table:
    """One encoded text against all items, one row per way to score; without refused ways."""
    columns: tuple[tuple[Column, Callable[[GalleryWay], Content]], ...] = (
        (Column(f"one text against {items:,} items"), lambda w: w.way),
        (Column("cells\nper item", whole), lambda w: w.cells),
        (Column("arrays", whole), lambda w: w.arrays),
        (Column("chips", whole), lambda w: w.chips),
        (Column("conversions", whole), lambda w: w.conversions),
        (Column("energy"), lambda w: w.energy_pj.cell(ENERGIES)),
        (Column("latency"), lambda w: w.latency_ns.cell(TIMES)),
    )
    return item_table("Ways of a query", [one for one in ways if not one.refused], columns)
