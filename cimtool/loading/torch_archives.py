"""The content of an archive of `torch.save`, read without torch if it holds plain tensors.

Loading torch takes longer than reading most checkpoints. `plain_pickle` tells what a pickle makes
and runs none of it; an archive with only containers, plain values, and tensors whose numbers follow
one another needs nothing else. torch reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.untrusted import open_archive
from cimtool.loading import pickles
from cimtool.loading.pickles import PickledValue

STORAGES = {
    **{"Float": np.float32, "Double": np.float64, "Half": np.float16},
    **{"BFloat16": ml_dtypes.bfloat16, "Long": np.int64, "Int": np.int32, "Short": np.int16},
    **{"Char": np.int8, "Byte": np.uint8, "Bool": np.bool_},
}
"""Types of numbers, by the names of torch's storages: `torch.FloatStorage` is `Float`."""

VERSION = b"3\n"
"""The version of all archives that torch.save has written."""

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The start of a member: its mark, and the lengths of its name and of what follows that."""

MOST_LEVELS = 64
"""Levels of nested containers; torch reads deeper ones."""


class UnusualArchive(Exception):
    """It holds more than plain tensors and values: torch must read it."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's numbers in a file: their type, their shape, and the byte at which they begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    place: int

    @property
    def size(self) -> int:
        """The number of its numbers."""
        return math.prod(self.shape)

    def of(self, numbers: Array) -> Array:
        """Its array, a part of a file's `numbers` [bytes]."""
        end = self.place + self.size * self.dtype.itemsize
        return numbers[self.place : end].view(self.dtype).reshape(self.shape)


def read_plain(file: Path, stream: IO[bytes], value: PickledValue) -> Any:
    """The value in an archive, the `stream` of a file, with a StoredTensor for each tensor.

    Raises UnusualArchive if torch must read it.
    """
    try:
        with open_archive(file, stream) as archive:
            members = {one.filename.lower(): one for one in archive.infolist()}
            folder = next(iter(members)).partition("/")[0]
            known = {"version": VERSION, "byteorder": sys.byteorder.encode()}
            if (
                len(members) < len(archive.infolist())
                or f"{folder}/data.pkl" not in members
                or f"{folder}/version" not in members
                or any(
                    archive.read(members[f"{folder}/{name}"]) != content
                    for name, content in known.items()
                    if f"{folder}/{name}" in members
                )
            ):
                raise UnusualArchive
        records = _Records(stream, members, f"{folder}/data/", stream.seek(0, os.SEEK_END))
        return _Content(records).plain(value)
    except UNREADABLE as error:
        raise UnusualArchive from error


UNREADABLE = (
    *(OSError, zipfile.BadZipFile, struct.error, RuntimeError, EOFError),
    *(LookupError, ValueError, TypeError, AttributeError),
)
"""Errors of reading on bytes that are no such archive."""


@dataclass(frozen=True)
class _Records:
    """The records of numbers in an archive, the members whose names begin with `data`."""

    stream: IO[bytes]
    members: Mapping[str, zipfile.ZipInfo]
    data: str
    end: int

    def place(self, key: object, size: int) -> int:
        """The byte at which a record of at least `size` bytes begins."""
        member = self.members[f"{self.data}{key}"]
        self.stream.seek(member.header_offset)
        mark, name, extra = LOCAL_HEADER.unpack(self.stream.read(LOCAL_HEADER.size))
        place: int = member.header_offset + LOCAL_HEADER.size + name + extra
        if mark != b"PK\3\4" or size > member.file_size or place + member.file_size > self.end:
            raise UnusualArchive
        return place


@dataclass
class _Content:
    """Makes values from what is known of them; one that occurs several times is made once."""

    records: _Records
    made: dict[int, Any] = field(default_factory=dict)

    def plain(self, value: PickledValue, level: int = 0) -> Any:
        """The value: a dictionary, a list (also of a tuple), a StoredTensor, or a plain value."""
        known = id(value)
        if known in self.made:
            return self.made[known]
        if level > MOST_LEVELS:
            raise UnusualArchive
        parts = value.parts
        match value.kind:
            case "number" | "text" | "constant":
                return value.own
            case "tensor":
                self.made[known] = self._tensor(value)
            case "list" | "tuple":
                self.made[known] = found = []  # before its parts: it may be one of them
                found += [self.plain(one, level + 1) for one in parts]
            case "dict" | pickles.ORDERED if not value.operands:
                self.made[known] = table = dict[object, Any]()
                for key, part in zip(parts[::2], parts[1::2], strict=True):
                    if key.kind not in ("number", "text"):
                        raise UnusualArchive
                    table[key.own] = self.plain(part, level + 1)
            case _:
                raise UnusualArchive
        return self.made[known]

    def _tensor(self, value: PickledValue) -> StoredTensor:
        """A tensor whose numbers follow one another in its storage."""
        if value.own == "torch._utils._rebuild_parameter":
            found = self.plain(value.operands[0])
            if not isinstance(found, StoredTensor):
                raise UnusualArchive
            return found
        if value.own != "torch._utils._rebuild_tensor_v2" or len(value.operands) != OPERANDS:
            raise UnusualArchive
        storage, *operands = value.operands[:4]
        offset, *axes = (self._whole(one) for one in operands)
        (first,), (shape, strides) = offset, axes
        kind, key, count = (storage.operands[i].own for i in (1, 2, 4))
        dtype = np.dtype(STORAGES[str(kind).removeprefix("torch.").removesuffix("Storage")])
        assert isinstance(count, int)  # `plain_pickle` has checked it
        if not 0 < math.prod(shape) <= count - first or not _follow(shape, strides):
            raise UnusualArchive
        place = self.records.place(key, count * dtype.itemsize)
        return StoredTensor(dtype, shape, place + first * dtype.itemsize)

    def _whole(self, value: PickledValue) -> tuple[int, ...]:
        """A number, or a tuple of them, each an integer of at least 0."""
        parts = value.parts if value.kind == "tuple" else [value]
        found = tuple(one.own for one in parts if type(one.own) is int and one.own >= 0)
        if len(found) < len(parts):
            raise UnusualArchive
        return found


OPERANDS = 6
"""Operands of the function that makes a tensor; a seventh one says more of it."""


def _follow(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if the numbers of a tensor follow one another in the order of its axes."""
    step = 1
    for extent, stride in zip(shape[::-1], strides[::-1], strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True
