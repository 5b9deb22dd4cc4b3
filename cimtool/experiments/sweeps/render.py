"""A sweep as text for a terminal, and its points as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cimtool.base.grids import Value, value_text
from cimtool.costs.totals import WELL_COVERED, Quantity, coverage_text
from cimtool.experiments.sweeps.choice import (
    DRIFT,
    ENERGY,
    SCORE_COSTS,
    SHORT_COSTS,
    WORK,
    Choice,
    held_text,
    incomparable,
    limits_text,
    same_scores,
    twins,
)
from cimtool.experiments.sweeps.dies import Yield, when_read
from cimtool.experiments.sweeps.evaluator import Outcome
from cimtool.experiments.sweeps.results import Sweep
from cimtool.experiments.sweeps.yield_differences import difference_sentences
from cimtool.reference.bootstrap import Change
from cimtool.reference.measures import RANKINGS, RankingMetric
from cimtool.reference.modality_names import sizes_text, way_names
from cimtool.reference.queries import led
from cimtool.report.formats import (
    ENERGIES,
    SIZES,
    TIMES,
    NumberFormat,
    counted,
    coverage,
    four_digits,
    percent,
    scaled,
    whole,
)
from cimtool.report.page import render_text
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, make_table
from cimtool.report.terminal import table_text


def sweep_text(found: Sweep) -> str:
    """All points in a table, the counts, what is cheapest within the budget, what was written."""
    points = points_table(found)
    return render_text(
        "cimtool.experiments.sweeps",
        "sweep.txt",
        found=found,
        table=table_text(points),
        notes=points.footnotes,
        costs=found.costs.values(),
        failures=failures(found),
        sizes=sizes_of(found),
        budget=[] if found.chosen is None else budget_lines(found, found.chosen),
    )


def sizes_of(found: Sweep) -> str:
    """The items of both sides that the points are measured on."""
    data = found.data
    return sizes_text((data["texts"], data["videos"]), data["modalities"], "x")


def failures(found: Sweep) -> list[str]:
    """A line for each point that failed."""
    errors = (outcome.error for outcome in found.outcomes)
    return [f"point {index} failed: {error}" for index, error in enumerate(errors) if error]


def notes_of_points(found: Sweep) -> list[str]:
    """Notes below the table: equal points, energies apart, warnings of points."""
    notes = [
        f"points {', '.join(map(str, group))} give the same scores"
        for group in same_scores(found.outcomes)
    ]
    if incomparable(found.outcomes, found.units):
        notes.append(
            "energies in brackets cannot be compared with the others: more of their parts have no "
            "price"
        )
    bases = dict.fromkeys(
        outcome.cost["energy_basis"] for outcome in found.outcomes if outcome.error is None
    )
    if len(bases) > 1:
        notes.append(
            "energies are compared only where they rest on the same: "
            + "; ".join(basis or "nothing" for basis in bases)
        )
    if found.sampled:
        notes.append(
            "points with samples are Monte Carlo of the trained model, in float, with samples of "
            "the items stored: their energy and latency are of the query's encoding, of the "
            "products of samples, and of random numbers and sigmoids by reference prices"
        )
    notes += [*yield_notes(found), *_corner_notes(found)]
    # Each warning once, with the points that have it.
    points_of: dict[str, list[str]] = {}
    for index, outcome in enumerate(found.outcomes):
        for warning in outcome.warnings:
            points_of.setdefault(warning, []).append(str(index))
    many = len(found.outcomes)
    notes += found.remarks.notes
    return notes + [
        note if len(of) == many else f"{note} (point{'s' * (len(of) > 1)} {', '.join(of)})"
        for note, of in points_of.items()
    ]


def yield_notes(found: Sweep) -> list[str]:
    """Sentences on what the yields are of and which differ, as soon as any point has one."""
    dies = found.dies
    if dies is None or not any(found.yields):
        return []
    return [
        f"yield: the share of {counted(dies.trials, 'die')} of seed {dies.seed} with "
        f"{held_text(found.limits)} against {found.reference}, each by its own figure on "
        f"{sizes_of(found)}; its interval (95%, Clopper and Pearson) "
        "is over dies; on other pairs dies in doubt, whose own interval over queries "
        "holds a limit, may fall on its other side",
        *difference_sentences(found.yield_differences),
    ]


def _corner_notes(found: Sweep) -> list[str]:
    """Conditions, status and source of each corner that was asked for."""
    asked = () if found.dies is None else found.dies.corners
    noises = [one.build.target.noise for one in found.points if one.build is not None]
    texts = (
        f"corner {name}: {corner.text}"
        for name in asked
        for noise in noises
        if noise is not None and (corner := noise.corners.get(name or "")) is not None
    )
    return list(dict.fromkeys(texts))


def budget_lines(found: Sweep, choice: Choice) -> list[str]:
    """The cheapest point within the budget, the cost that it is cheapest by, and its command."""
    limits = limits_text(choice.budget, choice.min_yield)
    if found.remarks.broken_reference:
        return [f"no point is within {limits}: the float score is BROKEN itself"]
    if not choice.within:
        return [f"no point is within {limits}", *_highest_yield(found)]
    within = f"{counted(choice.within, 'point')} within {limits}"
    if choice.min_yield is None and any(outcome.dies for outcome in found.outcomes):
        within += ", the median die too"
    if choice.index is None or choice.cost is None:
        return [f"{within}: none is named, for no cost can be compared over all of them"]
    best = found.outcomes[choice.index]
    lines = [
        f"cheapest of {within}: point {choice.index} ({values_text(found, choice.index)}), by "
        f"{SCORE_COSTS[choice.cost]}: {headline(best.cost, choice.cost)}"
    ]
    lines += [
        f"its {_metric_text(best, name)}; the limit is {m:g}" for name, m in choice.budget.items()
    ]
    lines += [f"its yield is {one.text}" for one in found.yields[choice.index]]
    return [*lines, f"next: {choice.command}"] if choice.command else lines


def _highest_yield(found: Sweep) -> list[str]:
    """The highest yield of all points, in a sentence; nothing without any."""
    known = [(one.kept, index) for index, yields in enumerate(found.yields) for one in yields]
    if not known:
        return []
    most, index = max(known, key=lambda pair: (pair[0], -pair[1]))
    best = next(one for one in found.yields[index] if one.kept == most)
    return [f"the highest yield is that of point {index}: {best.text}"]


def _metric_text(outcome: Outcome, name: str) -> str:
    """A metric of a point with its interval: `r1_loss is 0.004 (-0.002 to 0.011)`."""
    said = f"{name} is {outcome.metrics[name]:.4g}"
    if name not in outcome.intervals:
        return said
    low, high = outcome.intervals[name]
    return f"{said} ({low:.4g} to {high:.4g})"


def values_text(found: Sweep, index: int) -> str:
    """The values of a point: `weight_bits=6, target=ideal`."""
    named = found.points[index].named
    return ", ".join(f"{name}={value_text(value)}" for name, value in named.items())


def points_table(found: Sweep) -> Table:
    """All points, those on a front in bold, and scores that no hardware touched; failed say so."""
    done = [one for one in found.outcomes if one.error is None]
    times = list(dict.fromkeys(when_read(die) for one in done for die in one.dies))
    coverages = len({one.cost["energy_coverage"] for one in done} - {None}) > 1
    same, fronts = twins(found.outcomes), _front_texts(found)
    apart = incomparable(found.outcomes, found.units)
    columns = _columns(found, times, coverages)
    rows = []
    for index, point, outcome in found.numbered():
        named = (point.named.get(key.name) for key in found.grid)
        values = (value_text(value) if _is_word(value) else value for value in named)
        cells: list[Content] = [index, fronts[index], *values]
        if outcome.error is None:
            yields = {one.when: one for one in found.yields[index]}
            cells += _figures(found, outcome, times, coverages, index in apart, yields)
        else:
            cells.append(Cell("failed", math.nan, style="bad"))
        rows.append([*cells, *[None] * (len(columns) - len(cells))])
    styles = ["result" if text and index not in same else "" for index, text in enumerate(fronts)]
    for name, metrics in found.baselines.items():
        intervals = found.baseline_intervals.get(name, {})
        cells = [Cell(name, math.nan), None, *[None] * len(found.grid)]
        cells += _retrieval(found, metrics, intervals)
        rows.append([*cells, *[None] * (len(columns) - len(cells))])
    return make_table(
        counted(len(found.points), "point"),
        columns,
        rows,
        [*styles, *[""] * len(found.baselines)],
        notes_of_points(found),
        absent="",
    )


def _columns(found: Sweep, times: Sequence[str], coverages: bool) -> list[Column]:
    against, share = found.reference, "{:.2%}".format
    lead, *others = _led(found)
    front = "the costs for which no other point beats it, or the first of points that are the same"
    energy = (
        "of one query; > is a lower bound: parts have no price; in brackets what cannot be "
        "compared with the others, for more of its parts have none"
    )
    top1 = "queries whose best item is another one, the worse of both directions"
    return [
        Column(
            "point",
            whole,
            "the number of the point in results.json, or a score that no hardware touched",
        ),
        Column("front", help=front),  # in sight where the table is wider than the screen
        *(Column(key.name, None if any(map(_is_word, key.values)) else str) for key in found.grid),
        Column(
            "centred RMSE",
            four_digits,
            f"of the logit from {against}, without each query's mean difference, which changes no "
            "rank; the worse of both directions",
        ),
        Column("RMSE", four_digits, f"root mean square difference of the logit from {against}"),
        Column("top-1 loss", share, top1),
        *(
            Column(f"{lead.label}, %\n{way}", percent, f"{lead.help}; 95% interval")
            for way in way_names(found.data["modalities"]).values()
        ),
        *(
            Column(
                f"{one.label} loss",
                share,
                f"what is lost of {one.label} against {against}, the worse direction",
            )
            for one in (lead, *others)
        ),
        *(
            Column(
                f"{_limit_name(name)},\nmedian die, {time}",
                _limit_form(name),
                "the same of dies that are read after that time; 5th and 95th percentile of them",
            )
            for time in times
            for name in _limits_of_dies(found)
        ),
        *(
            column
            for time in found.yield_times
            for column in (
                Column(f"yield, %,\n{time}", percent, "dies within the budget; 95% interval"),
                Column("dies\nin doubt", whole, "dies whose interval over queries holds a limit"),
            )
        ),
        Column("arrays", whole, "arrays of the target that hold the projectors"),
        Column("conversions", whole, "conversions of one query, encoded and scored"),
        Column("energy", whole, energy),
        *[Column("of it known", coverage, "operations of a query whose energy is known")]
        * coverages,
        Column("latency", whole, "of one query; > is a lower bound"),
        *(Column(name, whole, help_) for name, help_ in _score_columns(found).values()),
    ]


def _score_columns(found: Sweep) -> dict[str, tuple[str, str]]:
    """Names of costs of a score where scores differ, with heading and help of each."""
    if WORK not in found.costs:
        return {}
    columns = {WORK: ("multiplications", "of the score of one query, in arrays and digital")}
    if found.sampled:
        columns["sigmoids"] = ("sigmoids", "of the score of one query")
        columns["random_normals"] = ("normals", "random numbers that one query draws")
    return columns | {"gallery_bytes": ("gallery", "memory of the items' features or samples")}


def _is_word(value: Value | None) -> bool:
    return isinstance(value, str | bool)


def _figures(
    found: Sweep, outcome: Outcome, times: Sequence[str], coverages: bool, apart: bool,
    yields: Mapping[str, Yield],
) -> Iterator[Content]:  # fmt: skip
    """The figures of a point; its energy is in brackets where it is `apart` from the others'."""
    cost = outcome.cost
    yield from _retrieval(found, outcome.metrics, outcome.intervals)
    on_dies = {when_read(one): one for one in outcome.dies}
    for time in times:
        for name in _limits_of_dies(found):
            spread = on_dies.get(time, {}).get(name)
            yield None if spread is None else interval_cell(_range(spread), _limit_form(name))
    for time in found.yield_times:
        kept = yields.get(time)
        yield None if kept is None else interval_cell(kept.share, percent)
        yield None if kept is None else kept.in_doubt
    yield from (cost["arrays"], cost["conversions"])
    energy = _amount(cost, ENERGY)
    yield replace(energy, text=f"({energy.text})") if apart else energy
    yield from [cost["energy_coverage"]] * coverages
    yield _amount(cost, "latency_ns")
    for name in _score_columns(found):
        size = cost[name]
        yield Cell(scaled(size, SIZES), size) if name == "gallery_bytes" else size


def _range(spread: Mapping[str, float]) -> Change:
    """The median of dies with the percentiles on both sides of it."""
    return Change(spread["median"], *sorted((spread["best"], spread["worst"])))


def _limits_of_dies(found: Sweep) -> list[str]:
    """The metrics that the table has of dies: the loss that leads, and those of the budget."""
    return list(dict.fromkeys([_led(found)[0].loss, *found.limits]))


def _limit_name(name: str) -> str:
    """A metric of LIMITS as a heading has it."""
    labels = {one.loss: f"{one.label} loss" for one in RANKINGS}
    labels |= {"centred_rmse": "centred RMSE", "logit_rmse": "RMSE"}
    return labels.get(name, "top-1 loss")


def _limit_form(name: str) -> NumberFormat:
    """The text of its values: shares in percent, anything else in four digits."""
    shares = {one.loss for one in RANKINGS if one.share} | {"top1_agreement_loss"}
    return "{:.2%}".format if name in shares else four_digits


def _led(found: Sweep) -> list[RankingMetric]:
    """R@1, after mAP where classes or judgements say what is right."""
    return [one for one in led(found.by_class) if one.name in ("r1", "map")][: 1 + found.by_class]


def _retrieval(
    found: Sweep, metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]
) -> Iterator[Content]:
    """Drift, the metric that leads in both ways with its interval, and losses."""
    metric, *_ = shown = _led(found)
    yield from (metrics.get(name) for name in (DRIFT, "logit_rmse", "top1_agreement_loss"))
    for key in metric.keys.values():
        known = key in metrics and key in intervals
        change = Change(metrics[key], *intervals[key]) if known else None
        yield metrics.get(key) if change is None else interval_cell(change, percent)
    yield from (metrics.get(one.loss) for one in shown)


def _front_texts(found: Sweep) -> list[str]:
    """The costs for which each point is on a front, or the first of points that are the same."""
    same, fronts = twins(found.outcomes), found.fronts
    return [
        f"as point {same[index]}"
        if index in same
        else ", ".join(SHORT_COSTS[cost] for cost, front in fronts.items() if index in front)
        for index in range(len(found.outcomes))
    ]


AMOUNTS = {"energy_pj": (ENERGIES, "energy_missing"), "latency_ns": (TIMES, "latency_missing")}
"""Costs that may be unknown, or lower bounds: their units, and the name of what they lack."""


def _amount(cost: Mapping[str, Any], name: str) -> Cell:
    units, lacks = AMOUNTS[name]
    return _quantity(cost, name, lacks).cell(units)


def _quantity(cost: Mapping[str, Any], name: str, lacks: str) -> Quantity:
    missing = cost.get(lacks)
    ends = (cost.get(name.replace("_pj", f"_{end}_pj")) for end in ("low", "high"))
    low, high = ends if name == ENERGY else (None, None)
    return Quantity(cost[name], (missing,) if missing else (), low, high)


def headline(cost: Mapping[str, Any], name: str) -> str:
    """A cost of a point with its interval, and what an energy rests on where that is too little."""
    if name != ENERGY:
        return cost_text(cost, name)
    units, lacks = AMOUNTS[name]
    said, share = _quantity(cost, name, lacks).full_text(units), cost["energy_coverage"]
    few = share is not None and share < WELL_COVERED
    return f"{said}, {coverage_text(share)}" if few else said


def cost_text(cost: Mapping[str, Any], name: str) -> str:
    """One cost of a point with its unit, `>` before a lower bound, or "not given"."""
    return _amount(cost, name).text if name in AMOUNTS else f"{cost[name]:,}"
