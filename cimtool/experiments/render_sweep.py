"""A sweep for a reader: the choice, a table of the points, and pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cimtool.base.grids import Value, value_text
from cimtool.base.intervals import Change
from cimtool.base.modality_names import sizes_text, way_names
from cimtool.costs.totals import WELL_COVERED, Quantity, coverage_text
from cimtool.experiments.budgets import (
    DRIFT,
    ENERGY,
    OBJECTIVE,
    SHORT_COSTS,
    WORK,
    Choice,
    drifting,
    held_text,
    incomparable,
    same_scores,
    twins,
)
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.dies import Yield, difference_sentences, when_read
from cimtool.experiments.engine import FEW_FAILED, key_column, values_text
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.point_cost import OF_CHOICES, quantity_of
from cimtool.experiments.sweep import Sweep
from cimtool.hardware.noise.model import read_after
from cimtool.reference.measures import RANKINGS
from cimtool.reference.queries import led
from cimtool.report.charts import ParetoPoint, Ranges, pareto, ranges
from cimtool.report.document import (
    Document,
    FactList,
    Picture,
    Section,
    Sentence,
    Verbatim,
    noted,
)
from cimtool.report.formats import (
    ENERGIES,
    SIZES,
    TIMES,
    NumberFormat,
    Units,
    counted,
    coverage,
    four_digits,
    percent,
    scaled,
    unit_of,
    whole,
)
from cimtool.report.svg import SERIES
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, make_table

WIDE = 20.0
"""A cost or drift that spans more than this factor is drawn on a logarithmic axis."""

FEW_ROWS = 4
"""Points that the first screen has."""

MOST = 12
"""Most pictures of yields; the table still has all points."""


def document(sweep: Sweep) -> Document:
    """The choice of a sweep, its yields and fronts, all points, and the grid and the data."""
    budget = () if sweep.chosen is None else tuple(budget_blocks(sweep, sweep.chosen))
    failed, yields = failures(sweep), yield_pictures(sweep)
    drawn = [
        Picture(cost if i == 0 else f"{cost} {i}", picture, _caption(sweep, cost, group, len(of)))
        for cost in sweep.costs
        for of in [drifting(sweep.outcomes, cost, sweep.units) or [[]]]
        for i, group in enumerate(of)
        for picture in [_picture(sweep, cost, group)]
    ]
    return Document(
        f"Sweep of {sweep.model}",
        (
            *sweep.remarks.blocks(sweep.verdict),
            *budget,
            *noted(failed, FEW_FAILED),
            *([Section("Yield", tuple(yields))] if yields else []),
            Section("Drift and what it costs", (*drawn, points_table(sweep))),
            Section("What was swept", (FactList(tuple(_swept(sweep)), "detail"),)),
        ),
        sweep.to_json,
    )


def _caption(sweep: Sweep, cost: str, shown: Sequence[int], groups: int) -> str:
    """The caption of a picture, with the number of points that are not in it."""
    done = len(sweep.points) - sweep.failed
    said = f"Noise-free centred logit RMSE against {sweep.costs[cost]}; both are better when lower."
    if groups > 1:
        units = sweep.units[shown[0]]
        return (
            f"{said} Only points on {units} arrays: those of other hardware are not the same thing."
        )
    if not (left_out := done - len(shown)):
        return said
    samples = ", samples take no part in it, or their score is no logit" * (len(sweep.costs) > 3)
    return (
        f"{said} {left_out} of {done} points are not here: their targets give no figures for it, "
        f"or for fewer of its parts{samples}."
    )


def _swept(sweep: Sweep) -> Iterator[tuple[str, str]]:
    """The points, the data, the grid and the files of a sweep."""
    done = len(sweep.points) - sweep.failed
    yield "points", f"{len(sweep.points)}, {done} done, {sweep.failed} failed"
    yield "pairs", f"{sizes_of(sweep)} of {sweep.data['file']}"
    yield "drift is measured against", sweep.reference
    yield "a query is priced among", counted(sweep.data["gallery"], "item")
    yield "target", ", ".join(dict.fromkeys(point.base for point in sweep.points))
    yield "grid", "; ".join(map(str, sweep.grid))
    yield "settings of all points", ", ".join(_shared_settings(sweep))
    yield from ((Path(name).name, f"SHA-256 {digest}") for name, digest in sweep.files)
    if sweep.dies is not None:
        yield "dies per point", str(sweep.dies.trials)


def _shared_settings(sweep: Sweep) -> list[str]:
    """The settings that all compiled points have in common."""
    settings = [one.build.settings.to_json() for one in sweep.points if one.build is not None]
    return [
        f"{name}={value_text(value)}"
        for name, value in (settings[0] if settings else {}).items()
        if value not in (None, []) and all(other[name] == value for other in settings)
    ]


def sizes_of(found: Sweep) -> str:
    """The numbers of items of both sides that the points are measured on."""
    data = found.data
    return sizes_text((data["texts"], data["videos"]), data["modalities"], "x")


def failures(found: Sweep) -> list[str]:
    """A line for each point that failed."""
    errors = (outcome.error for outcome in found.outcomes)
    return [f"point {index} failed: {error}" for index, error in enumerate(errors) if error]


def _unlike_bases(found: Sweep) -> list[str]:
    """The note on energies that rest on unlike figures and prices; none if all rest on the same."""
    done = [outcome for outcome in found.outcomes if outcome.error is None]
    bases = dict.fromkeys(outcome.cost["energy_basis"] for outcome in done)
    if len(bases) < 2:
        return []
    told = "; ".join(basis or "nothing" for basis in bases)
    return [
        f"energies are compared only where they rest on the same: {told} (a target's figures are "
        "for its own settings, those of an operating point for its adc_bits)"
    ]


def notes_of_points(found: Sweep) -> list[str]:
    """Notes below the table: equal points, incomparable energies, yields, corners, warnings."""
    notes = [
        f"points {', '.join(map(str, group))} give the same scores"
        for group in same_scores(found.outcomes)
    ]
    if incomparable(found.outcomes, found.units):
        notes.append(
            "energies in brackets cannot be compared with the others: more of their parts have no "
            "price"
        )
    if found.sampled:
        notes.append(
            "points with samples are Monte Carlo of the trained model, in float, with samples of "
            "the items stored: their energy and latency are of the query's encoding, of the "
            "products of samples, and of random numbers and sigmoids by reference prices"
        )
    dies = found.dies
    if dies is not None and any(found.yields):
        notes.append(
            f"yield: the share of {counted(dies.trials, 'die')} of seed {dies.seed} with "
            f"{held_text(found.limits)} against {found.reference}, each by its own figure on "
            f"{sizes_of(found)}; its interval (95%, Clopper and Pearson) "
            "is over dies; on other pairs dies in doubt, whose own interval over queries "
            "holds a limit, may fall on its other side"
        )
        notes += difference_sentences(found.yield_differences)
    noises = [one.build.target.noise for one in found.points if one.build is not None]
    corners = (
        f"corner {name}: {corner.text}"
        for name in ([] if dies is None else dies.corners)
        for noise in noises
        if noise is not None and (corner := noise.corners.get(name or "")) is not None
    )
    notes += dict.fromkeys(corners)
    notes += found.remarks.notes
    # Each warning once, with the points that have it.
    points_of: dict[str, list[str]] = {}
    for index, outcome in enumerate(found.outcomes):
        for warning in outcome.warnings:
            points_of.setdefault(warning, []).append(str(index))
    return notes + [
        note
        if len(of) == len(found.outcomes)
        else f"{note} (point{'s' * (len(of) > 1)} {', '.join(of)})"
        for note, of in points_of.items()
    ]


def budget_blocks(found: Sweep, choice: Choice) -> Iterator[Sentence]:
    """The cheapest point within the budget, the cost that decided, and the point's command."""
    yield from map(Sentence, _budget_sentences(found, choice))
    if choice.command:
        yield Verbatim(f"next: {choice.command}")


def _budget_sentences(found: Sweep, choice: Choice) -> list[str]:
    limits = choice.budget.text
    if found.remarks.broken_reference:
        return [f"no point is within {limits}: the float score is BROKEN itself"]
    if not choice.within:
        known = [(one.kept, -index, one) for index, of in enumerate(found.yields) for one in of]
        if not known:
            return [f"no point is within {limits}"]
        _, index, best = max(known, key=lambda one: one[:2])
        return [
            f"no point is within {limits}",
            f"the highest yield is that of point {-index}: {best.text}",
        ]
    within = f"{counted(choice.within, 'point')} within {limits}"
    if choice.budget.min_yield is None and any(outcome.dies for outcome in found.outcomes):
        within += ", the median die too"
    if choice.index is None or choice.cost is None:
        return [f"{within}: none is named, because no cost can be compared over all of them"]
    chosen = found.outcomes[choice.index]
    called, price = found.costs[choice.cost], cost_text(chosen.cost, choice.cost)
    if choice.cost == OBJECTIVE and found.objective is not None:
        called, price = found.objective.text, _objective_text(chosen.cost, found.objective)
    if choice.cost == ENERGY:
        known_of = chosen.cost["energy_coverage"]
        if known_of is not None and known_of < WELL_COVERED:
            price += f", {coverage_text(known_of)}"
    values = values_text(found.points[choice.index].named)
    lines = [f"cheapest of {within}: point {choice.index} ({values}), by {called}: {price}"]
    for name, most in choice.budget.limits.items():
        ends = chosen.intervals.get(name)
        of = "" if ends is None else f" ({ends[0]:.4g} to {ends[1]:.4g})"
        lines.append(f"its {name} is {chosen.metrics[name]:.4g}{of}; the limit is {most:g}")
    return [*lines, *(f"its yield is {one.text}" for one in found.yields[choice.index])]


def _objective_text(cost: Mapping[str, Any], objective: CostObjective) -> str:
    """The costs of an objective, each with its interval or a count."""
    keys = [OF_CHOICES[name] for name in objective.weights]
    texts = [cost_text(cost, key) for key in keys]
    if len(texts) == 1:
        return texts[0]
    names = zip(objective.weights, texts, strict=True)
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in names)


@dataclass(frozen=True)
class PointLine:
    """A row of the table: a point, or a score computed without hardware, which has no cost."""

    label: Content
    outcome: Outcome
    front: str | None = None
    named: Mapping[str, Value] = field(default_factory=dict)
    apart: bool = False
    yields: Mapping[str, Yield] = field(default_factory=dict)
    style: str = ""


PointContent = Callable[[PointLine], Content]
PointColumn = tuple[Column, PointContent]
"""A column, and its content for a row."""


def points_table(found: Sweep) -> Table:
    """All points, also failed ones, and scores without hardware; points on a front are bold."""
    same, fronts = twins(found.outcomes), found.fronts
    apart = incomparable(found.outcomes, found.units)
    lines = []
    for index, point, outcome in found.numbered():
        front = ", ".join(SHORT_COSTS[cost] for cost, best in fronts.items() if index in best)
        lines.append(
            PointLine(
                index,
                outcome,
                f"as point {same[index]}" if index in same else front,
                point.named,
                index in apart,
                {one.when: one for one in found.yields[index]},
                "result" if front and index not in same else "",
            )
        )
    for name, metrics in found.baselines.items():
        intervals = found.baseline_intervals.get(name, {})
        outcome = Outcome(metrics=metrics, intervals=intervals)
        lines.append(PointLine(Cell(name, math.nan), outcome))
    columns, contents = zip(*_columns(found), strict=True)
    costs = ", ".join(found.costs.values())
    front = f"front: unbeaten in centred RMSE without noise and {costs}"
    points = counted(len(found.points), "point")
    made = make_table(
        f"{points} on {sizes_of(found)} of {found.data['file']}, against the {found.reference} "
        "score",
        columns,
        [[content(line) for content in contents] for line in lines],
        [line.style for line in lines],
        [*_unlike_bases(found), front, *notes_of_points(found)],
        absent="",
    )
    return made.named("points", "verdict").keeping(_leading(found, lines))


def _leading(found: Sweep, lines: Sequence[PointLine]) -> Iterator[bool]:
    """True for the chosen point, those within the budget, of a front, and then the first.

    FEW_ROWS in all.
    """
    chosen = None if found.chosen is None else found.chosen.index
    kept = {
        index
        for index, _, outcome in found.numbered()
        if found.chosen is not None and found.chosen.budget.kept_by(outcome)
    }
    order = sorted(
        range(len(lines)),
        key=lambda i: (lines[i].label != chosen, lines[i].label not in kept, not lines[i].style, i),
    )
    return (index in order[:FEW_ROWS] for index in range(len(lines)))


def _columns(found: Sweep) -> Iterator[PointColumn]:
    against, share = found.reference, "{:.2%}".format
    more = partial(Column, essential=False)
    done = [one for one in found.outcomes if one.error is None]
    lead, *others = [one for one in led(found.by_class) if one.name in ("r1", "map")]
    leads = [lead, *others[: found.by_class]]
    failed = Cell("failed", math.nan, style="bad")

    def value(name: str) -> PointContent:
        def content(line: PointLine) -> Content:
            own = line.named.get(name)
            return value_text(own) if isinstance(own, str | bool) else own

        return content

    def metric(name: str) -> PointContent:
        return lambda line: line.outcome.metrics.get(name)

    def measured(name: str) -> PointContent:
        return lambda line: line.outcome.cell(name, percent)

    def of_dies(time: str, name: str, form: NumberFormat) -> PointContent:
        def content(line: PointLine) -> Content:
            for one in line.outcome.dies:
                if when_read(one) == time and name in one:
                    ends = sorted((one[name]["best"], one[name]["worst"]))
                    return interval_cell(Change(one[name]["median"], *ends), form)
            return None

        return content

    def kept(time: str) -> PointContent:
        return lambda line: (
            interval_cell(line.yields[time].share, percent) if time in line.yields else None
        )

    def doubt(time: str) -> PointContent:
        return lambda line: line.yields[time].in_doubt if time in line.yields else None

    def cost(name: str) -> PointContent:
        def content(line: PointLine) -> Content:
            if not line.outcome.cost:
                return None
            amount: float | None = line.outcome.cost[name]
            if name == "gallery_bytes" and amount is not None:
                return Cell(scaled(amount, SIZES), amount)
            if name not in AMOUNTS:
                return amount
            quantity, units = _quantity(line.outcome.cost, name)
            cell = quantity.cell(units)
            return replace(cell, text=f"({cell.text})") if name == ENERGY and line.apart else cell

        return content

    help_ = "the number of the point in results.json, or a score that no hardware touched"
    yield Column("point", whole, help_), lambda line: line.label
    help_ = "the costs for which no other point beats it, or the first of points that are the same"
    yield Column("front", help=help_), lambda line: line.front
    for key in found.grid:
        yield key_column(key), value(key.name)
    help_ = f"of the logit from {against}, without each query's mean difference, which changes no "
    help_ += "rank; the worse of both directions"
    drift = metric(DRIFT)
    yield (
        Column("centred\nRMSE", four_digits, help_),
        lambda line: drift(line) if line.outcome.error is None else failed,
    )
    help_ = f"root mean square difference of the logit from {against}"
    yield more("RMSE", four_digits, help_), metric("logit_rmse")
    help_ = "queries whose best item is another one, the worse of both directions"
    yield more("top-1\nloss", share, help_), metric("top1_agreement_loss")
    for way, said in way_names(found.data["modalities"]).items():
        heading = f"{lead.label}, %\n{said}"
        yield more(heading, percent, f"{lead.help}; 95% interval"), measured(lead.keys[way])
    for one in leads:
        help_ = f"what is lost of {one.label} against {against}, the worse direction"
        yield Column(f"{one.label}\nloss", share, help_, essential=one is lead), metric(one.loss)
    labels = {one.loss: f"{one.label} loss" for one in RANKINGS}
    labels |= {"centred_rmse": "centred RMSE", "logit_rmse": "RMSE"}
    shares = {one.loss for one in RANKINGS if one.share} | {"top1_agreement_loss"}
    help_ = "the same of dies that are read after that time; 5th and 95th percentile of them"
    for time in dict.fromkeys(when_read(die) for one in done for die in one.dies):
        for name in dict.fromkeys([lead.loss, *found.limits]):
            form: NumberFormat = share if name in shares else four_digits
            heading = f"{labels.get(name, 'top-1 loss')},\nmedian die, {time}"
            first = name == lead.loss and not found.yield_times
            yield Column(heading, form, help_, essential=first), of_dies(time, name, form)
    for time in found.yield_times:
        help_ = "dies within the budget; 95% interval"
        yield Column(f"yield, %,\n{time}", percent, help_), kept(time)
        help_ = "dies whose interval over queries holds a limit"
        yield more("dies\nin doubt", whole, help_), doubt(time)
    if found.objective is not None:
        help_ = f"{found.objective.text}, shares of what the first point costs"
        yield Column("objective", four_digits, help_), cost(OBJECTIVE)
    priced = any(one.cost[ENERGY] is not None for one in done)
    help_ = "arrays of the target that hold the projectors"
    yield Column("arrays", whole, help_, essential=not priced), cost("arrays")
    help_ = "conversions of one query, encoded and scored"
    yield Column("conversions", whole, help_, essential=not priced), cost("conversions")
    help_ = f"of one query among {found.data['gallery']:,} items; > is a lower bound: parts have "
    help_ += "no price; in brackets what cannot be "
    help_ += "compared with the others, for more of its parts have none"
    yield Column("energy", whole, help_, essential=priced), cost(ENERGY)
    if len({one.cost["energy_coverage"] for one in done} - {None}) > 1:
        help_ = "operations of a query whose energy is known"
        yield more("of it known", coverage, help_), cost("energy_coverage")
    yield more("latency", whole, "of one query; > is a lower bound"), cost("latency_ns")
    if WORK not in found.costs:
        return
    help_ = "of the score of one query, in arrays and digital"
    yield more("multiplications", whole, help_), cost(WORK)
    if found.sampled:
        yield more("sigmoids", whole, "of the score of one query"), cost("sigmoids")
        help_ = "random numbers that one query draws"
        yield more("normals", whole, help_), cost("random_normals")
    help_ = "memory of the items' features or samples"
    yield more("gallery", whole, help_), cost("gallery_bytes")


AMOUNTS = {
    "energy_pj": ("energy", ENERGIES),
    "encoding_energy_pj": ("encoding_energy", ENERGIES),
    "latency_ns": ("latency", TIMES),
}
"""Costs that may be unknown or lower bounds: their names, and the units to show them in."""


def _quantity(cost: Mapping[str, Any], name: str) -> tuple[Quantity, Units]:
    called, units = AMOUNTS[name]
    return quantity_of(cost, called), units


def cost_text(cost: Mapping[str, Any], name: str) -> str:
    """One cost of a point with its unit and interval, `>` before a lower bound, or "not given"."""
    if name in AMOUNTS:
        quantity, units = _quantity(cost, name)
        return quantity.full_text(units)
    return f"{cost[name]:.4g}" if name == OBJECTIVE else f"{cost[name]:,}"


def _picture(sweep: Sweep, cost: str, shown: Sequence[int]) -> str:
    best = set(sweep.fronts[cost])
    name = sweep.costs[cost]
    title, size = name, 1.0
    if cost == ENERGY and shown:
        size, unit = unit_of(max(sweep.outcomes[index].cost[cost] for index in shown), ENERGIES)
        title = f"{title} ({unit})"
    candidates = [
        ParetoPoint(
            f"point {index}",
            sweep.outcomes[index].cost[cost] / size,
            sweep.outcomes[index].metrics[DRIFT],
            index in best,
            f"{values_text(sweep.points[index].named)}; "
            f"{cost_text(sweep.outcomes[index].cost, cost)}",
        )
        for index in shown
    ]
    label = f"centred logit RMSE against {name} of {len(shown)} points"
    logs = (_is_wide([one.x for one in candidates]), _is_wide([one.y for one in candidates]))
    return pareto(candidates, title, "centred logit RMSE", label, *logs)


def _is_wide(values: list[float]) -> bool:
    return bool(values) and 0 < WIDE * min(values) < max(values)


def yield_pictures(sweep: Sweep) -> list[Picture]:
    """Pictures of the yield of all points with their intervals, each with its caption.

    The key with the most values is on the axis. The next key with several values gives the lines
    (SERIES per picture). Each combination of the other keys has a picture.
    """
    along, *rest = [key.name for key in sorted(sweep.grid, key=lambda key: -len(key.values))]
    several = [key.name for key in sweep.grid if len(key.values) > 1 and key.name != along]
    line_key = next((name for name in rest if name in several), None)
    others = [name for name in rest if name != line_key]
    known: dict[str, dict[tuple[Value | None, ...], Change]] = {}
    for point, yields in zip(sweep.points, sweep.yields, strict=True):
        place = tuple(map(point.named.get, (along, line_key or "", *others)))
        for one in yields:
            known.setdefault(read_after(one.time, one.corner), {})[place] = one.share

    def pictures() -> Iterator[tuple[str, str]]:
        for time, of_time in known.items():
            places = _in_order(dict.fromkeys(place[0] for place in of_time))
            for elsewhere in dict.fromkeys(place[2:] for place in of_time):
                lines = list(dict.fromkeys(at[1] for at in of_time if at[2:] == elsewhere))
                where = [f"{k}={_text(v)}" for k, v in zip(others, elsewhere, strict=True)]
                fixed = f" at {', '.join(where)}" if where else ""
                held = f"dies with {held_text(sweep.limits)}, read {time}"
                for few in (lines[i : i + SERIES] for i in range(0, len(lines), SERIES)):
                    drawn = [
                        Ranges(
                            "" if line_key is None else f"{line_key}={_text(line)}",
                            [of_time.get((place, line, *elsewhere)) for place in places],
                        )
                        for line in few
                    ]
                    spoken = "; ".join(
                        f"{_text(place)}: {100 * one.value:.0f}% "
                        f"({100 * one.low:.0f} to {100 * one.high:.0f})"
                        for line in drawn
                        for place, one in zip(places, line.values, strict=True)
                        if one is not None
                    )
                    label = f"Share of {held}, against {along}{fixed}: {spoken}"
                    chart = ranges(drawn, [_text(one) for one in places], along, "yield", label)
                    yield chart, f"Share of {held}{fixed}, with its 95% interval over dies."

    drawn = itertools.islice(pictures(), MOST)
    return [Picture(f"yield {i}", *one) for i, one in enumerate(drawn)]


def _in_order(values: Mapping[Value | None, None]) -> list[Value | None]:
    """Numbers in ascending order; in the grid's order if there are words among them."""
    numbers = [one for one in values if isinstance(one, int | float)]
    return list(values) if len(numbers) < len(values) else [*sorted(numbers)]


def _text(value: Value | None) -> str:
    return "-" if value is None else value_text(value)
