"""An estimate as text for a terminal and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from cimtool.costs.estimate import Estimate
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.placement import Layout

Table = Callable[[Sequence[Sequence[str]]], str]
NOT_GIVEN = "not given"
TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns"))
ENERGIES = ((1e12, "J"), (1e9, "mJ"), (1e6, "uJ"), (1e3, "nJ"), (1, "pJ"))


def scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """A value with the largest of `units` that leaves it at 1 or above."""
    size, unit = next((u for u in units if value >= u[0]), units[-1])
    return f"{value / size:.4g} {unit}"


def quantity_text(quantity: Quantity, text: Callable[[float], str]) -> str:
    """A quantity with `>` before a lower bound, or "not given"."""
    if quantity.value is None:
        return NOT_GIVEN
    return f"{'> ' if quantity.lower_bound else ''}{text(quantity.value)}"


def time_text(quantity: Quantity) -> str:
    """A quantity in ns."""
    return quantity_text(quantity, lambda value: scaled(value, TIMES))


def energy_text(quantity: Quantity) -> str:
    """A quantity in pJ."""
    return quantity_text(quantity, lambda value: scaled(value, ENERGIES))


def estimate_text(found: Estimate, name: str, table: Table) -> str:
    """All of an estimate: layers, where they go, totals, what is missing, and Monte Carlo."""
    blocks = [
        _heading(found, name),
        table(_layer_rows(found)),
        "\n".join([*layout_lines(found.layout), _area_line(found)]),
        table(_total_rows(found)),
        "\n".join(_missing_lines(found)),
    ]
    if found.montecarlo is not None:
        blocks.append(table(_montecarlo_rows(found)))
    blocks.append("\n".join(f"* {line}" for line in assumptions(found)))
    return "\n\n".join(blocks)


def _heading(found: Estimate, name: str) -> str:
    point = found.rates.point
    at = "no operating point" if point is None else f'at "{point.name}" ({point.conditions()})'
    return f"{name} on {found.target.name}, {at}"


def _layer_rows(found: Estimate) -> list[tuple[str, ...]]:
    head = ("layer", "rows x cols", "arrays", "used", "MACs", "cycles", "conversions", "latency")
    rows: list[tuple[str, ...]] = [(*head, "energy")]
    for place in found.placements:
        cost = found.layers[place.layer]
        rows.append(
            (
                place.layer,
                f"{place.rows} x {place.columns}",
                f"{place.arrays:,}" if place.shares is None else "shared",
                f"{place.utilisation:.1%}",
                f"{cost.macs:,}",
                f"{cost.drive_cycles:,}",
                f"{cost.conversions:,}",
                time_text(cost.latency),
                energy_text(cost.energy),
            )
        )
    return rows


def layout_lines(plan: Layout) -> list[str]:
    """Arrays, macros, cores and chips of a program, a line each for the levels that say more."""
    chip, sets = plan.chip, plan.weight_sets
    several = f" ({counted(plan.tiles, 'tile')}, {sets} an array)" if sets > 1 else ""
    lines = [
        f"{counted(plan.arrays, 'array')}{several} in {counted(plan.macros, 'macro')} and "
        f"{counted(plan.cores, 'core')}"
    ]
    if plan.chips is None or plan.chips_filled is None:
        lines.append("chips: not given (the target does not say how many arrays a chip has)")
    elif plan.resident:
        lines.append(
            f"{counted(plan.chips, 'chip')} of {counted(chip.arrays or 0, 'array')} "
            f"({plan.chips_filled:.4g} filled); all weights stay where they are"
        )
    else:
        loads = ", ".join(f"{count:,} for the {name}" for name, count in plan.rounds.items())
        lines.append(
            f"1 chip of {counted(chip.arrays or 0, 'array')} holds 1/{plan.chips_filled:.4g} of "
            f"the weights: {plan.loads:,} loads an inference of all ({loads})"
        )
    return lines


def counted(count: int, noun: str) -> str:
    """`1 chip`, `5 chips`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _area_line(found: Estimate) -> str:
    area = quantity_text(found.area, lambda value: f"{value:.4g} mm2")
    if found.area.value is not None and found.area.lower_bound:
        area += f" (a lower bound: without {', '.join(found.area.missing)})"
    return f"area: {area}"


def columns(found: Estimate) -> dict[str, Cost]:
    """The totals by their headings: a text, a video, and a query where there is a gallery."""
    costs = {"one text": found.text, "one video": found.video}
    if found.query is not None:
        costs[f"query x {found.gallery:,}"] = found.query
    return costs


def _total_rows(found: Estimate) -> list[tuple[str, ...]]:
    costs = columns(found)
    rows: tuple[tuple[str, Callable[[Cost], str]], ...] = (
        ("MACs in arrays", lambda c: f"{c.macs:,}"),
        ("drive cycles", lambda c: f"{c.drive_cycles:,}"),
        ("conversions", lambda c: f"{c.conversions:,}"),
        ("shift-and-adds", lambda c: f"{c.shift_adds:,}"),
        ("digital multiplications", lambda c: f"{c.digital.multiplications:,}"),
        ("digital additions", lambda c: f"{c.digital.additions:,}"),
        ("digital shifts, limits", lambda c: f"{c.digital.shifts + c.digital.limits:,}"),
        ("cells written", lambda c: f"{c.cells_written:,}"),
        ("latency", lambda c: time_text(c.latency)),
        ("energy", lambda c: energy_text(c.energy)),
        ("energy known for", lambda c: f"{percent(c.coverage)} of operations"),
        ("this energy is", _standing),
    )
    return [("", *costs), *((name, *map(cell, costs.values())) for name, cell in rows)]


def _standing(cost: Cost) -> str:
    if cost.energy.value is None:
        return NOT_GIVEN
    return "a lower bound" if cost.energy.lower_bound else "the total"


def percent(share: float) -> str:
    """A share in whole percent, 100% only where it is all."""
    return "100%" if share == 1 else f"{min(int(100 * share + 0.5), 99)}%"


def _missing_lines(found: Estimate) -> list[str]:
    lines = []
    for quantity in ("latency", "energy"):
        missing = dict.fromkeys(
            part for cost in columns(found).values() for part in getattr(cost, quantity).missing
        )
        if missing:
            parts = ", ".join(missing)
            lines.append(f"{quantity}: not given for {parts}; totals are a lower bound (>)")
    reasons: dict[str, list[str]] = {}
    for place in found.placements:
        why = found.rates.mismatch(place, found.settings.of_layer(place.layer))
        if why is not None:
            reasons.setdefault(why, []).append(place.layer)
    return lines + [f"{', '.join(layers)}: {why}" for why, layers in reasons.items()]


def _montecarlo_rows(found: Estimate) -> list[tuple[str, ...]]:
    query, sampled = found.query, found.montecarlo
    if query is None or sampled is None:
        return []
    score = query.macs - found.text.macs + query.digital.multiplications
    score -= found.text.digital.multiplications
    ratio = sampled.multiplications / score if score else float("inf")
    return [
        ("score of one query", "compiled", f"Monte Carlo, K = {sampled.samples}", "times"),
        ("multiplications", f"{score:,}", f"{sampled.multiplications:,}", f"{ratio:.3g}"),
        ("normal random numbers", "0", f"{sampled.random_normals:,}", ""),
        ("sigmoids", "0", f"{sampled.sigmoids:,}", ""),
    ]


def assumptions(found: Estimate) -> list[str]:
    """What the totals take for granted, one sentence each."""
    lines = [
        "the arrays of a layer work side by side, layers one after another; an array with several "
        "tiles of a layer takes them in turn",
        "whole-product figures are charged in proportion to the cells used; those of one bit or "
        "cell as often as a layer has them",
        "converters work while the next cycle is read; where they are slower, they set the pace",
    ]
    if not found.layout.resident:
        lines.append("each inference loads its weights anew: no batch shares a load")
    if found.query is not None:
        lines.append("the gallery is encoded already; a query encodes one text and scores it")
    lines += [
        f"{place.layer} drives the cells of {place.shares}"
        for place in found.placements
        if place.shares is not None
    ]
    if found.layout.chips is None and found.target.array.rows is not None:
        lines.append("chips are as large as the program needs")
    lines += [f"not modelled: {text}" for text in found.target.unmodelled]
    unconfirmed = [f.quantity for f in found.target.figures if f.status == "unconfirmed"]
    if unconfirmed:
        lines.append(f"unconfirmed figures: {', '.join(unconfirmed)}")
    return lines


def estimate_json(found: Estimate, name: str) -> dict[str, Any]:
    """All of an estimate as plain values: ns, pJ and mm2."""
    point, sampled = found.rates.point, found.montecarlo
    return {
        "bundle": name,
        "target": found.target.name,
        "operating_point": None if point is None else point.model_dump(exclude_none=True),
        "gallery": found.gallery,
        "layout": found.layout.to_json(),
        "layers": [p.to_json() | {"cost": _cost(found.layers[p.layer])} for p in found.placements],
        "text": _cost(found.text),
        "video": _cost(found.video),
        "query": None if found.query is None else _cost(found.query),
        "area_mm2": asdict(found.area) | {"lower_bound": found.area.lower_bound},
        "montecarlo": None
        if sampled is None
        else {
            "samples": sampled.samples,
            "multiplications": sampled.multiplications,
            "random_normals": sampled.random_normals,
            "sigmoids": sampled.sigmoids,
        },
        "assumptions": assumptions(found),
    }


def _cost(cost: Cost) -> dict[str, Any]:
    quantities = {
        f"{name}_{unit}": asdict(q) | {"lower_bound": q.lower_bound}
        for name, unit, q in (("latency", "ns", cost.latency), ("energy", "pj", cost.energy))
    }
    counts = ("macs", "drive_cycles", "conversions", "shift_adds", "cells_written", "operations")
    return {
        **{name: getattr(cost, name) for name in counts},
        "digital": asdict(cost.digital),
        **quantities,
        "coverage": cost.coverage,
    }
