"""The totals of an item of each side and of a query, by themselves and in a batch."""

from __future__ import annotations

from collections.abc import Callable

from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import ARITHMETIC
from cimtool.costs.totals import NOTHING, PARTS, Cost, PartShare
from cimtool.report.formats import ENERGIES, NOT_GIVEN, TIMES, coverage, whole
from cimtool.report.table import Column, Content, Table, make_table


def totals(estimate: Estimate) -> dict[str, Cost]:
    """The totals by their headings: an item of each side, and a query if there is a gallery."""
    text, video = estimate.called
    costs = {f"one {text}": estimate.text, f"one {video}": estimate.video}
    if estimate.query is not None:
        costs[f"query x {estimate.gallery:,}"] = estimate.query
    return costs


def of_batch(estimate: Estimate) -> dict[str, Cost]:
    """The totals of one item of a batch, what it shares as its part, by their headings."""
    alone = totals(estimate)
    if estimate.batch == 1:
        return alone
    shared = (found.item for found in estimate.schedules.values())
    return {
        f"{of}, {estimate.batch:,} at once": cost for of, cost in zip(alone, shared, strict=True)
    }


def by_itself(estimate: Estimate) -> str:
    """The clause of tables that are of one item, beside those of a batch."""
    return ", by itself" if estimate.batch > 1 else ""


def total_table(estimate: Estimate) -> Table:
    """The operations, time and energy of an item of each side and a query."""
    costs = totals(estimate)
    rows: dict[str, Callable[[Cost], Content]] = {
        "MACs in arrays": lambda c: c.macs,
        "drive cycles": lambda c: c.drive_cycles,
        "conversions": lambda c: c.conversions,
        "shift-and-adds": lambda c: c.shift_adds,
        "digital multiplications": lambda c: c.digital.multiplications,
        "digital additions": lambda c: c.digital.count("additions"),
        "digital shifts, limits": lambda c: c.digital.count("shifts", "limits"),
        "numbers moved": lambda c: c.digital.total - c.digital.count(*ARITHMETIC),
        "cells written": lambda c: c.cells_written,
        "latency": lambda c: c.latency_ns.cell(TIMES),
        "latency from, to": lambda c: c.latency_ns.range_text(TIMES) or None,
        "energy": lambda c: c.energy_pj.cell(ENERGIES),
        "energy from, to": lambda c: c.energy_pj.range_text(ENERGIES) or None,
        "energy known for": lambda c: f"{coverage(c.coverage)} of operations",
        "from the target's figures": lambda c: f"{coverage(c.own_share)} of the energy",
        "this energy is": lambda c: (
            NOT_GIVEN
            if c.energy_pj.value is None
            else ("a lower bound" if c.energy_pj.lower_bound else "the total")
        ),
    }
    columns = [Column("figure"), *(Column(name, whole) for name in costs)]
    contents = [(name, *map(figure, costs.values())) for name, figure in rows.items()]
    title = f"Totals of one {estimate.called[0]}, one {estimate.called[1]} and a query"
    title += by_itself(estimate)
    return make_table(title, columns, contents, sortable=False)


def part_table(estimate: Estimate) -> Table:
    """The energy of each part, and the time that it is busy; parts may be busy side by side."""
    costs = totals(estimate)
    columns = [Column("part")]
    for name in costs:
        columns += [Column(f"energy,\n{name}", whole), Column(f"time,\n{name}", whole)]
    rows: list[list[Content]] = []
    for part in PARTS:
        shares = [cost.parts.get(part, PartShare()) for cost in costs.values()]
        every = [q for s in shares for q in ((s.energy, ENERGIES), (s.time, TIMES))]
        if any(quantity.value or quantity.missing for quantity, _ in every):
            cells = [None if one == NOTHING else one.cell(units) for one, units in every]
            rows.append([part, *cells])
    title = f"Energy and busy time by part{by_itself(estimate)}"
    made = make_table(title, columns, rows, sortable=False, absent="")
    return made.named("parts", "detail")


def energy_headline(cost: Cost) -> str:
    """The energy with its interval, and its coverage if that is low."""
    return ", ".join(filter(None, (cost.energy_pj.full_text(ENERGIES), cost.caveat())))
