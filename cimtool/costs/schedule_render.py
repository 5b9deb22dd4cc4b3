"""A batch in a sentence and tables: its time, throughput and energy, and what is held how long."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.schedule_batch import BatchSchedule
from cimtool.report.document import Block, Sentence
from cimtool.report.formats import ENERGIES, NOT_GIVEN, TIMES, counted, coverage, scaled, whole
from cimtool.report.table import Cell, Column, Content, Table, make_table

DIGITS = 4
"""Digits of a rate that are written; items per second are whole numbers from there on."""


def schedule_blocks(estimate: Estimate) -> tuple[Block, ...]:
    """The sentence of a batch, what stays in the arrays, and the tables."""
    said = (batch_sentence(estimate), residents_sentence(estimate))
    tables = (schedule_table(estimate), occupancy_table(estimate))
    return (*(Sentence(one) for one in said if one), *tables)


def kinds(estimate: Estimate) -> dict[str, str]:
    """The names of a batch's items: of each side, and queries."""
    text, video = estimate.called
    return {"text": text, "video": video, "query": "query"}


def rate_text(found: BatchSchedule) -> str:
    """The items per second: `909,100`."""
    value = found.per_second.value
    return NOT_GIVEN if value is None else _rate(value)


def _rate(value: float) -> str:
    return f"{float(f'{value:.{DIGITS}g}'):,.{DIGITS}g}" if value < 1e4 else f"{value:,.0f}"


def rate_range(found: BatchSchedule) -> str:
    """The ends of the items per second: `450,000 to 1,800,000`; empty if they are not known."""
    low, high = found.per_second.low, found.per_second.high
    if low is None or high is None:
        return ""
    return f"{_rate(_outwards(low, math.floor))} to {_rate(_outwards(high, math.ceil))}"


def _outwards(end: float, away: Callable[[float], int]) -> float:
    """An end with two digits, rounded away from what lies between the ends."""
    unit = 10.0 ** (math.floor(math.log10(end)) - 1)
    return away(end / unit) * unit


def batch_sentence(estimate: Estimate) -> str:
    """The time of a batch, its throughput and the part that bounds it; empty if not known."""
    name, found = list(estimate.schedules.items())[-1]
    if found.per_second.value is None or found.latency_ns.value is None:
        return ""
    one = kinds(estimate)[name]
    many = "queries" if name == "query" else f"{one}s"
    said = (
        f"{rate_text(found)} {many} per second ({rate_range(found)}), "
        f"{found.speedup:.3g} times as many as one after another; the {found.bottleneck} limits it"
    )
    if estimate.batch == 1:
        return said
    size = -(-found.batch // found.waves)
    shared = f"; {size:,} share a load" if size > 1 else ""
    return f"{found.batch:,} {many} in {found.makespan_ns.full_text(TIMES)}; {said}{shared}"


def residents_sentence(estimate: Estimate) -> str:
    """The layers that stay on a chip that does not hold all; empty if it does, or none stays."""
    plan = estimate.floorplan
    if not plan.kept:
        return ""
    arrays = counted(plan.arrays - plan.streaming, "array")
    return f"{', '.join(plan.kept)} stay in {arrays}; the others are loaded into {plan.streaming:,}"


def schedule_table(estimate: Estimate) -> Table:
    """The batch of each kind: latency of one, time of all, throughput, energy, bottleneck."""
    found = estimate.schedules
    rows: dict[str, Callable[[BatchSchedule], Content]] = {
        "latency of one": lambda s: s.latency_ns.cell(TIMES),
        f"batch of {estimate.batch:,}": lambda s: s.makespan_ns.cell(TIMES),
        "from, to": lambda s: s.makespan_ns.range_text(TIMES) or None,
        "no schedule is shorter than": lambda s: Cell(scaled(s.bound_ns, TIMES), s.bound_ns),
        "per second": rate_text,
        "per second from, to": lambda s: rate_range(s) or None,
        "items that share a load": lambda s: -(-s.batch // s.waves) if s.shares else None,
        "energy of one": lambda s: s.energy_pj.cell(ENERGIES),
        "energy from, to": lambda s: s.energy_pj.range_text(ENERGIES) or None,
        "bound by": lambda s: s.bottleneck,
    }
    names = kinds(estimate)
    columns = [Column("figure"), *(Column(names[name], whole) for name in found)]
    contents = [(name, *map(figure, found.values())) for name, figure in rows.items()]
    title = f"Schedule of a batch of {estimate.batch:,}"
    return make_table(title, columns, contents, sortable=False).named("schedule")


def occupancy_table(estimate: Estimate) -> Table:
    """Each part of the hardware: the time that an item holds it, and its share of all time."""
    names = kinds(estimate)
    columns = (
        Column("items"),
        Column("part"),
        Column("parts", whole),
        Column("held per item", whole, "by the part that is held longest"),
        Column("held", coverage, "share of the time, batch after batch"),
    )
    rows = [
        (
            names[name],
            one.part,
            one.number,
            Cell(scaled(one.item_ns, TIMES), one.item_ns),
            one.share,
        )
        for name, found in estimate.schedules.items()
        for one in found.occupancy
    ]
    made = make_table("Occupancy of each part", columns, rows, sortable=False)
    return made.named("occupancy", "detail")


def schedule_json(estimate: Estimate) -> dict[str, Any]:
    """The schedules as plain values."""
    return {name: one.to_json() for name, one in estimate.schedules.items()}
