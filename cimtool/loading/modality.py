"""One modality's rows of embeddings in any form, where the other is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.loading.embeddings import (
    TEXT,
    VIDEO,
    Embeddings,
    modality_of,
    read_modality,
    unit_rows,
)
from cimtool.loading.features import kind_of


def modality_file(data: object, modality: str) -> Path | None:
    """The file that holds one modality's rows of `data`; None where they are given as arrays.

    `data` is a file, a pair of files (text first), embeddings as read, or arrays by name; CimError
    for anything else.
    """
    if isinstance(data, Embeddings | Mapping):
        return None
    file = data
    if isinstance(data, tuple) and len(data) == 2:
        file = data[0] if modality == "text" else data[1]
    if not isinstance(file, Path | str):
        raise CimError(
            f"embeddings are given as {kind_of(data)}; expected a file, a pair of files (text "
            "first) or arrays by name (text, video)"
        )
    return Path(file)


def modality_rows(data: object, modality: str, width: int, model: str, unit: bool) -> Array:
    """Read `text` or `video` rows, float32 [n, width], for the model called `model`.

    They are brought to unit norm where `unit` says so. Raises CimError where they are missing, are
    no embeddings, or of another width.
    """
    names = TEXT if modality == "text" else VIDEO
    file = modality_file(data, modality)
    where = "embeddings" if file is None else str(file)
    if isinstance(data, Embeddings):
        rows: Array = data.text if modality == "text" else data.video
    elif isinstance(data, Mapping):
        rows = modality_of(data, names)
    else:
        rows = read_modality(Path(where), names)
    if rows.shape[1] != width:
        raise CimError(
            f"{where}: {modality} rows have {rows.shape[1]} numbers; {model} expects {width}"
        )
    return unit_rows(rows, f"{where}: {modality}") if unit else rows
