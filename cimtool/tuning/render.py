"""What tuning prints: the way there, the bits a layer, and the truth on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cimtool.tuning.run import Tuned
from cimtool.tuning.search import Step

Rows = Sequence[Sequence[str]]
MOST_MOVES = 2
"""Moves of a step that its line names."""


def tuned_text(found: Tuned, table: Callable[[Rows], str]) -> str:
    """Everything for a terminal or a pipe."""
    metrics = list(dict.fromkeys((*found.budget, "logit_rmse", "top1_agreement_loss")))
    limits = ", ".join(f"{name} <= {most:g}" for name, most in found.budget.items())
    head = ("tried", "", found.cost, *metrics)
    path = [
        head,
        _line("the highest bits", "kept", found.start_cost[found.cost], found.start, metrics),
        *(_step(step, found, metrics) for step in found.steps),
        _line("chosen", "", found.chosen_cost[found.cost], found.chosen, metrics),
        _line("chosen, held-out rows", "", found.chosen_cost[found.cost], found.held_out, metrics),
    ]
    bits = [("layer", "weight bits", "activation bits")]
    bits += [(k, str(v["weight_bits"]), str(v["activation_bits"])) for k, v in found.bits.items()]
    return "\n".join(
        [
            f"{found.model} on {found.target}: least {found.cost} for {limits}, "
            f"against the {found.reference} score",
            "",
            table(path),
            "",
            table(bits),
            "",
            *(f"{name}: {_costs(found, name)}" for name in ("arrays", "conversions", "energy")),
            *_taken_back(found),
            "",
            f"wrote {found.written}",
            f"next: cimtool compile --settings {found.written} ...",
        ]
    )


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


def _step(step: Step, found: Tuned, metrics: Sequence[str]) -> tuple[str, ...]:
    named = [f"{one.knob.name} {one.was}->{one.now}" for one in step.moves[:MOST_MOVES]]
    rest = len(step.moves) - len(named)
    text = ", ".join(named) + (f" and {rest} more" if rest else "")
    if step.error is not None:
        return (text, "refused", f"{step.cost[found.cost]:,.0f}", *("" for _ in metrics))
    verdict = "kept" if step.kept else "over"
    return _line(text, verdict, step.cost[found.cost], step.metrics, metrics)


def _line(
    text: str, verdict: str, cost: float, values: Mapping[str, float], metrics: Sequence[str]
) -> tuple[str, ...]:
    return (text, verdict, f"{cost:,.0f}", *(f"{values[name]:.4g}" for name in metrics))
