"""`.npy` and `.npz` files, read without pickle; sizes are checked before memory is allocated."""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.files import reading, require_file
from cimtool.base.untrusted import Budget, open_archive, require_shape

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
    OverflowError,
)

BLOCK = 1 << 20
"""Bytes that are decompressed at a time."""

LONGEST_HEADER = 10_000
"""Bytes of a header at most, as in NumPy; a header is a short line."""

# The three entries of a header, as NumPy and others write them: a dictionary of Python. It is not
# evaluated: a text of a few thousand brackets exhausts the parser.
_EXTENT = r"\d{1,18}L?"
_VALUE = (
    r"(?:['\"][<>=|]?[A-Za-z]\w{0,20}['\"]|True|False"
    rf"|\(\s*(?:{_EXTENT}(?:\s*,\s*{_EXTENT}){{0,31}}\s*,?)?\s*\))"
)
_ENTRY = rf"['\"](descr|fortran_order|shape)['\"]\s*:\s*({_VALUE})"
_TABLE = re.compile(rf"\{{\s*{_ENTRY}(?:\s*,\s*{_ENTRY}){{2}}\s*,?\s*\}}\s*")


def read_npy(path: Path) -> Array:
    """Read one array; CimError if the file is broken, truncated, or holds Python objects."""
    budget = Budget.of(path)
    with reading(path), path.open("rb") as stream:
        return _read(stream, path.stat().st_size, str(path), budget)


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """Read the arrays of an `.npz` by name: all, or `names`, with None for each other array.

    Raises CimError if the file is broken or a wanted array holds Python objects.
    """
    budget = Budget.of(path)
    try:
        with reading(path), path.open("rb") as stream, open_archive(path, stream) as archive:
            arrays: dict[str, Any] = {}
            for member in archive.infolist():
                name, _, suffix = member.filename.rpartition(".")
                if suffix == "npy":
                    if not name.isprintable():
                        raise CimError(f"{path}: holds {name!r}; expected printable names")
                    if name in arrays:
                        raise CimError(f"{path}: holds {name} twice; expected it once")
                    arrays[name] = None
                    if names is None or name in names:
                        _require_deflated(member, f"{path}: {name}")
                        with archive.open(member) as content:
                            where = f"{path}: {name}"
                            arrays[name] = _read(content, member.file_size, where, budget)
            return arrays
    except _BROKEN as error:
        raise CimError(f"{path}: is truncated, corrupt, or not an .npz file: {error}") from None


def npz_names(path: Path) -> list[str]:
    """The names of the arrays of an `.npz`; CimError if the file is broken."""
    return list(read_npz(path, ()))


def _require_deflated(member: zipfile.ZipInfo, where: str) -> None:
    """Raise CimError for a compression method whose tables may have any size."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CimError(
            f"{where}: is compressed by method {member.compress_type} of .zip; expected deflate, "
            "as NumPy saves it"
        )


def map_npy(path: Path) -> Array:
    """Map one array: numbers are read when they are used; CimError as `read_npy`."""
    require_file(path)
    with reading(path), path.open("rb") as stream:
        shape, fortran, dtype = _header(stream, path.stat().st_size, str(path))
        order: Literal["F", "C"] = "F" if fortran else "C"
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", stream.tell(), shape, order)


def _read(stream: IO[bytes], size: int, where: str, budget: Budget) -> Array:
    """Read one array from a stream of `size` bytes, header first."""
    shape, fortran, dtype = _header(stream, size, where)
    count = math.prod(shape)
    budget.take(count, dtype.itemsize, where)
    array = np.empty(count, dtype)
    view, filled = array.view(np.uint8).data if array.nbytes else memoryview(b""), 0
    while filled < len(view):
        block = stream.read(min(BLOCK, len(view) - filled))
        if not block:
            raise CimError(f"{where}: is truncated after {filled:,} of {len(view):,} bytes")
        view[filled : filled + len(block)] = block
        filled += len(block)
    return array.reshape(shape, order="F" if fortran else "C")


def _header(
    stream: IO[bytes], size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order (True for Fortran) and type; the rest of `size` bytes must hold them."""
    text = _header_text(stream, where)
    found = dict(re.findall(_ENTRY, text)) if _TABLE.fullmatch(text) else {}
    if len(found) != 3:
        raise CimError(
            f"{where}: is not an array of numbers or texts; its header is {text.strip()[:60]!r}"
        )
    try:
        dtype = np.dtype(found["descr"].strip("'\""))
    except TypeError:
        raise CimError(f"{where}: is of the unknown type {found['descr']}") from None
    if dtype.hasobject:
        raise CimError(
            f"{where}: holds Python objects, which are never loaded; expected numbers, in rows of "
            "one length"
        )
    if dtype.kind not in "biufcSU":
        raise CimError(f"{where}: holds {dtype}; expected numbers or texts")
    shape = tuple(map(int, re.findall(r"\d+", found["shape"])))
    require_shape(shape, dtype.itemsize, f"{where}:")
    needed, left = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if needed > left:
        raise CimError(
            f"{where}: its header says {needed} bytes of shape {list(shape)}, the file holds "
            f"{left}; it is truncated or corrupt"
        )
    return shape, found["fortran_order"] == "True", dtype


def _header_text(stream: IO[bytes], where: str) -> str:
    """The text of a header; CimError above LONGEST_HEADER bytes."""
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:7] not in (b"\x01", b"\x02", b"\x03"):
        raise CimError(f"{where}: is not a NumPy array of format 1 to 3")
    layout = "<H" if start[6] == 1 else "<I"
    packed = stream.read(struct.calcsize(layout))
    if len(packed) < struct.calcsize(layout):
        raise CimError(f"{where}: is truncated within its header")
    (length,) = struct.unpack(layout, packed)
    if length > LONGEST_HEADER:
        raise CimError(
            f"{where}: its header has {length:,} bytes; expected at most {LONGEST_HEADER:,}"
        )
    return stream.read(length).decode("latin-1")
