"""Untrusted files: only ordinary files, and a limit on the memory that reading a file may take.

Before a reader allocates memory that a header, a directory or a shape asks for, it takes the bytes
from the file's Budget. So a small file that claims to be large is refused.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import reading, require_file

MAX_MEMORY = "CIMTOOL_MAX_MEMORY"
"""The environment variable that limits the memory of reading one file, in bytes."""

RATIO, SPARE = 8, 1 << 28
"""A file may take RATIO times its own size plus SPARE bytes, unless MAX_MEMORY says otherwise."""

NUMBER = 8
"""Bytes of a number in computations; smaller numbers count as this many bytes."""

MOST_AXES = 64
"""Most axes of a NumPy array."""

LARGEST_EXTENT = 1 << 62
"""Most bytes of a NumPy array, with an extent of 0 counted as 1."""


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of an ordinary file; CimError if it has more than `most`."""
    require_file(path)
    with reading(path), path.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise CimError(
            f"{path}: has {path.stat().st_size:,} bytes; expected at most {most:,} of such a file"
        )
    return content


def require_shape(shape: Sequence[int], size: int, where: str) -> None:
    """Raise CimError starting with `where` for a shape that no NumPy array can have.

    Its numbers have `size` bytes each, and count at least NUMBER. A shape with an extent of 0 holds
    nothing and is checked too.
    """
    if len(shape) > MOST_AXES:
        raise CimError(f"{where} has {len(shape)} axes; expected at most {MOST_AXES}")
    if math.prod(max(extent, 1) for extent in shape) * max(size, NUMBER) > LARGEST_EXTENT:
        raise CimError(f"{where} has shape {list(shape)}, which no array can have")


LARGEST_HEADER = 1 << 22
"""Most bytes of a safetensors header, which takes about a hundred per tensor."""


def require_small_header(file: Path) -> None:
    """Raise CimError for a safetensors file whose header is beyond LARGEST_HEADER."""
    require_file(file)
    with reading(file), file.open("rb") as stream:
        begin = stream.read(8)
    if len(begin) == 8 and (length := struct.unpack("<Q", begin)[0]) > LARGEST_HEADER:
        raise CimError(
            f"{file}: its header has {length:,} bytes; expected at most {LARGEST_HEADER:,}, the "
            "names and shapes of tensors"
        )


END_MARK = b"PK\5\6"
DIRECTORY_END = struct.Struct("<4s4H2IH")
DIRECTORY_END_64 = struct.Struct("<4sQ2H2I4Q")
END_64_PLACE = struct.Struct("<4sIQI")
"""Records at the end of a .zip: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT."""

SHORTEST_ENDS = DIRECTORY_END_64.size + END_64_PLACE.size + DIRECTORY_END.size
LONGEST_END = DIRECTORY_END.size + (1 << 16)
"""Bytes of all three records, and of the last one with the longest comment."""

MOST_MEMBERS = 10_000
"""Most files of an archive: each takes time to open, even if it is empty."""

LARGEST_DIRECTORY = 1 << 21
"""Most bytes of an archive's directory, which takes up to a second per megabyte to read."""


def open_archive(file: Path, stream: IO[bytes]) -> zipfile.ZipFile:
    """The archive in a file's `stream`; the size of its directory is checked before it is read.

    Raises CimError if the directory is too large, or is not right before the end record, at the
    place given there: some readers search from the end, some from the beginning, so one file could
    be two archives. Raises BadZipFile for a file that is no archive.
    """
    members, length = _directory(file, stream)
    if members > MOST_MEMBERS:
        raise CimError(f"{file}: holds {members:,} files; expected {MOST_MEMBERS:,} at most")
    if length > LARGEST_DIRECTORY:
        raise CimError(
            f"{file}: its directory has {length:,} bytes; expected at most {LARGEST_DIRECTORY:,}, "
            "the names of its files"
        )
    stream.seek(0)
    archive = zipfile.ZipFile(stream)
    if len(archive.infolist()) != members:
        raise CimError(
            f"{file}: its directory has {len(archive.infolist()):,} files, but its end record says "
            f"{members:,}; it is corrupt"
        )
    return archive


def _directory(file: Path, stream: IO[bytes]) -> tuple[int, int]:
    """The number of files and of bytes in an archive's directory, by the end record."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - LONGEST_END, 0))
    end = stream.read()
    if not 0 <= end.rfind(END_MARK) <= len(end) - DIRECTORY_END.size:
        raise zipfile.BadZipFile("it has no directory of files")
    place, end = size - DIRECTORY_END.size, end[-SHORTEST_ENDS:]
    mark, *_, members, length, start, comment = DIRECTORY_END.unpack(end[-DIRECTORY_END.size :])
    end = end[: -DIRECTORY_END.size]
    if mark == END_MARK and not comment and end[-END_64_PLACE.size :][:4] == b"PK\6\7":
        place -= END_64_PLACE.size + DIRECTORY_END_64.size
        _, _, said, _ = END_64_PLACE.unpack(end[-END_64_PLACE.size :])
        mark, *_, members, length, start = DIRECTORY_END_64.unpack(end[: DIRECTORY_END_64.size])
        if said != place or mark != b"PK\6\6":
            start = -1
    elif mark != END_MARK or comment:
        start = -1
    if start < 0 or start + length != place:
        raise CimError(
            f"{file}: its directory is not where its end record says, or a comment follows; "
            "expected one archive, with nothing before or after it"
        )
    return members, length


@dataclass
class Budget:
    """The bytes that reading a file may still take, of `limit` in all."""

    limit: int
    left: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The whole budget of an ordinary file; CimError for any other."""
        require_file(path)
        said = os.environ.get(MAX_MEMORY)
        with naming(MAX_MEMORY):
            limit = RATIO * path.stat().st_size + SPARE if said is None else memory_size(said)
        return cls(limit, limit)

    def take(self, count: int, size: int, where: str) -> None:
        """Take `count` numbers of `size` bytes; CimError starting with `where` if too many."""
        needed = count * max(size, NUMBER)
        if needed > self.left:
            raise ArgumentError(
                "{} needs {:,} bytes of memory, but reading its file may use {:,}; expected less, "
                "or a larger {max_memory}",
                where,
                needed,
                self.limit,
            )
        self.left -= needed

    def take_file(self, path: Path) -> None:
        """Take a file's size, before the file is read whole."""
        self.take(-(-path.stat().st_size // NUMBER), NUMBER, f"{path}: it")


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """Let reading each file take at most `limit` bytes, here and in processes started inside.

    None leaves the limit as it is.
    """
    before = os.environ.get(MAX_MEMORY)
    if limit is not None:
        os.environ[MAX_MEMORY] = str(limit)
    try:
        yield
    finally:
        if before is not None:
            os.environ[MAX_MEMORY] = before
        elif limit is not None:
            del os.environ[MAX_MEMORY]


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_size(text: str) -> int:
    """The bytes of `4G`, `512M` or `1000000`; CimError for anything else."""
    number, unit = (text, "") if text[-1:].isdigit() else (text[:-1], text[-1:].upper())
    if not (number.isascii() and number.isdigit() and len(number) < 20 and unit in UNITS):
        raise CimError(
            f'"{text}" is not an amount of memory; expected bytes, such as 500000000, 512M or 4G'
        )
    if (size := int(number) * UNITS[unit]) >= 1 << 63:
        raise CimError(f'"{text}" is too much memory; expected less than 2^63 bytes')
    return size
