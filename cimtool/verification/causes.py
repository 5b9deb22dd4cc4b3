"""Where the compiled model's error comes from, and which setting to change next."""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.base.progress import Say
from cimtool.bundle.bundle import Bundle
from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.verification.drift_findings import DriftFindings
from cimtool.verification.layers import LayerFinding, layer_findings
from cimtool.verification.notes import alike_text, pairs_alike
from cimtool.verification.sensitivity import Sensitivity, advice, sensitivity
from cimtool.verification.stages import StageRuns

DOMINANT = 2.0
"""A surrogate so many times as far off as what the compiler adds is four fifths of the squares."""


@dataclass(frozen=True)
class Causes:
    """What each layer and each part costs; `advice` says which setting to change next."""

    layers: tuple[LayerFinding, ...]
    sensitivity: Sensitivity
    advice: tuple[str, ...]


def find_causes(
    bundle: Bundle, data: Embeddings, runs: StageRuns, drift: DriftFindings, say: Say
) -> Causes:
    """Look into the layers, and measure each part in integers alone and left in real numbers."""
    say("looking into the layers")
    layers = layer_findings(bundle.stages, data, simulator=runs.simulator)
    say("sensitivity: each part in integers alone, each left in real numbers")
    parts = sensitivity(bundle.stages, data)
    head = bundle.model.head
    if pairs_alike(runs.statistics):
        said = f"measure on other data: {alike_text(head, data)}"
    else:
        said = next_change(head, drift, parts)
    return Causes(layers, parts, (said,))


def next_change(head: Head, drift: DriftFindings, parts: Sensitivity) -> str:
    """What to change next: the surrogate first where it costs most by far, then the devices."""
    found = drift.headline
    dominates = (found.surrogate_rmse or 0.0) > DOMINANT * found.compiled_rmse
    if found.cause == head.surrogate and (found.surrogate_broken or dominates):
        return f"{head.remedy}: no setting of the hardware mends the surrogate"
    if found.cause in [row.stage for one in drift.noisy for row in one.rows]:
        return (
            "the devices cost most: no bits of a layer mend that; try another compensation than "
            f"{drift.noisy[-1].compensation}, other cell_bits, or another target"
        )
    return advice(parts, head.measure)
