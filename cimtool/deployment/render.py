"""Tables of what was compiled and programmed, and how their results show themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cimtool.costs.memory_use import StoredMatrix
from cimtool.costs.picture import placement_svg
from cimtool.costs.render import fit_sentence
from cimtool.deployment.cams import ProgrammedCam
from cimtool.deployment.compilation import Compilation
from cimtool.deployment.programming import ProgrammedBundle
from cimtool.deployment.shortlists import ShortlistOption, ShortlistSearch
from cimtool.hardware.placement import Placement, floorplan, placements
from cimtool.report.formats import ENERGIES, TIMES, counted, four_digits, percent, whole
from cimtool.report.result import View, view
from cimtool.report.table import Column, Content, Table, item_table

LISTED_STEPS = 16
"""Steps of a layer that are written one by one."""


def converters_text(adc_bits: int | None, steps: Sequence[float | None]) -> str:
    """Bits and step of each slice's conversion; `=` marks a slice that is proved lossless."""
    if adc_bits is None:
        return "lossless"
    if all(step is None for step in steps):
        return f"{adc_bits} bits, lossless"
    set_ = [step for step in steps if step is not None]
    if len(steps) > LISTED_STEPS:
        return f"{adc_bits} bits, {len(steps)} steps from {min(set_):g} to {max(set_):g}"
    text = " ".join("=" if step is None else f"{step:g}" for step in steps)
    return f"{adc_bits} bits, steps {text}"


def tiling_table(layers: Sequence[Placement]) -> Table:
    """Each layer: its matrix, how it is cut, and what its converters do."""
    columns: tuple[tuple[Column, Callable[[Placement], Content]], ...] = (
        (Column("layer"), lambda p: p.layer),
        (Column("rows x cols", str), lambda p: f"{p.rows} x {p.columns}"),
        (Column("weights"), lambda p: f"{p.weight_bits} {p.encoding}"),
        (Column("inputs"), lambda p: f"{p.input_bits} {p.input_encoding}"),
        (Column("groups", whole), lambda p: p.row_groups),
        (Column("slices", whole), lambda p: p.slices),
        (Column("cycles", whole), lambda p: p.cycles),
        (Column("arrays", whole), lambda p: p.arrays),
        (Column("used", "{:.1%}".format), lambda p: p.utilisation),
        (Column("converters"), lambda p: converters_text(p.adc_bits, p.steps)),
    )
    return item_table("Layers", layers, columns)


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
def _(compiled: Compilation) -> View:
    layers = placements(compiled.stages[-1].program, compiled.settings)
    plan = floorplan(layers, compiled.target)
    name = f"{compiled.model.name} on {compiled.target.name}"
    values = {
        "model": compiled.model.name,
        "target": compiled.target.name,
        "settings": compiled.settings.to_json(),
        "layers": [one.to_json() for one in layers],
        "placement": plan.to_json(),
        "notes": list(compiled.notes),
    }
    return View(
        f"{name}, not yet written",
        [fit_sentence(plan), *compiled.notes],
        lambda: values,
        {"layers": lambda: tiling_table(layers)},
        {"placement": lambda: placement_svg(layers, plan, name)},
    )


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
