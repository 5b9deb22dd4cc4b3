"""An estimate as text for a terminal and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.totals import Cost
from cimtool.hardware.placement import Floorplan, Placement
from cimtool.report.formats import (
    AREAS,
    ENERGIES,
    NOT_GIVEN,
    SIZES,
    TIMES,
    counted,
    coverage,
    scaled,
    whole,
)
from cimtool.report.page import render_text
from cimtool.report.table import Cell, Column, Content, ItemColumns, Table, item_table, make_table
from cimtool.report.terminal import table_text

PACKAGE = "cimtool.costs"

"""Names and what they are."""


def estimate_text(estimate: Estimate, name: str) -> str:
    """All of an estimate: layers, where they go, totals, what is missing, and Monte Carlo."""
    sampling = montecarlo_table(estimate)
    return render_text(
        PACKAGE,
        "cost.txt",
        name=name,
        estimate=estimate,
        units=AREAS,
        layers=table_text(layer_cost_table(estimate)),
        floorplan=floorplan_text(estimate.floorplan),
        totals=table_text(total_table(estimate)),
        missing=_missing_lines(estimate),
        montecarlo=sampling and table_text(sampling),
        sampling=montecarlo_sentences(estimate),
        assumptions=assumptions(estimate),
    )


def layer_cost_table(estimate: Estimate) -> Table:
    """Each layer: its size, its arrays, and the cost of one product."""
    costs, help_ = estimate.layers, "> marks a lower bound: some of its parts have no figure"
    columns: ItemColumns[Placement] = (
        (Column("layer"), lambda p: p.layer),
        (Column("rows x cols", whole), lambda p: Cell(f"{p.rows} x {p.columns}", p.macs)),
        (Column("arrays", whole), lambda p: p.arrays if p.shares is None else Cell("shared", 0)),
        (Column("used", "{:.1%}".format), lambda p: p.utilisation),
        (Column("MACs", whole), lambda p: p.macs),
        (Column("cycles", whole), lambda p: costs[p.layer].drive_cycles),
        (Column("conversions", whole), lambda p: p.conversions),
        (Column("latency", whole), lambda p: costs[p.layer].latency_ns.cell(TIMES)),
        (Column("energy", whole, help_), lambda p: costs[p.layer].energy_pj.cell(ENERGIES)),
    )
    return item_table("One product of each layer", estimate.placements, columns)


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


def use_facts(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """The cells of its arrays that a program uses, where they are, and their area."""
    stored = [place for place in estimate.placements if place.shares is None]
    cells = sum(place.arrays * place.cells_per_array for place in stored)
    used = sum(place.cells for place in stored) / cells if cells else 0.0
    yield "cells used", f"{used:.1%} of those in its arrays"
    yield from fit_facts(estimate.floorplan)
    yield "area", estimate.area.text(AREAS)


def missing_sentences(query: Cost) -> Iterator[str]:
    """The parts that the energy and the latency of a query leave out."""
    missing: dict[tuple[str, ...], list[str]] = {}
    for name, quantity in (("energy", query.energy_pj), ("latency", query.latency_ns)):
        missing.setdefault(quantity.missing, []).append(name)
    return (f"{' and '.join(of)}: without {', '.join(p)}" for p, of in missing.items() if p)


def totals(estimate: Estimate) -> dict[str, Cost]:
    """The totals by their headings: a text, a video, and a query where there is a gallery."""
    costs = {"one text": estimate.text, "one video": estimate.video}
    if estimate.query is not None:
        costs[f"query x {estimate.gallery:,}"] = estimate.query
    return costs


def total_table(estimate: Estimate) -> Table:
    """The operations, time and energy of a text, a video and a query."""
    costs = totals(estimate)
    rows: dict[str, Callable[[Cost], Content]] = {
        "MACs in arrays": lambda c: c.macs,
        "drive cycles": lambda c: c.drive_cycles,
        "conversions": lambda c: c.conversions,
        "shift-and-adds": lambda c: c.shift_adds,
        "digital multiplications": lambda c: c.digital.multiplications,
        "digital additions": lambda c: c.digital.additions,
        "digital shifts, limits": lambda c: c.digital.shifts + c.digital.limits,
        "cells written": lambda c: c.cells_written,
        "latency": lambda c: c.latency_ns.cell(TIMES),
        "energy": lambda c: c.energy_pj.cell(ENERGIES),
        "energy known for": lambda c: f"{coverage(c.coverage)} of operations",
        "this energy is": _standing,
    }
    columns = [Column(""), *(Column(name, whole) for name in costs)]
    contents = [(name, *map(figure, costs.values())) for name, figure in rows.items()]
    return make_table("Totals of a text, a video and a query", columns, contents, sortable=False)


def _standing(cost: Cost) -> str:
    if cost.energy_pj.value is None:
        return NOT_GIVEN
    return "a lower bound" if cost.energy_pj.lower_bound else "the total"


def _missing_lines(estimate: Estimate) -> list[str]:
    lines = []
    for quantity, name in (("latency_ns", "latency"), ("energy_pj", "energy")):
        costs = [getattr(cost, quantity) for cost in totals(estimate).values()]
        if parts := ", ".join(dict.fromkeys(part for cost in costs for part in cost.missing)):
            lines.append(f"{name}: not given for {parts}; totals are a lower bound (>)")
    reasons: dict[str, list[str]] = {}
    for place in estimate.placements:
        why = estimate.rates.mismatch(place, estimate.settings.of_layer(place.layer))
        if why is not None:
            reasons.setdefault(why, []).append(place.layer)
    return lines + [f"{', '.join(layers)}: {why}" for why, layers in reasons.items()]


def montecarlo_table(estimate: Estimate) -> Table | None:
    """The score of one query, compiled and sampled; None where no query is estimated."""
    score, sampled = estimate.score, estimate.montecarlo
    if score is None or sampled is None:
        return None
    ways, multiplications = (sampled.stored, sampled.redrawn), score_multiplications(score)
    columns = (
        Column("score of one query"),
        Column("compiled", whole),
        Column(f"K = {sampled.samples}, stored", whole, "samples of the items are kept"),
        Column(f"K = {sampled.samples}, redrawn", whole, "samples of the items are drawn again"),
    )
    memory = [_size(one) for one in (estimate.gallery_bytes, *(w.gallery_bytes for w in ways))]
    rows: list[Sequence[Content]] = [
        ("multiplications", multiplications, *(way.multiplications for way in ways)),
        ("normal random numbers", 0, *(way.random_normals for way in ways)),
        ("sigmoids", 0, *(way.sigmoids for way in ways)),
        ("gallery in memory", *memory),
        ("cells written", score.cells_written, *(way.cells_written for way in ways)),
        ("latency", *(one.latency_ns.cell(TIMES) for one in (score, *ways))),
        ("energy", *(one.energy_pj.cell(ENERGIES) for one in (score, *ways))),
    ]
    return make_table("Compiled and sampled", columns, rows, sortable=False)


def score_multiplications(score: Cost) -> int:
    """Multiplications in arrays and digital ones."""
    return score.macs + score.digital.multiplications


def _size(count: int | None) -> Cell | None:
    return None if count is None else Cell(scaled(count, SIZES), count)


def montecarlo_sentences(estimate: Estimate) -> list[str]:
    """The reasons that Monte Carlo does not run in the arrays, one sentence each."""
    score, sampled = estimate.score, estimate.montecarlo
    if score is None or sampled is None:
        return []
    K, stored, redrawn = sampled.samples, sampled.stored, sampled.redrawn
    ratio = stored.multiplications / max(score_multiplications(score), 1)
    lines = [
        f"Monte Carlo, K = {K}: an array adds products before anything is done with them, and each "
        f"of the {K * K} distances of a pair needs a sigmoid before their mean: "
        f"{stored.sigmoids:,} of them a query, digitally",
        f"with stored samples a query draws {stored.random_normals:,} normal numbers, which no "
        f"target here makes, and multiplies {ratio:.3g} times as often as the compiled score; the "
        f"gallery takes {scaled(stored.gallery_bytes, SIZES)} in place of "
        f"{scaled(estimate.gallery_bytes or 0, SIZES)}",
        f"redrawn for each query, it draws {redrawn.random_normals:,}"
        + _rewritten(redrawn.cells_written, sampled.endurance),
        "latency and energy of sampling are of its products, as if they ran in arrays",
    ]
    return lines


def _rewritten(cells: int | None, endurance: float | None) -> str:
    if not cells:
        return ""
    text = f", and in arrays it would write {cells:,} cells each time"
    return text if endurance is None else f"{text}; a cell endures {endurance:.3g} writes"


def assumptions(estimate: Estimate) -> list[str]:
    """Assumptions of the totals, one sentence each."""
    return render_text(PACKAGE, "assumptions.txt", estimate=estimate).splitlines()


def estimate_json(estimate: Estimate, name: str) -> dict[str, Any]:
    """All of an estimate as plain values: ns, pJ and mm2."""
    point, sampled = estimate.rates.point, estimate.montecarlo
    return {
        "bundle": name,
        "target": estimate.target.name,
        "operating_point": None if point is None else point.model_dump(exclude_none=True),
        "gallery": estimate.gallery,
        "layout": estimate.floorplan.to_json(),
        "layers": [
            p.to_json() | {"cost": estimate.layers[p.layer].to_json()} for p in estimate.placements
        ],
        "text": estimate.text.to_json(),
        "video": estimate.video.to_json(),
        "query": None if estimate.query is None else estimate.query.to_json(),
        "area_mm2": estimate.area.to_json(),
        "score": None if estimate.score is None else estimate.score.to_json(),
        "gallery_bytes": estimate.gallery_bytes,
        "montecarlo": None if sampled is None else sampled.to_json(),
        "assumptions": assumptions(estimate),
    }
