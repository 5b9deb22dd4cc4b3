"""What a reader asks of a report first, in words: fit, dearest step, clipping, cost, certainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cimtool.reference.bootstrap import Change
from cimtool.report.formats import (
    ENERGIES,
    NOT_GIVEN,
    TIMES,
    counted,
    coverage,
    percent,
    percent_range,
    scaled,
)
from cimtool.verification.layers import worst_clipping
from cimtool.verification.report import Report

Facts = tuple[tuple[str, str], ...]
"""Names and what they are."""

STATUSES = {
    "confirmed": "read in their source",
    "derived": "computed from such figures",
    "unconfirmed": "not confirmed by any source",
}
"""How sure a figure of a target is, and what that means."""


def survival_sentence(report: Report) -> str:
    """Whether the compiled model keeps the reference's R@1."""
    loss = report.headline.r1_loss
    if loss is None:
        return "The loss of R@1 is not known"
    points = _points(loss)
    if report.noisy:
        return f"{_of_dies(report)}; noise-free {points}"
    if loss.low > 0:
        return f"It loses R@1, more than other queries could explain: {points}"
    if loss.high < 0:
        return f"It gains R@1 on the reference: a loss of {points}"
    return f"No sure loss of R@1: {points}, within what other queries would change"


def _of_dies(report: Report) -> str:
    """What the dies lose of R@1 at the time that costs them most."""
    worst = max((one.median for one in report.noisy), key=lambda row: row.losses["r1_loss"].value)
    loss = worst.losses["r1_loss"]
    does = "loses R@1 more than other queries could explain" if loss.low > 0 else "may lose R@1"
    return f"On a chip ({worst.stage}) it {does}: {_points(loss)}"


def _points(loss: Change) -> str:
    return f"{percent(loss.value)} {percent_range(loss.low, loss.high)} points"


def verdict(report: Report) -> str:
    """What the checks found, in a word or two; without limits only bits were checked."""
    if report.failed:
        return f"{counted(len(report.failures), 'check')} failed"
    if not report.limits:
        return "bits agree, no limit was set"
    return "all checks hold" + (", of the noise-free model" if report.noisy else "")


def die_sentences(report: Report) -> tuple[str, ...]:
    """What dies keep of the compiled model, each sentence once."""
    said = [s for one in report.noisy for s in one.sentences(report.final, report.score)]
    return tuple(dict.fromkeys(said))


def other_sentences(report: Report) -> tuple[str, ...]:
    """The headline's sentences but those on dies."""
    said = set(die_sentences(report))
    return tuple(one for one in report.headline.sentences if one not in said)


def fit_sentence(report: Report) -> str:
    """Whether the model fits on a chip, on several, or in rounds on one."""
    plan = report.cost["layout"]
    arrays, on_chip = counted(plan["arrays"], "array"), plan["chip"]["arrays"]
    if plan["chips"] is None or on_chip is None:
        return arrays
    if not plan["resident"]:
        return f"In rounds: {counted(plan['loads'], 'load')} of one chip"
    if plan["chips"] == 1:
        return f"On one chip: {arrays} of {on_chip:,}"
    return f"On {counted(plan['chips'], 'chip')} of {counted(on_chip, 'array')}"


def fit_facts(report: Report) -> Facts:
    """Arrays, chips or rounds, and how much of them is used."""
    plan = report.cost["layout"]
    facts = [("cells used", f"{_used(report):.1%} of those in its arrays")]
    if plan["chips_filled"] is None:
        facts.append(("chips", f"{NOT_GIVEN}: the target does not say how large one is"))
    elif plan["resident"]:
        filled = plan["chips_filled"] / plan["chips"]
        facts.append(("chips filled", f"{filled:.1%} ({plan['chips_filled']:.4g} of a chip)"))
    else:
        facts.append(("a chip holds", f"1/{plan['chips_filled']:.4g} of the weights"))
        loads = [f"{graph} {count:,}" for graph, count in plan["rounds"].items()]
        facts.append(("loads an inference", ", ".join(loads)))
    places = f"{counted(plan['macros'], 'macro')}, {counted(plan['cores'], 'core')}"
    return (*facts, ("in", places), ("area", _quantity(report.cost["area_mm2"], _area)))


def _used(report: Report) -> float:
    """Cells that hold weights by cells of the arrays that they are in."""
    own = [layer for layer in report.cost["layers"] if layer["shares"] is None]
    cells = sum(layer["arrays"] * layer["cells_per_array"] for layer in own)
    return float(sum(layer["cells"] for layer in own) / cells) if cells else 0.0


def _area(value: float) -> str:
    return f"{value:.4g} mm2"


def _quantity(quantity: Mapping[str, Any], form: Callable[[float], str]) -> str:
    """A quantity of the cost, `>` before a lower bound, or "not given"."""
    if quantity["value"] is None:
        return NOT_GIVEN
    return f"{'> ' if quantity['lower_bound'] else ''}{form(quantity['value'])}"


def energy(cost: Mapping[str, Any]) -> str:
    """The energy of a text, a video or a query."""
    return _quantity(cost["energy_pj"], lambda value: scaled(value, ENERGIES))


def latency(cost: Mapping[str, Any]) -> str:
    """The latency of a text, a video or a query."""
    return _quantity(cost["latency_ns"], lambda value: scaled(value, TIMES))


def query_facts(report: Report) -> Facts:
    """Energy and latency of a query, how much of it is known, and against how many items."""
    query = report.cost["query"]
    return (
        ("gallery", counted(report.cost["gallery"], "item")),
        ("energy known for", f"{coverage(query['coverage'])} of its operations"),
        ("conversions", f"{query['conversions']:,}"),
        ("operating point", _point(report.cost["operating_point"])),
    )


def _point(point: Mapping[str, Any] | None) -> str:
    return NOT_GIVEN if point is None else str(point["name"])


def missing_sentences(report: Report) -> tuple[str, ...]:
    """What the energy and the latency of a query leave out."""
    missing: dict[str, list[str]] = {}
    for name, key in (("energy", "energy_pj"), ("latency", "latency_ns")):
        parts = ", ".join(report.cost["query"][key]["missing"])
        missing.setdefault(parts, []).append(name)
    return tuple(f"{' and '.join(of)}: without {parts}" for parts, of in missing.items() if parts)


def clipping_sentence(report: Report) -> str:
    """Where converters clip most, by layer and slice."""
    if not any(column.step is not None for one in report.layers for column in one.converters):
        return "No converter clips or rounds: all conversions are lossless."
    worst = worst_clipping(report.layers)
    if worst is None:
        return "No column sum that was looked at is clipped."
    layer, column = worst
    return (
        f"{layer}, {column.column}: {column.clipped:.3%} of {column.conversions:,} column sums are "
        "clipped."
    )


def noisiest_sentence(report: Report) -> str | None:
    """The layer whose own weights and converters make most noise; None where none do."""
    known = [(one.own_sqnr_db, one.layer) for one in report.layers if one.own_sqnr_db is not None]
    if not known:
        return None
    decibels, layer = min(known)
    return (
        f"noisiest layer: {layer}, with a signal {decibels:.1f} dB above the noise of its own "
        "weights and converters"
    )


def unmodelled(report: Report) -> tuple[str, ...]:
    """What the target says that it does not model, and noise where no dies were drawn."""
    if report.noisy:
        return report.unmodelled
    return (*report.unmodelled, "noise: no dies were drawn, all figures are of perfect arrays")


def figures_by_status(report: Report) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Each status, what it means and the quantities that have it."""
    found = []
    for status, meaning in STATUSES.items():
        names = dict.fromkeys(one.quantity for one in report.figures if one.status == status)
        found.append((status, meaning, tuple(names)))
    return tuple(found)


def other_notes(report: Report) -> tuple[str, ...]:
    """The report's notes but those on what is not modelled, which stand elsewhere."""
    return tuple(note for note in report.notes if not note.startswith("not modelled: "))


def pair_facts(report: Report) -> Facts:
    """What the picture of scores shows, in numbers; the largest difference is of all pairs."""
    pairs, drift = report.pairs, report.final.drift
    right = sum(pairs.right)
    facts = [("pairs drawn", f"{right:,} right, {len(pairs.right) - right:,} wrong")]
    for name, kind in (("right", True), ("wrong", False)):
        errors = [
            (compiled - reference) ** 2
            for reference, compiled, one in zip(
                pairs.reference, pairs.compiled, pairs.right, strict=True
            )
            if one == kind
        ]
        if errors:
            facts.append((f"RMSE, {name}", f"{math.sqrt(sum(errors) / len(errors)):.4g}"))
    if drift is not None:
        facts.append(("bias, all pairs", f"{drift.bias:.4g}"))
        facts.append(("largest difference", f"{drift.max_abs:.4g}"))
    return tuple(facts)
