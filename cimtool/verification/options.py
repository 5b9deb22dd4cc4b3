"""Options of `verify` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cimtool.base.options import (
    DIR,
    EMBEDDINGS,
    FILE,
    Many,
    MetricLimits,
    OneName,
    Record,
    Topic,
    option,
    optional,
)
from cimtool.bundle.bundle import BundleLike
from cimtool.bundle.dies import DrawnOrMeasured
from cimtool.bundle.options import BundleData, JudgedData, SeenData
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.reference.limits import LIMITED, LIMITS
from cimtool.reference.measures import RANKINGS
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.verification.references import KINDS, ReferenceKind


class ReferenceOptions(Record, topic=Topic.MEASUREMENT):
    """The scores that drift is measured against."""

    reference: ReferenceKind = option(
        "Reference for drift: the exact score, or mc (Monte Carlo).",
        OneName(names=KINDS),
        default="exact",
    )
    samples: int = option("Monte Carlo samples per side.", "K", at_least=1, default=DEFAULT_SAMPLES)
    seed: int = option("Seed of all random draws.", at_least=0, default=0)
    all_pairs: bool = option(
        "Monte Carlo on all pairs; otherwise on a sample, beside the exact score.", default=False
    )


class GalleryOptions(Record):
    """The number of items that the verdict is for."""

    gallery: int | None = optional(
        "Items of a larger gallery: R@1 is extrapolated to them, text to video, beside raw rows.",
        "N",
        at_least=2,
        place="gallery",
    )


class WithDistractors(GalleryOptions):
    """The same, with further items to measure among."""

    distractors: EmbeddingsLike | None = optional(
        "Further videos in the gallery, right for no text.",
        EMBEDDINGS,
        place="data.distractors",
        topic=Topic.MEASUREMENT,
    )


class DriftOptions(SeenData, DrawnOrMeasured, GalleryOptions):
    """Dies, limits and gallery of a measurement of drift, and the treatment of rows."""

    max_drift: Mapping[str, float] | None = optional(
        "Fail above this value.", MetricLimits(names=LIMITS), place="budgets"
    )
    bound: float | None = optional(
        "State the error that this share of pairs stays within (0.95), and the margin of ranks.",
        "SHARE",
        topic=Topic.MEASUREMENT,
    )
    junit: File | None = optional(
        "Write the checks as JUnit XML (.xml).", FILE, topic=Topic.BUILD_SERVERS
    )


class VerifyOptions(BundleData, JudgedData, ReferenceOptions, WithDistractors, DriftOptions):
    """The options of `verify`."""

    baseline: File | None = optional(
        "An earlier report.json; fail if a metric is worse.", FILE, topic=Topic.BUILD_SERVERS
    )
    tolerance: Mapping[str, float] | None = optional(
        "Fail only if surely worse than the baseline by more than this.",
        MetricLimits(names=LIMITS),
        topic=Topic.BUILD_SERVERS,
    )
    report: File | None = optional(
        "Folder of the report [default: the bundle].", DIR, place="report"
    )


class CompareOptions(JudgedData, ReferenceOptions, WithDistractors, SeenData):
    """The options of `compare`."""

    bundles: Sequence[BundleLike] = option(
        "The folders of the bundles.", Many(), positional=True, argument="BUNDLE BUNDLE..."
    )
    data: EmbeddingsLike = option(
        "Embeddings to measure on.", EMBEDDINGS, positional=True, place="data.measured"
    )


def limits_text() -> str:
    """The names of the metrics that a limit can be put on, and what each measures."""
    errors = ", ".join(
        f"{one.limit} (the error that can change a rank)" if one is LIMITED[0] else one.limit
        for one in LIMITED
    )
    first, *others = RANKINGS
    return (
        f"{errors}, and losses of retrieval as fractions, the worse of both directions: "
        f"{first.loss}, likewise for {', '.join(one.name for one in others)}"
    )
