"""The sentences of a report; the first answers first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from cimtool.base.intervals import Change
from cimtool.base.modality_names import item_names, name_of, sizes_text, way_names
from cimtool.reference.limits import DriftLimit
from cimtool.report.formats import counted, percent, percent_range
from cimtool.verification.bits import REFERENCE_ROWS
from cimtool.verification.headline import equal_text
from cimtool.verification.layers import worst_clipping
from cimtool.verification.margins import SIGMAS
from cimtool.verification.references import Scatter
from cimtool.verification.report import Report

STATUSES = {
    "confirmed": "read in their source",
    "derived": "computed from such figures",
    "unconfirmed": "not confirmed by any source",
    "assumed": "assumed, for no source says it",
}
"""The standing of a figure of a target, and its meaning."""

MODEL_OF = {
    "bit-exact": "bit-exact to the hardware",
    "nominal": "bit-exact to the noise-free model: the target's weights are analog",
}


def measured_on(report: Report) -> str:
    """The data and the reference of the figures."""
    data = report.subject.data
    reference = report.drift.reference
    sizes = sizes_text((data.texts, data.videos), report.drift.modalities, "x")
    found = f"{sizes} of {data.file}, against the {reference} score"
    return "; ".join([found, *trained_clause(report)])


def trained_clause(report: Report) -> list[str]:
    """A clause on the rows that the model was trained on, if there are any."""
    data = report.subject.data
    if data.trained is None or not (data.trained.texts or data.trained.videos):
        return []
    texts, videos = item_names(report.drift.modalities)
    rows = f"{data.trained.texts:,} of the {texts} and {data.trained.videos:,} of the {videos}"
    return [f"the model was trained on {rows}, so the figures say little about unseen rows"]


def survival_sentence(report: Report) -> str:
    """The loss of R@1 or mAP of the compiled model, and of dies where any were drawn."""
    label, loss = report.headline.lead
    if loss is None:
        return f"The loss of {label} is not known"
    points = _points(loss)
    if report.drift.noisy:
        return f"{_of_dies(report, label)}; noise-free {points}"
    if loss == Change(0, 0, 0):
        return f"No query shows a loss of {label}, or a gain"
    if loss.low > 0:
        return f"It loses {label}, more than other queries could explain: {points}"
    if loss.high < 0:
        return f"It gains {label} on the reference: a loss of {points}"
    return f"No sure loss of {label}: {points}, within what other queries would change"


def _of_dies(report: Report, label: str) -> str:
    """The loss of R@1 or mAP of the median die at the time that costs it most."""
    name = "r1_loss" if label == "R@1" else "map_loss"
    medians = (one.median for one in report.drift.noisy)
    worst = max(medians, key=lambda row: row.losses[name].value)
    loss = worst.losses[name]
    sure = "more than other queries could explain"
    does = f"loses {label} {sure}" if loss.low > 0 else f"may lose {label}"
    return f"On a chip ({worst.stage}) it {does}: {_points(loss)}"


def _points(loss: Change) -> str:
    return f"{percent(loss.value)} {percent_range(loss.low, loss.high)} points"


def verdict(report: Report) -> str:
    """The outcome of the checks in a few words; without limits only bits were checked."""
    if report.failures:
        return f"{counted(len(report.failures), 'check')} failed"
    if not report.checks.limits and report.checks.earlier is None:
        return "bits agree"
    return "all checks hold" + (", of the noise-free model" if report.drift.noisy else "")


def clipping_sentence(report: Report) -> str:
    """The layer and slice whose converters clip most."""
    layers = report.causes.layers
    if not any(column.step is not None for one in layers for column in one.converters):
        return "No converter clips or rounds: all conversions are lossless."
    worst = worst_clipping(layers)
    if worst is None:
        return "No column sum that was looked at is clipped."
    layer, column = worst
    return (
        f"{layer}, {column.column}: {column.clipped:.3%} of {column.conversions:,} column sums are "
        "clipped."
    )


def noisiest_sentence(report: Report) -> str | None:
    """The layer whose own weights and converters make most noise; None if none do."""
    layers = report.causes.layers
    known = [(one.own_sqnr_db, one.layer) for one in layers if one.own_sqnr_db is not None]
    if not known:
        return None
    decibels, layer = min(known)
    return (
        f"noisiest layer: {layer}, with a signal {decibels:.1f} dB above the noise of its own "
        "weights and converters"
    )


def clipped_sentence(report: Report) -> str | None:
    """The stored value that is clipped most often."""
    worst = max(report.saturation.stored, key=lambda one: one.clipped, default=None)
    if worst is None:
        return None
    if not worst.clipped:
        return "stored values: none is clipped"
    return (
        f"stored values: at most {worst.clipped:.3%} of one are clipped ({worst.value}, "
        f"{worst.bits} bits)"
    )


def unmodelled(report: Report) -> tuple[str, ...]:
    """Effects that the target does not model, and noise where no dies were drawn."""
    said = report.target.unmodelled
    if report.drift.noisy:
        return said
    return (*said, "noise: no dies were drawn, all figures are of perfect arrays")


def pair_facts(report: Report) -> Iterator[tuple[str, str]]:
    """Numbers beside the picture of scores; the largest difference is of all pairs."""
    pairs, metrics = report.drift.pairs, report.drift.final.metrics
    right = sum(pairs.right)
    yield "pairs drawn", f"{right:,} right, {len(pairs.right) - right:,} wrong"
    both = list(zip(pairs.reference, pairs.compiled, pairs.right, strict=True))
    for name, kind in (("right", True), ("wrong", False)):
        squares = [(compiled - reference) ** 2 for reference, compiled, of in both if of == kind]
        if squares:
            yield f"RMSE, {name}", f"{math.sqrt(sum(squares) / len(squares)):.4g}"
    for label, name in (("bias, all pairs", "bias"), ("largest difference", "max_abs")):
        if name in metrics:
            yield label, f"{metrics[name]:.4g}"


def floor_sentence(report: Report) -> str | None:
    """The error of Monte Carlo itself, to compare a drift with."""
    scatter, equal = report.drift.scatter, report.headline.equal_samples_centred
    if scatter is None:
        return None
    score = report.drift.score
    said = (
        f"Monte Carlo at K={scatter.samples} is off by {scatter.centred_error:.4g} (centred "
        f"{score} RMSE{_drawn_text(report, scatter)})"
    )
    if scatter.samples > 1:
        said += (
            f"; its standard error is {scatter.standard_error:.4g} ({score}, root mean square over "
            "pairs, by formula)"
        )
    if scatter.floor is not None:
        floor = scatter.floor
        said += (
            f"; on {floor.texts} x {floor.videos} pairs {floor.seeds} seeds are "
            f"{floor.centred_rmse:.4g} ± {floor.centred_rmse_spread:.2g} (centred; RMSE "
            f"{floor.rmse:.4g} ± {floor.rmse_spread:.2g}) from the exact score, with a top-1 "
            f"agreement of {floor.top1_agreement:.1%}"
        )
    if equal is not None:
        said += f"; beside the compiled model it {equal_text(equal)}"
    return f"{said}."


def _drawn_text(report: Report, scatter: Scatter) -> str:
    """The pairs that Monte Carlo was sampled on, with the interval; empty for all pairs."""
    if scatter.drawn is None:
        return ""
    drawn, pairs = scatter.drawn
    name = f"Monte Carlo (K={scatter.samples})"
    (row,) = (one for one in report.drift.rows if one.stage == name)
    ends = row.intervals["centred_rmse"]
    return (
        f", 95% [{ends.low:.4g}, {ends.high:.4g}], estimated from {drawn:,} of {pairs:,} pairs: "
        "right ones, the nearest wrong ones and random others"
    )


def margin_sentences(report: Report) -> tuple[str, ...]:
    """The share of queries that the error cannot decide, both ways."""
    ways = way_names(report.drift.modalities)
    return tuple(
        f"{ways[one.way]}: the right item leads by more than {SIGMAS:g} sigma of the error in "
        f"{one.leads:.1%} of the queries and trails by more in {one.trails:.1%}; the error could "
        f"change the other {one.open:.1%}"
        for one in report.drift.margins
    )


COIN = math.log(2)
"""The log loss of a coin: right and wrong pairs of a query have half of the weight each."""


def calibration_sentences(report: Report) -> Iterator[str]:
    """The calibration error of the compiled score beside others', and whether it lost any."""
    drift, name = report.drift, "calibration_error"
    found = drift.final.with_interval("nll")
    if found is not None and found.low > COIN:
        yield (
            f"As probabilities these are WORSE than a coin's: log loss {found.value:.3g} "
            f"[{found.low:.3g}, {found.high:.3g}] against {COIN:.3f}."
        )
    rows = {row.stage: row for row in drift.rows}
    loss = drift.final.losses.get(f"{name}_loss")
    if loss is not None:
        does = {True: "is LOST", False: "is kept"}[loss.low > 0]
        yield (
            f"Calibration {does}: the compiled score's error less that of {drift.reference} is "
            f"{percent(loss.value)} {percent_range(loss.low, loss.high)} points."
        )
    said = []
    for one in drift.reliability:
        found = rows[one.stage].with_interval(name) if one.stage in rows else None
        if found is not None:
            share = f"{percent(found.value)}% {percent_range(found.low, found.high)}"
            said.append(f"{one.stage} {share}")
    yield f"Calibration error: {', '.join(said)}."


def saturation_sentences(report: Report) -> tuple[str, ...]:
    """Pairs outside the domain of the compiled score and the range of a fit; rows that clip."""
    found = report.saturation
    said = [one.sentence() for one in found.domains if one.outside]
    if found.domains and not said:
        fitted = " or the range that it was fitted on" * any(one.fitted for one in found.domains)
        said = [f"no pair is outside the domain of the compiled score{fitted}"]
    if not found.fit_known:
        said.append(
            f"the range of ed and vd that the {report.drift.surrogate} was fitted on is not known: "
            "its file does not say"
        )
    called = report.drift.modalities
    said += [one.sentence(name_of(one.modality, called)) for one in found.clipped_rows if one.rows]
    return tuple(said)


def limit_sentences(report: Report) -> tuple[str, ...]:
    """Each limit and whether it is kept."""
    return tuple(
        f"{_standing(one)}: {one.metric} {one.text}, limit {one.limit:g}"
        for one in report.checks.limits
    )


def earlier_sentences(report: Report) -> tuple[str, ...]:
    """The outcome of the comparison with an earlier run, and what is not compared."""
    found = report.checks.earlier
    if found is None:
        return ()
    worse = [one.label for one in found.figures if one.failed]
    how = f"WORSE than {found.file}: {', '.join(worse)}"
    said = how if worse else f"No worse than {found.file}"
    lead, power = found.figures[0], []
    if lead.detectable is not None:
        loss = f"{percent(lead.detectable)} points" if lead.share else f"{lead.detectable:.4g}"
        power = [f"on {lead.label} this test would detect a loss of {loss} 80% of the time"]
    return (said, *power, *found.notes)


def _standing(limit: DriftLimit) -> str:
    if not limit.founded:
        return "NOT KEPT, against a broken float score"
    return "kept" if limit.kept else "EXCEEDED"


def fidelity(report: Report) -> str:
    """The meaning of bit for bit on this target."""
    of = MODEL_OF[report.subject.fidelity]
    return f"{of} (reference on {REFERENCE_ROWS} rows, ONNX Runtime on all)"


def setting_text(value: Any) -> str:
    """A setting as a reader knows it; no converter and no limit of an array are `none`."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
