"""Text of a tuning for a terminal: the steps, the bits of each layer, and the costs."""

from __future__ import annotations

from collections.abc import Mapping

from cimtool.report.formats import four_digits
from cimtool.report.page import render_text
from cimtool.report.table import Cell, Column, Content, Table, make_table
from cimtool.report.terminal import table_text
from cimtool.tuning.run import Tuned
from cimtool.tuning.search import Attempt

MOST_MOVES = 2
"""Moves of a step that its line names."""


def tuned_text(found: Tuned) -> str:
    """All results for a terminal or a pipe."""
    steps, bits = table_text(step_table(found)), table_text(bit_table(found))
    return render_text("cimtool.tuning", "tuned.txt", found=found, steps=steps, bits=bits)


def step_table(found: Tuned) -> Table:
    """Every step: its moves, their cost, and the error of the compiled model."""
    metrics = list(dict.fromkeys((*found.budget, "logit_rmse", "top1_agreement_loss")))
    columns = (
        Column("tried"),
        Column(""),
        Column(found.cost, "{:,.0f}".format),
        *(Column(name, four_digits) for name in metrics),
    )
    chosen = found.chosen_cost
    points = (
        ("the highest bits", "kept", found.start_cost, found.start),
        *((_moves(step), _verdict(step), step.cost, step.outcome.metrics) for step in found.steps),
        ("chosen", "", chosen, found.chosen),
        ("chosen, held-out queries", "", chosen, found.held_out),
        ("chosen, all queries", "", chosen, found.on_all),
    )
    rows = [
        (tried, verdict, cost[found.cost], *(_cell(found, values, name) for name in metrics))
        for tried, verdict, cost, values in points
    ]
    return make_table("Steps", columns, rows, absent="")


def _cell(found: Tuned, values: Mapping[str, float], name: str) -> Content:
    """A metric; of all queries with its interval."""
    value = values.get(name)
    if value is None or values is not found.on_all or name not in found.intervals:
        return value
    low, high = map(four_digits, found.intervals[name])
    return Cell(four_digits(value), value, f"[{low}, {high}]")


def _moves(step: Attempt) -> str:
    named = [f"{move.width} {move.was}->{move.now}" for move in step.moves[:MOST_MOVES]]
    rest = len(step.moves) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _verdict(step: Attempt) -> str:
    if step.outcome.error is not None:
        return "refused"
    return "kept" if step.kept else "over"


def bit_table(found: Tuned) -> Table:
    """The bits of each layer."""
    columns = (Column("layer"), Column("weight bits", str), Column("activation bits", str))
    rows = [
        (layer, bits["weight_bits"], bits["activation_bits"]) for layer, bits in found.bits.items()
    ]
    return make_table("Bits", columns, rows)
