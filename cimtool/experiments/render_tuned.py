"""The tables, the text and the document of a tuning."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cimtool.base.modality_names import way_names
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.tune import Tuned
from cimtool.experiments.widths import Attempt, CostName
from cimtool.reference.queries import led
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import four_digits, percent
from cimtool.report.page import render_text
from cimtool.report.table import Column, Table, make_table
from cimtool.report.terminal import table_text

MOST_MOVES = 2
"""The most moves of a step that its line names."""


def document(found: Tuned) -> Document:
    """The choice, and its steps."""
    before, after = found.start_cost[found.cost], found.chosen_cost[found.cost]
    held = (
        f"{name} is {found.on_all[name]:.4g} on all queries; the limit is {most:g}"
        for name, most in found.budget.items()
    )
    said = [*found.first, *held, f"The settings are in {found.written}."]
    return Document(
        f"{found.model} on {found.target}: {found.cost} {before:,.0f} to {after:,.0f}",
        (
            *map(Sentence, said),
            bit_table(found).named("bits"),
            step_table(found).named("steps"),
        ),
        found.to_json,
    )


def tuned_text(found: Tuned) -> str:
    """All results for a terminal or a pipe."""
    steps, bits = table_text(step_table(found)), table_text(bit_table(found))
    starts = table_text(start_table(found)) if len(found.starts) > 1 else ""
    return render_text(
        "cimtool.experiments",
        "tuned.txt",
        found=found,
        starts=starts,
        steps=steps,
        bits=bits,
        written=shlex.quote(str(found.written)),
    )


def start_table(found: Tuned) -> Table:
    """Every combination of a grid: the cost after tuning, and the metrics of its highest bits."""
    columns = (
        *(Column(key, str) for key in found.starts[0].values),
        Column(""),
        Column(f"{found.cost}, tuned", "{:,.0f}".format),
        *(Column(f"{name}\nat first", four_digits) for name in found.budget),
    )
    rows = [
        (
            *one.values.values(),
            "chosen" if one.chosen else "" if one.cost else "over",
            one.cost.get(found.cost),
            *(one.metrics.get(name) for name in found.budget),
        )
        for one in found.starts
    ]
    return make_table("Starts", columns, rows, absent="")


def step_table(found: Tuned) -> Table:
    """Every step: its moves, their cost, the error of the compiled model, and its retrieval.

    Below them are scores without hardware, on all queries.
    """
    metrics = list(
        dict.fromkeys((*found.budget, "centred_rmse", "logit_rmse", "top1_agreement_loss"))
    )
    lead, ways = led(found.by_class)[0], way_names(found.modalities)
    columns = (
        Column("tried"),
        Column(""),
        Column(found.cost, "{:,.0f}".format),
        *(Column(name, four_digits) for name in metrics),
        *(Column(f"{lead.label}, %\n{ways[way]}", percent) for way in lead.keys),
    )

    def measured(
        values: Mapping[str, float], intervals: Mapping[str, tuple[float, float]] | None = None
    ) -> Outcome:
        return Outcome(metrics=values, intervals=intervals or {})

    points: list[tuple[str, str, Mapping[CostName, float], Outcome]] = [
        ("the highest bits", "kept", found.start_cost, measured(found.start)),
        *((*_step(step), step.cost, step.outcome) for step in found.steps),
        ("chosen", "", found.chosen_cost, measured(found.chosen)),
        ("chosen, held-out queries", "", found.chosen_cost, measured(found.held_out)),
        ("chosen, all queries", "", found.chosen_cost, measured(found.on_all, found.intervals)),
        *(
            (name, "", {}, measured(values, found.baseline_intervals.get(name)))
            for name, values in found.baselines.items()
        ),
    ]
    rows = [
        (
            tried,
            verdict,
            cost.get(found.cost),
            *(one.cell(name, four_digits) for name in metrics),
            *(one.cell(key, percent) for key in lead.keys.values()),
        )
        for tried, verdict, cost, one in points
    ]
    return make_table("Steps", columns, rows, absent="")


def _step(step: Attempt) -> tuple[str, str]:
    """The moves of a step, and its verdict."""
    named = [f"{move.width} {move.was}->{move.now}" for move in step.moves[:MOST_MOVES]]
    rest = len(step.moves) - len(named)
    verdict = "kept" if step.kept else "over" if step.outcome.error is None else "refused"
    return ", ".join(named) + (f" and {rest} more" if rest else ""), verdict


def bit_table(found: Tuned) -> Table:
    """The bits of each layer; a product that is left out has no activation bits."""
    columns = (Column("layer"), Column("weight bits", str), Column("activation bits", str))
    rows = [
        (layer, bits["weight_bits"] or "left out", bits.get("activation_bits"))
        for layer, bits in found.bits.items()
    ]
    return make_table("Bits", columns, rows)
