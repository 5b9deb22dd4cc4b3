"""Options that several rooms share: of a model, of data, of rows that a model has seen."""

from __future__ import annotations

from cimtool.base.options import EMBEDDINGS, FILE, OneName, Record, Topic, Word, option, optional
from cimtool.bundle.bundle import BundleLike
from cimtool.hardware.target import Target
from cimtool.loading.calibration_rows import SEEN_ROWS, SeenRows
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.source import ModelArguments


class BuildOptions(ModelArguments):
    """A model, and how to build it."""

    calibration: EmbeddingsLike = option(
        "Embeddings that decide the ranges.", EMBEDDINGS, place="data.calibration"
    )
    target: str | Target = option("The hardware.", Word("NAME|FILE"), place="target")
    settings: File | None = optional(
        "Settings, also of single layers (TOML).", FILE, place="settings", topic=Topic.SETTINGS
    )


class BundleData(Record):
    """A bundle, and the data that it is measured on."""

    bundle: BundleLike = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    data: EmbeddingsLike = option(
        "Embeddings to measure on.", EMBEDDINGS, positional=True, place="data.measured"
    )


class JudgedData(Record, topic=Topic.MEASUREMENT):
    """Right answers for data without them."""

    qrels: File | None = optional(
        "Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).",
        FILE,
        place="data.qrels",
    )


class SeenData(Record, topic=Topic.MEASUREMENT):
    """The treatment of rows that a model was calibrated on."""

    calibration_rows: SeenRows = option(
        "Rows that the bundle was calibrated on: refuse, allow (measure them too) or drop "
        "(leave them out, with their pairs).",
        OneName(names=SEEN_ROWS),
        default="refuse",
    )
