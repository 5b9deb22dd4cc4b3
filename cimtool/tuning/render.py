"""What tuning prints: the way there, the bits a layer, and the truth on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping

from cimtool.report.formats import four_digits
from cimtool.report.table import Column, Table, make_table
from cimtool.report.terminal import table_text
from cimtool.tuning.run import Tuned
from cimtool.tuning.search import Step

MOST_MOVES = 2
"""Moves of a step that its line names."""


def tuned_text(found: Tuned) -> str:
    """Everything for a terminal or a pipe."""
    limits = ", ".join(f"{name} <= {most:g}" for name, most in found.budget.items())
    return "\n".join(
        [
            f"{found.model} on {found.target}: least {found.cost} for {limits}, "
            f"against the {found.reference} score",
            "",
            table_text(step_table(found)),
            "",
            table_text(bit_table(found)),
            "",
            *(f"{name}: {_costs(found, name)}" for name in ("arrays", "conversions", "energy")),
            *_taken_back(found),
            "",
            f"wrote {found.written}",
            f"next: cimtool compile --settings {found.written} ...",
        ]
    )


def step_table(found: Tuned) -> Table:
    """The way there: what was tried, what it costs and what it errs."""
    metrics = list(dict.fromkeys((*found.budget, "logit_rmse", "top1_agreement_loss")))
    columns = (
        Column("tried"),
        Column(""),
        Column(found.cost, "{:,.0f}".format),
        *(Column(name, four_digits) for name in metrics),
    )
    start, chosen = found.start_cost[found.cost], found.chosen_cost[found.cost]
    points = (
        ("the highest bits", "kept", start, found.start),
        *(_step(step, found) for step in found.steps),
        ("chosen", "", chosen, found.chosen),
        ("chosen, held-out rows", "", chosen, found.held_out),
    )
    rows = [
        (tried, verdict, cost, *(values.get(name) for name in metrics))
        for tried, verdict, cost, values in points
    ]
    return make_table("Steps", columns, rows, absent="")


def _step(step: Step, found: Tuned) -> tuple[str, str, float, Mapping[str, float]]:
    named = [f"{one.knob.name} {one.was}->{one.now}" for one in step.moves[:MOST_MOVES]]
    rest = len(step.moves) - len(named)
    text = ", ".join(named) + (f" and {rest} more" if rest else "")
    verdict = "refused" if step.error is not None else "kept" if step.kept else "over"
    return text, verdict, step.cost[found.cost], step.metrics


def bit_table(found: Tuned) -> Table:
    """The bits of each layer."""
    columns = (Column("layer"), Column("weight bits", str), Column("activation bits", str))
    rows = [
        (layer, bits["weight_bits"], bits["activation_bits"]) for layer, bits in found.bits.items()
    ]
    return make_table("Bits", columns, rows)


def _taken_back(found: Tuned) -> list[str]:
    """That steps missed the budget on held-out rows, if any did."""
    if not found.taken_back:
        return []
    kept = sum(step.kept for step in found.steps)
    steps = "step" if found.taken_back == 1 else f"{found.taken_back} steps"
    return [f"the last {steps} of {kept} kept were taken back: over the budget on held-out rows"]


def _costs(found: Tuned, name: str) -> str:
    before, after = (dict(one)[name] for one in (found.start_cost, found.chosen_cost))  # type: ignore[index]
    unit = " pJ of a text and a video" if name == "energy" else ""
    return "not given" if before != before else f"{before:,.0f} -> {after:,.0f}{unit}"
