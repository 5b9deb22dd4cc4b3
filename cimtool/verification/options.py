"""Options of `verify` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cimtool.base.options import (
    DIR,
    FILE,
    Integer,
    Many,
    MetricLimits,
    OneName,
    OneOrTwoFiles,
    Record,
    Switched,
    option,
)
from cimtool.bundle.dies import NoiseOptions
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.options import BundleData, JudgedData, SeenData
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.verification.references import KINDS, ReferenceKind


class ReferenceOptions(Record):
    """The scores that drift is measured against."""

    reference: ReferenceKind = option(
        "Reference of drift: the exact score, or mc, Monte Carlo.",
        OneName(names=KINDS),
        default="exact",
    )
    samples: int = option(
        "Monte Carlo samples a side.", Integer("K", at_least=2), default=DEFAULT_SAMPLES
    )
    seed: int = option("Seed of all random draws.", Integer(at_least=0), default=0)


class DriftOptions(SeenData):
    """Dies and limits of a measurement of drift, and the treatment of rows."""

    max_drift: Mapping[str, float] | None = option(
        "Fail above this value.", MetricLimits(), default=None
    )
    junit: File | None = option("Write the checks as JUnit XML (.xml).", FILE, default=None)
    noise: NoiseOptions | None = option(
        "Draw dies with the target's noise.",
        Switched(record=NoiseOptions, about="dies"),
        default=None,
    )
    chip: File | None = option("A measured chip in place of drawn dies.", DIR, default=None)


class VerifyOptions(BundleData, JudgedData, ReferenceOptions, DriftOptions):
    """The options of `verify`."""

    baseline: File | None = option(
        "An earlier report.json; fail where worse than it.", FILE, default=None
    )
    tolerance: Mapping[str, float] | None = option(
        "Fail only where surely worse than the baseline by more than this.",
        MetricLimits(),
        default=None,
    )
    report: File | None = option("Folder of the report [default: the bundle].", DIR, default=None)


class CompareOptions(JudgedData, ReferenceOptions, SeenData):
    """The options of `compare`."""

    bundles: Sequence[File] = option(
        "The folders of the bundles.", Many(), positional=True, argument="BUNDLE BUNDLE..."
    )
    data: EmbeddingsLike = option("Embeddings to measure on.", OneOrTwoFiles(), positional=True)
