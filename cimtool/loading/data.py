"""Embeddings in every form that the library takes: files, pairs of files, arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.loading.embeddings import (
    Embeddings,
    embeddings_of,
    read_embeddings,
    require_width,
    with_unit_rows,
)
from cimtool.loading.features import kind_of
from cimtool.loading.modality import modality_rows

File = Path | str
Data = File | tuple[File, File] | Embeddings | Mapping[str, Array]
"""Embeddings as a file, a pair of files (text first), as read, or as arrays by name."""


class Expects(Protocol):
    """What is known of the model that embeddings are for."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def text_width(self) -> int:
        """Extent of a text row."""
        ...

    @property
    def video_width(self) -> int:
        """Extent of a video row."""
        ...

    @property
    def unit_rows(self) -> bool:
        """Whether rows are expected at unit norm."""
        ...


def read_data(data: Data, model: Expects) -> Embeddings:
    """Embeddings of any form, checked against the model's widths, unit rows where expected."""
    read = embeddings_in(data)
    require_width(read, model.text_width, model.video_width, model.name)
    return with_unit_rows(read) if model.unit_rows else read


def embeddings_in(data: Data) -> Embeddings:
    """Embeddings of any form, whatever model they are for."""
    if isinstance(data, Embeddings):
        return data
    if isinstance(data, Mapping):
        return embeddings_of(data)
    return read_embeddings(*files_of(data))


def read_text(data: Data, model: Expects) -> Array:
    """Text rows [n, width] of embeddings of any form, checked as `read_data` does."""
    return modality_rows(data, "text", model.text_width, model.name, model.unit_rows)


def files_of(data: Data) -> tuple[Path, ...]:
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
