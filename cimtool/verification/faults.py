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

BROKEN_SURROGATE = 2.0
"""Multiple of Monte Carlo's error at which a surrogate is broken.

With DEFAULT_SAMPLES: the error of thousands of samples would be no measure of a surrogate.
"""

BROKEN_RECALL = 0.01
"""One that loses so much of R@1, and more than other queries could explain, is broken as well."""


def points_text(loss: Change) -> str:
    """A loss in points with its interval."""
    return f"{percent(loss.value)} points ({percent(loss.low)} to {percent(loss.high)})"


def surrogate_faults(
    surrogate: StageRow,
    scatter: Scatter | None,
    score: str,
    jitter: float,
    baselines: Sequence[BaselineLoss] = (),
) -> tuple[str, ...]:
    """Faults of the surrogate itself, before any hardware, a sentence each.

    It is further off than sampling explains; or it loses R@1 against the exact score, or against
    -ed; or `jitter`, the change of its score where ed or vd is 0.1% of its range off, is more than
    the scores differ within a query. The last two need no a and b.
    """
    exact = scatter is not None and scatter.rmse is not None
    faults: list[str] = []
    if scatter is not None and "logit_rmse" in surrogate.metrics:
        faults += _beyond_sampling(surrogate, scatter, score)
    lost = surrogate.losses.get("r1_loss")
    if exact and lost is not None and lost.low > 0 and lost.value >= BROKEN_RECALL:
        faults.append(
            f"the {surrogate.stage} itself loses {points_text(lost)} of R@1: lost before any "
            "hardware"
        )
    for one in baselines:
        sure = one.loss.low > 0 and one.loss.value >= BROKEN_RECALL
        if one.baseline == DISTANCE and sure:
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


def float_faults(run: FloatRun, head: Head, seed: int) -> tuple[str, ...]:
    """Faults of the float score of a run, which nothing has compiled yet."""
    table = run.table
    (own,) = table.uncertainties([partial(metrics, table.queries[-1])], seed)
    row = row_of(head.surrogate, table.queries[-1], own)
    baselines = baseline_losses(table, [(DISTANCE, head.surrogate)], seed)
    return surrogate_faults(row, run.scatter, head.measure, run.jitter, baselines)


def _beyond_sampling(surrogate: StageRow, scatter: Scatter, score: str) -> Iterator[str]:
    """A sentence where the surrogate is further off than sampling explains."""
    rmse = surrogate.metrics["logit_rmse"]
    exact = scatter.rmse is not None
    # Monte Carlo's mean square error falls as 1/K.
    usual = math.sqrt(max(scatter.samples / DEFAULT_SAMPLES, 1.0))
    error = usual * (scatter.standard_error if scatter.rmse is None else scatter.rmse)
    if rmse <= BROKEN_SURROGATE * error:
        return
    times = "which has no scatter"
    if error > 0:
        measure = "own error" if exact else "standard error"
        samples = min(scatter.samples, DEFAULT_SAMPLES)
        times = f"{rmse / error:.1f} times Monte Carlo's {measure} at K={samples}"
    yield (
        f"the {surrogate.stage} itself is {rmse:.4g} ({score} RMSE) from the "
        f"{'exact' if exact else 'Monte Carlo'} score, {times}: lost before any hardware"
    )


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
