"""Embeddings as a caller has them in memory: arrays, tensors, tables and datasets as NumPy arrays.

No library of these is imported: an object is known by its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cimtool.base.modality_names import TEXT_VIDEO, Modalities

PLAIN = (list, tuple, np.ndarray, np.generic, int, float, str)
"""Kinds of rows that NumPy stacks quickly by itself."""


def array_of(value: Any) -> Any:
    """The NumPy array of a tensor, a column, a table of numbers, or a list of rows.

    Anything else comes back as it is.
    """
    if isinstance(value, np.ndarray | Mapping | str | Path):
        return value
    if callable(getattr(value, "detach", None)):  # a tensor, which may be on a device
        value = value.detach().cpu()
        try:
            return value.numpy()
        except TypeError:  # bfloat16
            return value.float().numpy()
    if callable(getattr(value, "to_numpy", None)):
        return _stacked(value.to_numpy())
    if hasattr(value, "__array__"):
        return _stacked(np.asarray(value))
    listed = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if listed and not isinstance(value, bytes) and not hasattr(value, "column_names"):
        return _stacked_rows(list(value))
    return value


def _stacked(array: Any) -> Any:
    """The rows of a column of lists or arrays as one array."""
    if array.dtype != object:
        return array
    return _stacked_rows(array.tolist())


def _stacked_rows(rows: list[Any]) -> Any:
    """Rows as one array; rows of several lengths as they are, which are refused later."""
    known = not rows or isinstance(rows[0], PLAIN)
    try:
        return np.asarray(rows if known else [array_of(row) for row in rows])
    except ValueError:
        return rows


class NamedColumns(Protocol):
    """A table or dataset that gives a column by its name."""

    def __getitem__(self, name: str, /) -> Any: ...


class Columns(Mapping[str, Any]):
    """The columns of a mapping, table or dataset by name; each becomes an array when it is read."""

    def __init__(self, held: Any, names: Sequence[str]) -> None:
        self._held, self._names = held, tuple(names)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return array_of(self._held[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def by_name(
    data: Any, modalities: Modalities | None = None, alone: str | None = None
) -> Mapping[str, Any] | None:
    """Data in memory as arrays by name; None if they are not in memory, or of an unknown kind.

    These may be a mapping, a table or dataset with named columns, or a pair (text first), which
    gets the names of `modalities`. Where one modality `alone` is wanted, its rows suffice.
    """
    if isinstance(data, Mapping):
        return Columns(data, list(data))
    names = getattr(data, "column_names", None)  # of Hugging Face's datasets, of pyarrow
    if names is None:
        names = getattr(data, "columns", None)  # of pandas, of polars
    if names is not None and all(isinstance(name, str) for name in names):
        return Columns(data, list(names))
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_table, data)):
        pair = modalities or TEXT_VIDEO
        return Columns(dict(zip(pair, data, strict=True)), pair)
    if alone is not None and _is_table(data):
        return Columns({alone: data}, [alone])
    return None


def _is_table(value: Any) -> bool:
    """True for rows of numbers."""
    if isinstance(value, str | Path):
        return False
    found = array_of(value)
    return isinstance(found, np.ndarray) and found.ndim >= 2
