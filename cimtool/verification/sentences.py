"""What a report says in words, the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

import json
from typing import Any

from cimtool.verification.bits import REFERENCE_ROWS
from cimtool.verification.headline import equal_text
from cimtool.verification.margins import SIGMAS
from cimtool.verification.report import Report

MODEL_OF = {
    "bit-exact": "bit-exact to the hardware",
    "nominal": "bit-exact to the noise-free model: the target's weights are analog",
}


def measured_on(report: Report) -> str:
    """What the figures are of."""
    data = report.data
    return (
        f"{data.texts} texts x {data.videos} videos of {data.file}, against {report.reference.name}"
    )


def floor_sentence(report: Report) -> str | None:
    """How far Monte Carlo itself is off, the measure of what a drift is worth."""
    scatter, equal = report.scatter, report.headline.equal_samples
    if scatter is None:
        return None
    said = (
        f"Monte Carlo at K={scatter.samples} has a standard error of {scatter.standard_error:.4g} "
        f"({report.score}, root mean square over pairs, by formula)"
    )
    if scatter.floor is not None:
        floor = scatter.floor
        said += (
            f"; on {floor.texts} texts x {floor.videos} videos {floor.seeds} seeds are "
            f"{floor.rmse:.4g} ± {floor.rmse_spread:.2g} from the exact score, with a top-1 "
            f"agreement of {floor.top1_agreement:.1%}"
        )
    if equal is not None:
        said += f"; beside the compiled model it {equal_text(equal)}"
    return f"{said}."


def margin_sentences(report: Report) -> tuple[str, ...]:
    """The share of queries that the error cannot decide, both ways."""
    return tuple(
        f"{one.way.replace('_', ' ')}: the right item leads by more than {SIGMAS:g} sigma of the "
        f"error in {one.leads:.1%} of the queries and trails by more in {one.trails:.1%}; the "
        f"error may decide {one.open:.1%}"
        for one in report.margins
    )


def bit_sentences(report: Report) -> tuple[str, ...]:
    """One sentence for each implementation compared with the simulator."""
    found = []
    for name in dict.fromkeys(count.implementation for count in report.bits):
        counts = [count for count in report.bits if count.implementation == name]
        differing = sum(count.differing for count in counts)
        compared = sum(count.compared for count in counts)
        found.append(f"{differing} of {compared:,} values differ between the simulator and {name}")
    return tuple(found)


def domain_sentences(report: Report) -> tuple[str, ...]:
    """How many pairs leave the domain of the compiled score, where any do."""
    if report.domains and not any(d.outside for d in report.domains):
        return ("no pair is outside the domain of the compiled score",)
    return tuple(
        f"{d.stage}: {d.statistic} in [{d.lo:.4g}, {d.hi:.4g}]: {d.outside:.3%} of the pairs are "
        f"outside and saturate, {d.right_outside} of {d.right} right ones"
        for d in report.domains
        if d.outside
    )


def clipped_sentence(report: Report) -> str | None:
    """The stored value that is clipped most often."""
    worst = max(report.stored, key=lambda one: one.clipped, default=None)
    if worst is None:
        return None
    if not worst.clipped:
        return "stored values: none is clipped"
    return (
        f"stored values: at most {worst.clipped:.3%} of one are clipped ({worst.value}, "
        f"{worst.bits} bits)"
    )


def limit_sentences(report: Report) -> tuple[str, ...]:
    """Each limit and whether it is kept."""
    return tuple(
        f"{'kept' if one.kept else 'EXCEEDED'}: {one.metric} {one.value:.6g}, limit {one.limit:g}"
        for one in report.limits
    )


def fidelity(report: Report) -> str:
    """What bit for bit means on this target."""
    return f"{MODEL_OF[report.fidelity]} (reference on {REFERENCE_ROWS} rows, ONNX Runtime on all)"


def setting_text(value: Any) -> str:
    """A setting as a reader knows it; no converter and no limit of an array are `none`."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
