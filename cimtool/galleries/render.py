"""Tables of galleries in arrays, and how programmed bundles show themselves."""

from __future__ import annotations

from collections.abc import Callable

from cimtool.bundle.placement_view import converters_text
from cimtool.costs.memory_use import StoredMatrix
from cimtool.galleries.cams import ProgrammedCam
from cimtool.galleries.programming import ProgrammedBundle
from cimtool.galleries.shortlists import ShortlistOption, ShortlistSearch
from cimtool.report.formats import ENERGIES, TIMES, counted, four_digits, percent, whole
from cimtool.report.result import View, view
from cimtool.report.table import Column, Content, Table, item_table


def matrices_table(matrices: tuple[StoredMatrix, ...]) -> Table:
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


def front_table(search: ShortlistSearch) -> Table:
    """The settings that hold a recall and of which none is better in all, the taken one marked."""
    columns: tuple[tuple[Column, Callable[[ShortlistOption], Content]], ...] = (
        (Column("taken"), lambda o: "*" if o == search.chosen else ""),
        (Column("of mu", whole), lambda o: o.bits.dimensions or "all"),
        (Column("bits of\nitems"), lambda o: o.bits.item),
        (Column("bits of\nqueries"), lambda o: o.bits.query),
        (Column("shortlist", whole), lambda o: o.length),
        (Column("cells\nan item", whole), lambda o: o.cells),
        (Column("conversions\nan item", four_digits), lambda o: o.conversions),
        (Column("energy\na query"), lambda o: o.energy_pj.cell(ENERGIES)),
        (Column("latency\na query"), lambda o: o.latency_ns.cell(TIMES)),
        (Column("items\na chip", whole), lambda o: o.items_per_chip),
        (Column("recall\n%", percent), lambda o: o.recall.best.value),
        (Column("of best\nten %", percent), lambda o: o.recall.best_ten),
        (
            Column("R@1\n%", percent),
            lambda o: None if o.recall.found is None else o.recall.found.value,
        ),
    )
    return item_table("Shortlists", search.front, columns)


@view.register
def _(found: ProgrammedBundle) -> View:
    search = found.search
    tables: dict[str, Callable[[], Table]] = {
        "matrices": lambda: matrices_table(found.use.matrices)
    }
    if search is not None:
        tables["shortlists"] = lambda: front_table(search)
    return View(
        f"{found.gallery.items:,} items in {found.bundle.folder}",
        [f"{counted(found.use.arrays, 'array')} hold them; {found.cells_written:,} cells written"],
        found.to_json,
        tables,
    )


@view.register
def _(found: ProgrammedCam) -> View:
    return View(
        f"{found.gallery.items:,} items in {found.bundle.folder}, by the CAM {found.use.cam.name}",
        [f"{found.cells_written:,} cells written"],
        found.to_json,
    )
