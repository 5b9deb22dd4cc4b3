"""`.npy` and `.npz` files read without pickle, their sizes checked before anything is allocated."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.files import reading
from cimtool.loading.checkpoint import require_file

_BROKEN = (ValueError, EOFError, KeyError, SyntaxError, NotImplementedError, RuntimeError)


def read_npy(path: Path) -> Array:
    """Read one array; CimError where the file is broken, cut short, or holds Python objects."""
    require_file(path)
    with reading(path), path.open("rb") as stream:
        return _read(stream, path.stat().st_size, str(path))


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """Read the arrays of an `.npz` by name: all, or `names` with None in place of each other one.

    Raises CimError where the file is broken or a wanted array holds Python objects.
    """
    require_file(path)
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            arrays: dict[str, Any] = {}
            for member in archive.infolist():
                name, _, suffix = member.filename.rpartition(".")
                if suffix == "npy":
                    arrays[name] = None
                    if names is None or name in names:
                        with archive.open(member) as stream:
                            arrays[name] = _read(stream, member.file_size, f"{path}: {name}")
            return arrays
    except (zipfile.BadZipFile, zlib.error, *_BROKEN) as error:
        raise CimError(f"{path}: is truncated, corrupt, or not an .npz file: {error}") from None


def map_npy(path: Path) -> Array:
    """Map one array: its numbers are read as they are looked at; CimError as `read_npy` does."""
    require_file(path)
    with reading(path), path.open("rb") as stream:
        shape, fortran, dtype = _header(stream, path.stat().st_size, str(path))
        order: Literal["F", "C"] = "F" if fortran else "C"
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", stream.tell(), shape, order)


def _read(stream: IO[bytes], size: int, where: str) -> Array:
    """Read one array of a stream of `size` bytes, header first."""
    _header(stream, size, where)
    try:
        stream.seek(0)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except _BROKEN as error:
        raise CimError(f"{where}: is not a NumPy array: {error}") from None


def _header(
    stream: IO[bytes], size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type, which the rest of the `size` bytes must hold."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    except _BROKEN as error:
        raise CimError(f"{where}: is not a NumPy array: {error}") from None
    if dtype.hasobject:
        raise CimError(f"{where}: holds Python objects, which are never loaded; expected numbers")
    needed, left = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if needed > left:
        raise CimError(
            f"{where}: its header says {needed} bytes of shape {list(shape)}, the file holds "
            f"{left}; it is truncated or corrupt"
        )
    return shape, fortran, dtype
