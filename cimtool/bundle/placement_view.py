"""The placement of a program in words and tables: its layers and its chips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cimtool.hardware.placement import Floorplan, Placement
from cimtool.report.formats import NOT_GIVEN, counted, whole
from cimtool.report.table import Column, Content, Table, item_table

LISTED_STEPS = 16
"""Steps of a layer at most that are written one by one."""


def converters_text(adc_bits: int | None, steps: Sequence[float | None]) -> str:
    """The bits and the step of each slice's conversion; `=` marks a slice proved lossless."""
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
    """A table of the layers: matrix, tiling and converters."""
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


def floorplan_sentences(plan: Floorplan) -> tuple[str, str]:
    """Two sentences: the arrays, macros and cores of a program; its chips, or loads of one chip."""
    sets = f" ({counted(plan.tiles, 'tile')}, {plan.weight_sets} an array)"
    levels = f"{counted(plan.macros, 'macro')} and {counted(plan.cores, 'core')}"
    levels = f"{counted(plan.arrays, 'array')}{sets * (plan.weight_sets > 1)} in {levels}"
    if plan.chips is None or plan.chip.arrays is None or plan.chips_filled is None:
        return levels, "chips: not given (the target does not say how many arrays a chip has)"
    arrays = counted(plan.chip.arrays, "array")
    if plan.resident:
        chips = f"{counted(plan.chips, 'chip')} of {arrays} ({plan.chips_filled:.4g} filled)"
        return levels, f"{chips}; all weights stay where they are"
    rounds = ", ".join(f"{count:,} for the {name}" for name, count in plan.rounds.items())
    into = f" into {counted(plan.streaming, 'array')}" if plan.kept else ""
    return levels, (
        f"1 chip of {arrays} holds 1/{plan.chips_filled:.4g} of the weights: {plan.loads:,} loads"
        f"{into} an inference of all ({rounds})"
    )


def fit_sentence(plan: Floorplan) -> str:
    """A phrase that says if a program fits on one chip, on several, or in rounds on one."""
    arrays, on_chip = counted(plan.arrays, "array"), plan.chip.arrays
    if plan.chips is None or on_chip is None:
        return arrays
    if not plan.resident:
        part = f"{plan.streaming:,} arrays" if plan.kept else "one chip"
        return f"In rounds: {counted(plan.loads, 'load')} of {part}"
    if plan.chips == 1:
        return f"On one chip: {arrays} of {on_chip:,}"
    return f"On {counted(plan.chips, 'chip')} of {counted(on_chip, 'array')}"


def fit_facts(plan: Floorplan) -> Iterator[tuple[str, str]]:
    """Facts: the filled share of the chips, or the loads of one chip; macros and cores."""
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
