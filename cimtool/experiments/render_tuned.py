"""A tuning for a reader: the saved cost, the bits of each layer, and the steps."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import get_args

from cimtool.base.intervals import Change
from cimtool.base.modality_names import way_names
from cimtool.costs.price_errors import times_cell, times_text
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.engine import values_text
from cimtool.experiments.objectives import COSTS, CostName, CostObjective
from cimtool.experiments.tuned import Tuned
from cimtool.experiments.widths import Attempt
from cimtool.hardware.keys import ScoreMapping
from cimtool.reference.queries import led
from cimtool.report.document import Document, Sentence, Verbatim, notes
from cimtool.report.formats import (
    ENERGIES,
    NOT_GIVEN,
    TIMES,
    NumberFormat,
    Units,
    four_digits,
    percent,
    scaled,
    whole,
)
from cimtool.report.table import Column, Content, Table, make_table


def document(found: Tuned) -> Document:
    """The saved cost and the limits, the bits, and the steps to them."""
    limits = ", ".join(f"{name} <= {most:g}" for name, most in found.budget.items())
    objective = CostObjective(found.objective)
    sampled = "" if found.reference == "exact" else f", against the {found.reference} score"
    least = f"least {objective.text} for {limits}{sampled}"
    settings = shlex.quote(str(found.written))
    starts = (start_table(found).named("starts"),) if len(found.starts) > 1 else ()
    steps = (step_table(found).named("steps", "detail"),) if found.steps else ()
    return Document(
        f"{found.model} on {found.target}: {least}",
        (
            _changes(found),
            *map(Sentence, _outcome(found)),
            *found.remarks.blocks(found.verdict),
            cost_table(found).named("costs", "verdict"),
            bit_table(found).named("bits"),
            figure_table(found).named("figures"),
            *starts,
            *steps,
            *notes([*found.outcome.warnings, *found.remarks.notes]),
            *notes(_ways_tried(found), "detail"),
            Verbatim(f"wrote {found.written}"),
            Verbatim(f"next: {found.command or f'cimtool compile --settings {settings} ...'}"),
        ),
        found.to_json,
    )


def _changes(found: Tuned) -> Sentence:
    """The costs of the objective before and after; the table has them too."""
    return Sentence("; ".join(_change(found, cost) for cost in found.objective), "detail")


def _outcome(found: Tuned) -> Iterator[str]:
    """Sentences on the start, on the limits, and on steps taken back."""
    first, chosen = found.starts[0], next(one for one in found.starts if one.chosen)
    if first is not chosen:
        objective = CostObjective(found.objective, first.first)
        yield (
            f"from {values_text(chosen.values)}; against {values_text(first.values)} with its "
            f"highest bits, {times_text(_times_first(found, objective))} the {objective.text}"
        )
    if found.features:
        mu, variance = found.features.values()
        yield f"features: {mu} bits of mu, {variance} of the variance"
    for name, most in found.budget.items():
        yield f"{name} is {found.on_all[name]:.4g} on all queries; the limit is {most:g}"
    for name, most in found.risky.items():
        yield (
            f"{name} may be above {most:g} on other queries: its interval over these reaches "
            f"{found.intervals[name][1]:.4g}; more queries narrow it"
        )
    if found.taken_back:
        kept = sum(step.kept for step in found.steps)
        steps = f"the last {found.taken_back} of {kept} kept steps were"
        if found.taken_back == 1:
            steps = f"the last of {kept} kept steps was" if kept > 1 else "the only kept step was"
        yield f"{steps} taken back: over the budget on held-out queries or on all"


def _ways_tried(found: Tuned) -> Iterator[str]:
    """Sentences on the ways of a gallery that were tried, and on those that were not."""
    ways = list(dict.fromkeys(str(one.values.get("score_mapping", "")) for one in found.starts))
    if ways != [""]:
        others = [one for one in get_args(ScoreMapping) if one not in ways]
        more = f"; not tried: {', '.join(others)}" if others else ""
        yield f"score_mapping tried: {', '.join(ways)}{more}"
    yield from found.untried


def _change(found: Tuned, cost: CostName) -> str:
    """A cost of the objective before and after: a count, or a figure with its interval."""
    called, one = _called(cost, found), found.changes.get(cost)
    if one is None:
        was, now = found.start_cost[cost], found.chosen_cost[cost]
        return f"{called}: {was:,} -> {now:,} ({now / was:.2f} times)"
    before, after = (of.full_text(UNITS[cost]) for of in (one.before, one.after))
    return f"{called}: {before} -> {after}, {times_text(one.times)}"


def _times_first(found: Tuned, objective: CostObjective) -> Change:
    """The objective as a multiple of that of the first start; terms of a sum are off together."""
    total, terms = sum(objective.weights.values()), list[tuple[float, Change]]()
    for name, weight in objective.weights.items():
        count = found.chosen_cost[name] / (objective.first[name] or 1.0)
        known = found.changes.get(name)
        own = Change(count, count, count) if known is None else known.times_first
        terms.append((weight / total, own))
    ends = ("value", "low", "high")
    return Change(*(sum(share * getattr(one, end) for share, one in terms) for end in ends))


def cost_table(found: Tuned) -> Table:
    """All costs of the highest bits and of those that were chosen; energies have intervals."""
    rows: list[tuple[Content, ...]] = []
    for cost in COSTS:
        before, after = found.start_cost[cost], found.chosen_cost[cost]
        one, called = found.changes.get(cost), _called(cost, found)
        if one is not None:
            cells = (of.full_cell(UNITS[cost]) for of in (one.before, one.after))
            rows.append((called, *cells, times_cell(one.times)))
        elif math.isnan(before) or math.isnan(after):
            rows.append((called, NOT_GIVEN, NOT_GIVEN, None))
        else:
            rows.append((called, before, after, f"{after / before:.2f}" if before else None))
    columns = (
        Column("cost"),
        Column("the highest bits", whole, "with its interval"),
        Column("chosen", whole, "with its interval"),
        Column("times", whole, "prices cancel for work that both do"),
    )
    first_screen = {"query_energy", *found.objective}
    return make_table("Costs", columns, rows).keeping(one in first_screen for one in COSTS)


def _called(cost: CostName, found: Tuned) -> str:
    """A cost in words."""
    query = f"a query among {found.gallery:,}"
    return {
        "query_energy": f"energy of {query}",
        "encoding_energy": f"energy of one {' and one '.join(found.modalities)}",
        "latency": f"latency of {query}",
    }.get(cost, cost)


UNITS: Mapping[CostName, Units] = {
    "query_energy": ENERGIES,
    "encoding_energy": ENERGIES,
    "latency": TIMES,
}
"""Units of the costs that are no counts."""


def _form(cost: CostName) -> NumberFormat:
    return partial(scaled, units=UNITS[cost]) if cost in UNITS else whole


def _columns(found: Tuned) -> tuple[Column, ...]:
    """A column for each cost of the objective."""
    return tuple(Column(name.replace("_", "\n"), _form(name)) for name in found.objective)


def start_table(found: Tuned) -> Table:
    """Every combination of a grid: costs after tuning, and the metrics of its highest bits."""
    keys = dict.fromkeys(key for one in found.starts for key in one.values)
    columns = (
        *(Column(key, str) for key in keys),
        Column("", help="dearer: its fewest bits cost more than what is chosen; it was not tuned"),
        *(Column(f"{name}\nat first".replace("_", "\n"), _form(name)) for name in found.objective),
        *_columns(found),
        *(Column(f"{name}\nat first", four_digits) for name in found.budget),
    )
    rows = [
        (
            *(one.values.get(key) for key in keys),
            "chosen" if one.chosen else "" if one.cost else "dearer" if one.dearer else "over",
            *(one.first.get(name) for name in found.objective),
            *(one.cost.get(name) for name in found.objective),
            *(one.metrics.get(name) for name in found.budget),
        )
        for one in found.starts
    ]
    return make_table("Starts", columns, rows, absent="")


def figure_table(found: Tuned) -> Table:
    """The highest and the chosen bits, and scores without hardware: cost, errors, retrieval.

    Figures of the first two rows are of the queries that the bits were chosen on.
    """

    def outcome(
        values: Mapping[str, float], intervals: Mapping[str, tuple[float, float]] | None = None
    ) -> Outcome:
        return Outcome(metrics=values, intervals=intervals or {})

    rows = [
        (("the highest bits",), found.start_cost, outcome(found.start)),
        (("chosen",), found.chosen_cost, outcome(found.chosen)),
        (("chosen, held-out queries",), found.chosen_cost, outcome(found.held_out)),
        (("chosen, all queries",), found.chosen_cost, outcome(found.on_all, found.intervals)),
        *(
            ((name,), {}, outcome(values, found.baseline_intervals.get(name)))
            for name, values in found.baselines.items()
        ),
    ]
    return _measured("Before and after", found, (Column("bits"),), rows)


def step_table(found: Tuned) -> Table:
    """Every step: its moves, their cost, the errors of the compiled model, and its retrieval."""
    rows = [(_step(step), step.cost, step.outcome) for step in found.steps]
    return _measured("Steps", found, (Column("tried"), Column("outcome")), rows)


def _measured(
    title: str,
    found: Tuned,
    first: tuple[Column, ...],
    rows: Sequence[tuple[tuple[str, ...], Mapping[CostName, float], Outcome]],
) -> Table:
    """A table of names, a cost and an outcome a row; metrics of the budget are essential."""
    metrics = dict.fromkeys((*found.budget, "centred_rmse", "logit_rmse", "top1_agreement_loss"))
    lead, ways = led(found.by_class)[0], way_names(found.modalities)
    columns = (
        *first,
        *_columns(found),
        *(Column(name, four_digits, essential=name in found.budget) for name in metrics),
        *(Column(f"{lead.label}, %\n{ways[way]}", percent) for way in lead.keys),
    )
    cells = [
        (
            *names,
            *(cost.get(name) for name in found.objective),
            *(one.cell(name, four_digits) for name in metrics),
            *(one.cell(key, percent) for key in lead.keys.values()),
        )
        for names, cost, one in rows
    ]
    return make_table(title, columns, cells, absent="")


def _step(step: Attempt) -> tuple[str, str]:
    """The first move of a step with the number of others, and its verdict."""
    first, *others = step.moves
    more = f" and {len(others)} more" if others else ""
    verdict = "kept" if step.kept else "over" if step.outcome.error is None else "refused"
    return f"{first.width} {first.was}->{first.now}{more}", verdict


def bit_table(found: Tuned) -> Table:
    """The bits of each layer; a product that is left out has no activation bits."""
    columns = (Column("layer"), Column("weight bits", str), Column("activation bits", str))
    rows = [
        (layer, bits["weight_bits"] or "left out", bits.get("activation_bits"))
        for layer, bits in found.bits.items()
    ]
    return make_table("Bits", columns, rows)
