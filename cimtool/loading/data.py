"""Embeddings in every form that the library takes: files, pairs of files, arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError, kind_of
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import (
    Embeddings,
    embeddings_of,
    modality_of,
    read_embeddings,
    read_modality,
    unit_rows,
    with_unit_rows,
)

File = Path | str
EmbeddingsLike = File | tuple[File, File] | Embeddings | Mapping[str, Array]
"""Embeddings as a file, a pair of files (text first), as read, or as arrays by name."""


class RowFormat(Protocol):
    """The rows of embeddings that a model takes: their extents, and their norm."""

    @property
    def name(self) -> str:
        """The model's name, for messages."""

    @property
    def text_width(self) -> int:
        """Extent of a text embedding."""

    @property
    def video_width(self) -> int:
        """Extent of a video embedding."""

    @property
    def unit_rows(self) -> bool:
        """True where rows are expected at unit norm."""


def read_data(data: EmbeddingsLike, model: RowFormat) -> Embeddings:
    """Embeddings of any form as a model takes them; CimError where they do not fit."""
    read = embeddings_in(data)
    for modality in MODALITIES:
        _require_width(getattr(read, modality), modality, model, read.file)
    return with_unit_rows(read) if model.unit_rows else read


def embeddings_in(data: EmbeddingsLike) -> Embeddings:
    """Embeddings of any form, whatever model they are for."""
    if isinstance(data, Embeddings):
        return data
    if isinstance(data, Mapping):
        return embeddings_of(data)
    return read_embeddings(*files_of(data))


def read_rows(data: EmbeddingsLike, modality: str, model: RowFormat) -> Array:
    """One modality's rows [n, width] as a model takes them; the other modality is not read.

    Raises CimError where they are missing, are no embeddings, or of another width.
    """
    file = file_of(data, modality)
    where = "embeddings" if file is None else str(file)
    if isinstance(data, Embeddings):
        rows: Array = getattr(data, modality)
    elif isinstance(data, Mapping):
        rows = modality_of(data, modality)
    else:
        rows = read_modality(Path(where), modality)
    _require_width(rows, modality, model, where)
    return unit_rows(rows, f"{where}: {modality}") if model.unit_rows else rows


def _require_width(rows: Array, modality: str, model: RowFormat, where: str) -> None:
    width = model.text_width if modality == "text" else model.video_width
    if rows.shape[1] != width:
        raise CimError(
            f"{where}: {modality} rows have {rows.shape[1]} numbers; {model.name} expects {width}"
        )


def files_of(data: EmbeddingsLike) -> tuple[Path, ...]:
    """The files that embeddings are read from; none where they are given as arrays."""
    if isinstance(data, Embeddings | Mapping):
        return ()
    files = data if isinstance(data, tuple) else (data,)
    if len(files) not in (1, 2) or not all(isinstance(file, Path | str) for file in files):
        raise CimError(
            f"embeddings are given as {kind_of(data)}; expected a file, a pair of files (text "
            "first) or arrays by name (text, video)"
        )
    return tuple(map(Path, files))


def file_of(data: EmbeddingsLike, modality: str) -> Path | None:
    """The file that one modality's rows are read from; None where they are given as arrays."""
    files = files_of(data)
    return None if not files else files[0] if modality == "text" else files[-1]
