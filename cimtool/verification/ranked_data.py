"""The data that a measurement ranks: with its judgements, further items, or a larger gallery."""

from __future__ import annotations

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError
from cimtool.base.modality_names import item_names
from cimtool.loading.embeddings import (
    Embeddings,
    EmbeddingsLike,
    File,
    read_data,
    read_rows,
    with_distractors,
)
from cimtool.loading.model import ModelCard
from cimtool.loading.qrels import judged_data
from cimtool.reference.larger_gallery import MOST_ITEMS
from cimtool.reference.metrics import int8_products
from cimtool.verification.drift import without_cosine


def ranked_data(
    model: ModelCard, data: EmbeddingsLike, qrels: File | None, distractors: EmbeddingsLike | None
) -> Embeddings:
    """Read `data` as a model takes them, with the right pairs of `qrels` and the `distractors`.

    Raises CimError for rows of another width, and judgements of other items.
    """
    found = read_data(judged_data(data, qrels, model.modalities), model)
    if distractors is None:
        return found
    return with_distractors(found, read_rows(distractors, "video", model))


def check_items(gallery: int | None, data: Embeddings) -> None:
    """Raise CimError for a gallery smaller than that of the data, or beyond 10^12 items."""
    if gallery is None:
        return
    if gallery > MOST_ITEMS:
        raise ArgumentError("{gallery} is {}; expected at most 10^12", gallery)
    if gallery < len(data.video):
        raise ArgumentError(
            "{gallery} is {:,}; expected at least {:,}, the number of {} that {} are ranked among",
            gallery,
            len(data.video),
            item_names(data.called)[1],
            item_names(data.called)[0],
        )


def raw_products(data: Embeddings) -> FloatArray | None:
    """Scores [n, m] by raw rows in 8 bits; None for rows of two widths."""
    return int8_products(data.text, data.video) if without_cosine(data) is None else None
