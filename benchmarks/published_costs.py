"""Published figures of whole products beside what the cost model gives, for every target.

    python benchmarks/published_costs.py [--targets hermes-pcm-14nm,puma-rram-128]

The first rule that applies gives "here": geometry and cycle time for throughput, the target's other
figures for efficiency and density (as `cimtool targets check` has them), and last reference prices
for one fully used array, its inputs moved in and its sums moved out, without any of its figures of
whole products or parts.

A second table has reference prices beside the published energies of many more chips
(`cimtool/costs/silicon.toml`), each with the interval that all other chips of its kind give.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from cimtool.costs.charges import digital_cost
from cimtool.costs.operations import Operations
from cimtool.costs.prices import Prices
from cimtool.costs.published import compare_published, full_array
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.silicon import (
    CoveredPoint,
    converter_width,
    covered_share,
    error_width,
    leave_one_out,
    measured_width,
)
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.hardware.figures import Figure
from cimtool.hardware.target import Target, load_target, target_names

CORE_OF_HERMES = 10.5
"""TOPS/W of its core alone, one phase (JSSC 2022): the chip adds moves, and scaling by column."""


def by_reference(target: Target, point: str) -> Quantity:
    """Energy in pJ of a MAC of a fully used array and its moves, by reference prices alone."""
    figures = tuple(one for one in target.figures if one.unit in ("1", "GS/s"))
    rates = rates_at(target.model_copy(update={"figures": figures}), point)
    place, settings = full_array(rates)
    total = NOTHING
    for part in rates.energies(place, settings).values():
        total += NOTHING if part is None else part
    return (total + moves(rates, place.rows, place.columns)).times(1 / place.macs)


def moves(rates: Rates, rows: int, columns: int) -> Quantity:
    """Energy in pJ of sending the inputs of a product, and of its sums as they leave."""
    assert rates.point is not None
    sums = rates.point.weight_bits + rates.point.input_bits + (rows - 1).bit_length()
    wires = Operations.of("wires", rows, rates.point.input_bits)
    return digital_cost(wires + Operations.of("wires", columns, sums), rates.prices).energy_pj


def of_core(target: Target, point: str) -> Quantity:
    """Energy in pJ of a MAC of HERMES' chip from its core's, moves and scaling by prices."""
    rates = rates_at(target, point)
    place, _ = full_array(rates)
    scaling = Operations.of("multiplications", place.columns, 8, 8)
    scaling += Operations.of("additions", place.columns, 16)
    around = digital_cost(scaling, rates.prices).energy_pj + moves(rates, place.rows, place.columns)
    return Quantity(2 / CORE_OF_HERMES) + around.times(1 / place.macs)


def of_dirc_rag() -> str:
    """The row of a retrieval chip that no target is of: 8,192 x 512 products at 40 nm, 0.8 V."""
    chip = load_target("isaac-rram-128")
    process = chip.process.model_copy(update={"node": 40.0, "voltage": 0.8})
    prices = Prices(chip.model_copy(update={"process": process}), None)
    work = Operations.of("multiplications", 1, 8, 8) + Operations.of("additions", 1, 25)
    found = digital_cost(work, prices).energy_pj.times(8192 * 512 / 1e6)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    ends = ends_text(found.value, found.low, found.high)
    apart = difference(found.value / 0.956)
    return f"| DIRC-RAG, 0.8 V | 0.956 uJ a query | {ends} | {apart} | digital products alone |"


def rows_of(target: Target) -> Iterator[str]:
    """A line of the table for each published figure of whole products."""
    for one in compare_published(target):
        said = f"| {target.name}, {one.point} | {one.published:g} {one.unit} |"
        if one.computed is not None:
            apart = difference(one.computed / one.published)
            yield f"{said} {one.computed:.4g} | {apart} | {one.why} |"
        elif one.quantity == "efficiency":
            yield f"{said} {efficiency(by_reference(target, one.point), one.published)}"
        else:
            yield f"{said} - | - | {one.why} |"
    for figure in target.figures:
        if figure.quantity == "mac_energy" and figure.at is not None:
            yield mac_row(target, figure, figure.at)
    if target.name == "hermes-pcm-14nm":
        point = target.operating_points[0].name
        found = efficiency(of_core(target, point), 9.76, "its core's 10.5 TOPS/W, moves, scaling")
        yield f"| {target.name}, {point} | 9.76 TOPS/W | {found}"


def mac_row(target: Target, figure: Figure, point: str) -> str:
    energy = by_reference(target, point)
    assert energy.value is not None
    assert energy.low is not None
    assert energy.high is not None
    said = f"| {target.name}, {point} | {figure.value:g} pJ a MAC |"
    ends = ends_text(energy.value, energy.low, energy.high)
    return f"{said} {ends} | {difference(energy.value / figure.value)} | reference prices alone |"


def efficiency(energy: Quantity, published: float, why: str = "reference prices alone") -> str:
    """Cells of a row: TOPS/W of an energy of a MAC with its ends, and the difference."""
    assert energy.value is not None
    assert energy.low is not None
    assert energy.high is not None
    middle, low, high = (2 / end for end in (energy.value, energy.high, energy.low))
    return f"{ends_text(middle, low, high)} | {difference(middle / published)} | {why} |"


def difference(ratio: float) -> str:
    """A ratio to a published figure as a reader has it: a percentage, or times."""
    if not 0.5 < ratio < 1.5:
        return f"{ratio:.2g} times"
    return f"{ratio - 1:+.1%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%")


def digits(value: float) -> str:
    """A number in three digits, without an exponent: `2,780`."""
    return f"{float(f'{value:.3g}'):,g}"


def ends_text(middle: float, low: float, high: float) -> str:
    """A value with its ends."""
    return f"{digits(middle)} ({digits(low)} to {digits(high)})"


def held_row(one: CoveredPoint) -> str:
    """A line of the table of chips: pJ of a product, and published / here with its interval."""
    chip, point, published = one.held.chip, one.held.point, one.held.point.published_pj
    supply = "nominal" if point.supply is None else f"{point.supply:g} V"
    bits = f"{point.input_bits} x {point.weight_bits}"
    bits += "" if point.adc_bits is None else f", {point.adc_bits}"
    found = "inside" if one.inside else "outside"
    what = f"{chip.name} | {chip.node:g} nm, {supply} | {point.rows} x {point.outputs} | {bits}"
    ratio = f"{published / one.held.modelled:.2g} ({one.width.low:.2g} to {one.width.high:.2g})"
    left_out = f", {one.held.left_out}" if one.held.left_out else ""
    return f"| {what} | {published:.3g} | {one.held.modelled:.3g} | {ratio} | {found}{left_out} |"


def held() -> Iterator[str]:
    """The lines of the table of chips by kind, and what follows from them."""
    points = leave_one_out()
    for kind in ("digital", "sram", "resistive"):
        width = error_width(kind)
        yield f"\n{kind}: {width.low:.2g} to {width.high:.2g} times, of {width.chips} chips\n"
        yield "| chip | node, supply | rows x outputs | bits | published | here | ratio | |"
        yield "|---|---|---|---|---|---|---|---|"
        yield from (held_row(one) for one in points if one.held.chip.kind == kind)
    for said, width in (("converters", converter_width()), ("own figures", measured_width())):
        yield f"\n{said}: {width.low:.2g} to {width.high:.2g} times, of {width.chips} chips"
    counted = [one for one in points if not one.held.left_out]
    chips = len({one.held.chip.name for one in counted})
    inside = sum(one.inside for one in counted)
    yield (
        f"\nleave one out: {inside} of {len(counted)} points inside, "
        f"{covered_share(counted):.1%} of {chips} chips"
    )


def published(names: Sequence[str]) -> Iterator[str]:
    """The lines of the table of published figures of targets, and of a retrieval."""
    yield "| target, point | published | here | difference | by |"
    yield "|---|---|---|---|---|"
    for name in names:
        yield from rows_of(load_target(name))
    yield of_dirc_rag()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default=",".join(target_names()))
    asked = parser.parse_args()
    for line in (*published(asked.targets.split(",")), *held()):
        print(line)


if __name__ == "__main__":
    main()
