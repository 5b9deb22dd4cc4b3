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
    Word,
    option,
    optional,
)
from cimtool.loading.embeddings import EmbeddingsLike, File

Minimised = Literal["cells", "conversions", "energy"]

Replacement = tuple[Sequence[int], EmbeddingsLike]
"""Ids of items, and the videos that replace them."""

ITEMS_PER_SHARD = 1 << 18
"""Items of a shard by default: about 40 MB for 64 dimensions."""


class ProgrammedOptions(Record):
    """A bundle whose gallery is written, and the new bundle."""

    bundle: File = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    output: File | None = optional("Folder of the new bundle.", DIR, short="o")
    shortlist: int | None = optional("Items that a hybrid score rescores.", "L")


class NewGallery(ProgrammedOptions):
    """A gallery that is programmed."""

    gallery: EmbeddingsLike = option(
        "Embeddings whose video rows are the items (.npz, .npy or .pt).", FILES, positional=True
    )
    shortlist_bits: int | None = optional("Bits an item stores of a value: 1 is its sign.", "B")


class ProgramOptions(NewGallery):
    """The options of `program`."""

    query_bits: int | None = optional("Bits of a query of such items.", "Q")
    shortlist_dimensions: int | None = optional(
        "Principal components of mu that an item stores in place of all.", "D"
    )
    recall: float | None = optional(
        "Choose the cheapest bits, dimensions and length that hold this share of best items.", "X"
    )
    minimise: Minimised | None = optional(
        "What such a choice makes least, cells where nothing is said.",
        OneName(names=get_args(Minimised)),
    )
    chips: int | None = optional("Refuse a gallery that needs more chips.", "N")


class CamOptions(NewGallery):
    """The options of `program_cam`."""

    cam: File = option(
        "Content-addressable memory that draws up a hybrid score's shortlist.",
        Word("NAME|FILE"),
        positional=True,
    )


class ChangeOptions(ProgrammedOptions):
    """The options of `change_gallery`."""

    add: EmbeddingsLike | None = optional(
        "Embeddings whose video rows come into the gallery.", FILES
    )
    remove: Sequence[int] = option("Ids of items that are taken out.", IntegerList(), default=())
    replace: Replacement | None = optional(
        "Ids of items, and the video rows that take their places.", IdsAndRows()
    )
    chips: int | None = optional("Refuse a gallery that needs more chips.", "N")


class EncodeOptions(Record):
    """The options of `encode`."""

    bundle: File = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    gallery: File = option(
        "Embeddings whose video rows are the items (.npz, .npy or .pt).", FILE, positional=True
    )
    output: File = option("Folder of the shards.", DIR, short="o")
    items_per_shard: int = option("Items of a shard.", "N", at_least=1, default=ITEMS_PER_SHARD)


class SearchOptions(Record):
    """The options of `search`."""

    bundle: File = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    gallery: File = option("Shards that `cimtool encode` wrote.", DIR, positional=True)
    queries: EmbeddingsLike = option(
        "Embeddings whose text rows are the queries (.npz, .npy or .pt).", FILES, positional=True
    )
    top: int = option("Items that are kept of each query.", "K", at_least=1, default=10)
    output: File | None = optional("File of the answers.", NPZ, short="o")
    dask: str | None = optional(
        "Scheduler of a Dask cluster that searches. tcp://: anyone who reaches the cluster "
        "can run code in it and here; tls://: needs keys.",
        "ADDRESS",
    )
