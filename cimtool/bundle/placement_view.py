"""The place of a program in its arrays as it is shown: its layers, its chips, and a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cimtool.bundle.compilation import Compilation
from cimtool.bundle.placement_picture import placement_svg
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placements
from cimtool.report.formats import NOT_GIVEN, counted, whole
from cimtool.report.page import render_text
from cimtool.report.result import View, view
from cimtool.report.table import Column, Content, Table, item_table

PACKAGE = "cimtool.bundle"

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


def floorplan_text(plan: Floorplan) -> str:
    """Arrays, macros, cores and chips of a program, a line each for the levels that say more."""
    return render_text(PACKAGE, "floorplan.txt", plan=plan)


def fit_sentence(plan: Floorplan) -> str:
    """The fit of a program: on one chip, on several, or in rounds on one."""
    arrays, on_chip = counted(plan.arrays, "array"), plan.chip.arrays
    if plan.chips is None or on_chip is None:
        return arrays
    if not plan.resident:
        return f"In rounds: {counted(plan.loads, 'load')} of one chip"
    if plan.chips == 1:
        return f"On one chip: {arrays} of {on_chip:,}"
    return f"On {counted(plan.chips, 'chip')} of {counted(on_chip, 'array')}"


def fit_facts(plan: Floorplan) -> Iterator[tuple[str, str]]:
    """The share of chips that is filled, or the loads of one chip; macros and cores."""
    if plan.chips_filled is None or plan.chips is None:
        yield "chips", f"{NOT_GIVEN}: the target does not say how large one is"
    elif plan.resident:
        filled = plan.chips_filled / plan.chips
        yield "chips filled", f"{filled:.1%} ({plan.chips_filled:.4g} of a chip)"
    else:
        yield "a chip holds", f"1/{plan.chips_filled:.4g} of the weights"
        loads = [f"{graph} {count:,}" for graph, count in plan.rounds.items()]
        yield "loads an inference", ", ".join(loads)
    yield "in", f"{counted(plan.macros, 'macro')}, {counted(plan.cores, 'core')}"


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
