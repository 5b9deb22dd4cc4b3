"""Baselines: rankings that cost no projector or no score, beside the model's.

Raw embeddings are ranked by their cosine, where texts and videos are equally wide; `-ed`, the plain
negative expected distance, is what a polynomial of ed and vd has to improve on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import Change
from cimtool.reference.measures import WAYS
from cimtool.reference.queries import Uncertainty
from cimtool.verification.drift import DriftTable

DISTANCE = "-ed"


@dataclass(frozen=True)
class BaselineLoss:
    """The loss of a stage against a baseline, of R@1, or of mAP where classes are known.

    The worse way, on the same queries; negative where the stage does better. `of_baseline` and
    `of_stage` are the metric in that way.
    """

    baseline: str
    stage: str
    metric: str
    loss: Change
    of_baseline: float
    of_stage: float


def without_cosine(data: Embeddings) -> str | None:
    """The sentence on rows of two widths, which have no cosine; None where both are as wide."""
    text, video = data.text.shape[1], data.video.shape[1]
    if text == video:
        return None
    one, other = data.called
    return f"raw embeddings have no cosine: {one} rows have {text} numbers, {other} rows {video}"


def baseline_losses(
    table: DriftTable, pairs: Sequence[tuple[str, str]], seed: int
) -> tuple[BaselineLoss, ...]:
    """The loss of the stage of each pair (baseline, stage); of a baseline that is missing none."""
    by_class = table.truth.by_class
    return tuple(
        baseline_loss(baseline, stage, *table.compared_with(stage, baseline, seed), by_class)
        for baseline, stage in pairs
        if baseline in table.stages
    )


def baseline_loss(
    baseline: str, stage: str, own: Uncertainty, other: Uncertainty, by_class: bool
) -> BaselineLoss:
    """The loss of a stage against the `other` uncertainty, which its `own` losses are from."""
    name, label = ("map", "mAP") if by_class else ("r1", "R@1")
    loss = own.losses[f"{name}_loss"]
    way = next(key for key in (f"{name}_{w}" for w in WAYS) if own.losses[key] is loss)
    return BaselineLoss(baseline, stage, label, loss, other.metrics[way], own.metrics[way])
