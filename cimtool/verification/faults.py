"""Faults of the float score itself, before any hardware, and of the model beside its embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from cimtool.ir.heads import Head
from cimtool.reference.bootstrap import Change
from cimtool.reference.metrics import RAW
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import metrics
from cimtool.report.formats import percent
from cimtool.verification.baselines import DISTANCE, BaselineLoss, baseline_losses
from cimtool.verification.drift import StageRow, row_of
from cimtool.verification.references import Scatter
from cimtool.verification.stages import FloatRun

FAR_SURROGATE = 2.0
"""Multiple of Monte Carlo's error from which on a surrogate's distance is a warning.

With DEFAULT_SAMPLES: the error of thousands of samples would be no measure of a surrogate.
"""

BROKEN_RECALL = 0.01
"""A surrogate is broken if it loses this much of R@1, and more than other queries could explain."""


def points_text(loss: Change) -> str:
    """A loss in points with its interval."""
    return f"{percent(loss.value)} points ({percent(loss.low)} to {percent(loss.high)})"


def surrogate_faults(
    surrogate: StageRow,
    scatter: Scatter | None,
    score: str,
    jitter: float,
    baselines: Sequence[BaselineLoss] = (),
    by_class: bool = False,
) -> tuple[str, ...]:
    """Faults of the surrogate's ranking, before any hardware, a sentence each: it is broken.

    It surely loses R@1 (`by_class` mAP) against the exact score, or its samples, or against -ed;
    or `jitter`, the change of its score where ed or vd is 0.1% of its range off, is more than the
    scores differ within a query. The last two need no a and b. A distance from the exact score that
    loses none is no fault (`surrogate_remarks`).
    """
    faults: list[str] = []
    exact = scatter is not None and scatter.is_exact
    metric, name = ("mAP", "map_loss") if by_class else ("R@1", "r1_loss")
    lost = surrogate.losses.get(name)
    if scatter is not None and lost is not None and _is_sure(lost):
        faults.append(
            f"the {surrogate.stage} itself loses {points_text(lost)} of {metric}: lost before any "
            "hardware"
        )
    for one in baselines:
        if one.baseline == DISTANCE and _is_sure(one.loss):
            faults.append(
                f"the {surrogate.stage} itself loses {points_text(one.loss)} of {one.metric} "
                "against -ed, the plain distance: lost before any hardware, fit another one "
                "(`cimtool fit`)"
            )
    spread = surrogate.metrics.get("spread" if exact else "own_spread", 0.0)
    if jitter > spread > 0:
        faults.append(
            f"the {surrogate.stage}'s terms are large and cancel: where ed or vd is 0.1% of its "
            f"range off, its {score} changes by {jitter:.4g}, more than the scores of a query "
            f"differ ({spread:.4g}); no hardware computes it well, fit another one "
            "(`cimtool fit`)"
        )
    return tuple(faults)


def _is_sure(loss: Change) -> bool:
    return loss.low > 0 and loss.value >= BROKEN_RECALL


def float_faults(run: FloatRun, head: Head, seed: int) -> tuple[str, ...]:
    """Faults of the float score of a run, which nothing has compiled yet."""
    table = run.table
    (own,) = table.uncertainties([partial(metrics, table.queries[-1])], seed)
    row = row_of(head.surrogate, table.queries[-1], own)
    baselines = baseline_losses(table, [(DISTANCE, head.surrogate)], seed)
    by_class = table.truth.by_class
    return surrogate_faults(row, run.scatter, head.measure, run.jitter, baselines, by_class)


def surrogate_remarks(surrogate: StageRow, scatter: Scatter | None, score: str) -> Iterator[str]:
    """A sentence where the surrogate is further from its reference than sampling explains.

    Without the mean difference of each query, which changes no rank. It may still rank as well.
    """
    error = surrogate.get("centred_rmse")
    if scatter is None or error is None:
        return
    usual = _usual(scatter.centred_error, scatter)
    if error <= FAR_SURROGATE * usual:
        return
    times = "which has no scatter"
    if usual > 0:
        samples = min(scatter.samples, DEFAULT_SAMPLES)
        times = f"{error / usual:.1f} times Monte Carlo's own error at K={samples}"
    yield (
        f"the {surrogate.stage} itself is {error:.4g} (centred {score} RMSE) from the "
        f"{'exact' if scatter.is_exact else 'Monte Carlo'} score, {times}: lost before any hardware"
    )


def offset_of(surrogate: StageRow, scatter: Scatter | None) -> float | None:
    """Its bias, where sampling does not explain it; None for less, or without a reference."""
    bias = surrogate.get("bias")
    if scatter is None or bias is None:
        return None
    return bias if abs(bias) > FAR_SURROGATE * _usual(scatter.whole_error, scatter) else None


def _usual(error: float, scatter: Scatter) -> float:
    """Monte Carlo's error at DEFAULT_SAMPLES or fewer; its mean square falls as 1/K."""
    return math.sqrt(max(scatter.samples / DEFAULT_SAMPLES, 1.0)) * error


def baseline_sentences(baselines: Sequence[BaselineLoss]) -> Iterator[str]:
    """A sentence where raw embeddings retrieve as well as the compiled model, or better."""
    for one in baselines:
        if one.baseline != RAW or one.loss.high < 0:
            continue
        how = "BETTER" if one.loss.low > 0 else "as well, as far as these queries tell"
        yield (
            f"Raw embeddings retrieve {how}: {one.metric} {percent(one.of_baseline)}% by their "
            f"cosine, {percent(one.of_stage)}% compiled, a loss of {points_text(one.loss)}."
        )


NOT_CHECKED = (
    "The surrogate was NOT CHECKED against the sampled score, for the teacher's a and b are not "
    "known: drift is what the compiler adds."
)
