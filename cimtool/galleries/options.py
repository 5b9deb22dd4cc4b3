"""Options of `program`, `program_cam`, `change_gallery`, `encode` and `search`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from cimtool.base.options import (
    DIR,
    FILE,
    FILES,
    NPZ,
    IdsAndRows,
    IntegerList,
    OneName,
    Record,
    Topic,
    Word,
    option,
    optional,
)
from cimtool.bundle.bundle import BundleLike
from cimtool.loading.embeddings import EmbeddingsLike, File

Minimised = Literal["cells", "conversions", "energy"]

Replacement = tuple[Sequence[int], EmbeddingsLike]
"""Ids of items, and the videos that replace them."""

ITEMS_PER_SHARD = 1 << 18
"""Items of a shard by default: about 40 MB for 64 dimensions."""


class ProgrammedOptions(Record):
    """A bundle whose gallery is written, and the new bundle."""

    bundle: BundleLike = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    output: File | None = optional("Folder of the new bundle.", DIR, short="o")
    shortlist: int | None = optional("Items per query that a hybrid score scores exactly.", "L")


class NewGallery(ProgrammedOptions):
    """A gallery that is programmed."""

    gallery: EmbeddingsLike = option(
        "Embeddings whose video rows are the items (.npz, .npy or .pt).", FILES, positional=True
    )
    shortlist_bits: int | None = optional(
        "Bits stored per value of an item; 1 stores the sign.", "B", topic=Topic.SHORTLIST
    )


class ProgramOptions(NewGallery):
    """The options of `program`."""

    query_bits: int | None = optional(
        "Bits per value of a query, with {shortlist_bits}.", "Q", topic=Topic.SHORTLIST
    )
    shortlist_dimensions: int | None = optional(
        "Principal components of mu that an item stores, instead of all.",
        "D",
        topic=Topic.SHORTLIST,
    )
    recall: float | None = optional(
        "Choose the cheapest bits, dimensions and length whose shortlists hold this share of best "
        "items.",
        "X",
        topic=Topic.SHORTLIST,
    )
    minimise: Minimised | None = optional(
        "Cost that {recall} minimises (cells).",
        OneName(names=get_args(Minimised)),
        topic=Topic.SHORTLIST,
    )
    chips: int | None = optional(
        "Refuse a gallery that needs more chips.", "N", topic=Topic.SHORTLIST
    )


class CamOptions(NewGallery):
    """The options of `program_cam`."""

    cam: File = option(
        "Content-addressable memory that finds a hybrid score's shortlist.",
        Word("NAME|FILE"),
        positional=True,
        topic=Topic.SHORTLIST,
    )


class ChangeOptions(ProgrammedOptions):
    """The options of `change_gallery`."""

    add: EmbeddingsLike | None = optional(
        "Embeddings whose video rows are added to the gallery.", FILES, topic=Topic.CHANGES
    )
    remove: Sequence[int] = option(
        "Ids of items to remove.", IntegerList(), default=(), topic=Topic.CHANGES
    )
    replace: Replacement | None = optional(
        "Ids of items to replace, and their new video rows.", IdsAndRows(), topic=Topic.CHANGES
    )
    chips: int | None = optional("Refuse a gallery that needs more chips.", "N")


class EncodeOptions(Record):
    """The options of `encode`."""

    bundle: BundleLike = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    gallery: File = option(
        "Embeddings whose video rows are the items (.npz, .npy or .pt).", FILE, positional=True
    )
    output: File = option("Folder of the shards.", DIR, short="o")
    items_per_shard: int = option("Items per shard.", "N", at_least=1, default=ITEMS_PER_SHARD)


class SearchOptions(Record):
    """The options of `search`."""

    bundle: BundleLike = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    gallery: File = option("Shards that `cimtool encode` wrote.", DIR, positional=True)
    queries: EmbeddingsLike = option(
        "Embeddings whose text rows are the queries (.npz, .npy or .pt).", FILES, positional=True
    )
    top: int = option("Best items to keep for each query.", "K", at_least=1, default=10)
    output: File | None = optional("File of the answers.", NPZ, short="o")
    bounds: File | None = optional(
        "The report.json of `cimtool verify` with a bound: says which ranks are certain.",
        FILE,
        topic=Topic.MEASUREMENT,
    )
    dask: str | None = optional(
        "Scheduler of a Dask cluster to search on. tcp://: anyone who reaches the cluster can run "
        "code in it and here; tls://: needs keys.",
        "ADDRESS",
        topic=Topic.WORKERS,
    )
