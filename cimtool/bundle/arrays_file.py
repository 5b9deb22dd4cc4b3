"""Arrays in a bundle's .safetensors files: names, types and shapes are checked, then values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.untrusted import require_small_header
from cimtool.bundle.serial import as_computed
from cimtool.ir.types import Type

TYPES = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The types that this project writes, by safetensors' names; NumPy lacks F8 and BF16."""

TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
"""Safetensors' names by type."""

INTEGERS = ("I8", "U8", "I16", "I32", "I64")
"""The types of stored integers; each array has the narrowest type that holds it."""


@dataclass(frozen=True)
class StoredArray:
    """The form of an array in a file: its allowed types and its extents.

    An extent that is a text may be any number, the same in all arrays of the file.
    """

    types: tuple[str, ...]
    shape: tuple[str | int, ...]


DIGESTS = {
    "text": StoredArray(("U64",), ("texts",)),
    "video": StoredArray(("U64",), ("videos",)),
}
"""Digests of rows by modality."""


def read_arrays(file: Path, *forms: Mapping[str, StoredArray]) -> dict[str, Array]:
    """The arrays of a file whose names are the names of a form; without forms, any arrays.

    Raises CimError for a file that is not safetensors, other names, types that this project does
    not write, and types or shapes that differ from the form.
    """
    with opened_arrays(file) as held:
        names = set(held.keys())
        if forms and not (own := [form for form in forms if set(form) == names]):
            found, wanted = (", ".join(sorted(one)) or "nothing" for one in (names, forms[-1]))
            raise CimError(f"{file}: has arrays {found[:200]}; expected {wanted}; compile again")
        form = own[0] if forms else {}
        check_stored(file, {name: held.get_slice(name) for name in sorted(names)}, form)
        return {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118


@contextmanager
def opened_arrays(file: Path, again: str = "compile") -> Iterator[Any]:
    """A safetensors file, mapped; CimError, which says what to do `again`, for another file."""
    require_small_header(file)
    try:
        with safe_open(file, "numpy") as held:
            yield held
    except SafetensorError as error:
        raise CimError(f"{file}: is not a safetensors file ({error}); {again} again") from error


def check_stored(file: Path, slices: Mapping[str, Any], form: Mapping[str, StoredArray]) -> None:
    """Raise CimError for the first array whose type or shape is not allowed by the form."""
    known: dict[str | int, int] = {}
    for name, one in slices.items():
        kind, shape = one.get_dtype(), tuple(one.get_shape())
        wanted = form.get(name, StoredArray(tuple(TYPES), shape))
        if kind not in wanted.types:
            raise CimError(f"{file}: {name} is of {kind}; expected {_either(wanted.types)}")
        if 0 in shape and max(shape) >= 2**31:  # no byte of the file bounds them
            raise CimError(f"{file}: {name} has shape {list(shape)}; expected smaller extents")
        for extent, own in zip(wanted.shape, shape, strict=False):
            if isinstance(extent, str):
                known.setdefault(extent, own)
        expected = [known.get(extent, extent) for extent in wanted.shape]
        if list(shape) != expected:
            raise CimError(f"{file}: {name} has shape {list(shape)}; expected {_extents(expected)}")


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _extents(expected: Sequence[str | int]) -> str:
    return f"[{', '.join(map(str, expected))}]"


def features_form(types: Mapping[str, Type], rows: str | int) -> dict[str, StoredArray]:
    """The form of stored features of `rows` items (a text: any number).

    `types` are the types of the program's values.
    """
    return {
        name: StoredArray(INTEGERS, (rows, *map(int, known.shape[1:])))
        for name, known in types.items()
    }


def read_features(
    file: Path, types: Mapping[str, Type], *forms: Mapping[str, StoredArray]
) -> dict[str, Array]:
    """Features int64 of a file in one of these forms; CimError also for a value out of range."""
    found = {name: as_computed(one) for name, one in read_arrays(file, *forms).items()}
    for name, values in found.items():
        check_range(f"{file}: {name}", values, types[name])
    return found


def check_range(where: str, values: Array, known: Type) -> None:
    """Raise CimError, whose sentence starts with `where`, for a value outside a type's range."""
    outside = (values < known.lo) | (values > known.hi)
    if outside.any():
        raise CimError(
            f"{where} holds {values[outside][0]}; expected {int(known.lo.min())} to "
            f"{int(known.hi.max())}, as this bundle encodes"
        )


def features_sha256(features: Mapping[str, Array]) -> str:
    """The SHA-256 of integer features; it does not depend on the stored types."""
    digest = hashlib.sha256()
    for name in sorted(features):
        values = np.ascontiguousarray(features[name], np.int64)
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()
