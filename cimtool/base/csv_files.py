"""Tables of numbers in CSV files of any length, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.escapes import number_of
from cimtool.base.files import reading, require_file
from cimtool.base.named import nearest

BLOCK = 1 << 22
"""Bytes of a file that are held as text at a time."""

LONGEST_LINE = 1 << 12
MOST_COLUMNS = 64


@dataclass(frozen=True)
class CsvColumn:
    """Allowed values of a column: from `lo` to `hi`, only integers if `whole`, or one of `words`.

    A word stands for its number.
    """

    lo: float
    hi: float
    whole: bool = False
    words: Mapping[str, float] | None = None

    @property
    def expected(self) -> str:
        """The allowed values, for a sentence."""
        if self.words is not None:
            return " or ".join(self.words)
        return f"{'an integer' if self.whole else 'a number'} from {self.lo:.10g} to {self.hi:.10g}"

    def number(self, text: str) -> float:
        """The number of a field; ValueError if the column does not allow it."""
        if self.words is not None:
            value = self.words.get(text.strip(" \t"), np.nan)
        else:
            value = number_of(text)
        if self.wrong(np.array(value)):
            raise ValueError(text)
        return value

    def wrong(self, values: FloatArray) -> BoolArray:
        """True for numbers that the column does not allow."""
        inside = (values >= self.lo) & (values <= self.hi)
        outside: BoolArray = ~inside if not self.whole else ~(inside & (values == np.rint(values)))
        return outside


@dataclass(frozen=True, eq=False)
class CsvRows:
    """Rows of a table [n] by column name; `first` is the line of the first row."""

    file: Path
    first: int
    columns: Mapping[str, FloatArray]

    def error(self, row: int, sentence: str) -> CimError:
        """Build the error of a row."""
        return CimError(f"{self.file}: line {self.first + row}: {sentence}")


def header_of(file: Path) -> tuple[str, ...]:
    """The names in a file's first line; CimError if it has none, too many, or one twice."""
    require_file(file)
    with reading(file), file.open("rb") as stream:
        return _header(file, stream)


def read_table(
    file: Path, columns: Mapping[str, CsvColumn], beside: Collection[str] = ()
) -> Iterator[CsvRows]:
    """Yield the rows of a file whose first line names its columns; columns `beside` are not read.

    Raises CimError for a value that its column does not allow, naming line and column, and for a
    missing or unknown column.
    """
    require_file(file)
    with reading(file), file.open("rb") as stream:
        names = _header(file, stream)
        known = [*columns, *beside]
        for name in names:
            if name not in known:
                raise CimError(
                    f"{file}: line 1: has a column {name or '(empty)'}; expected "
                    f"{', '.join(known)}{nearest(name, known)}"
                )
        for name in columns:
            if name not in names:
                raise CimError(f"{file}: line 1: has no column {name}; expected one")
        for first, lines in _blocks(file, stream):
            yield _parsed(file, first, lines, names, columns)


def _header(file: Path, stream: IO[bytes]) -> tuple[str, ...]:
    content = stream.readline(LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        raise CimError(f"{file}: line 1: is longer than {LONGEST_LINE} bytes")
    line = _text(file, 1, content.removeprefix(b"\xef\xbb\xbf"))
    names = tuple(name.strip() for name in line.split(","))
    if names == ("",) or len(names) > MOST_COLUMNS:
        raise CimError(f"{file}: line 1: is not a line of column names separated by commas")
    for one, other in pairwise(sorted(names)):
        if one == other:
            raise CimError(f"{file}: line 1: names column {one} twice; expected it once")
    return names


def _blocks(file: Path, stream: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks of lines, each with the number of its first line."""
    number, rest = 2, b""
    while block := stream.read(BLOCK):
        block = rest + block
        cut = block.rfind(b"\n") + 1
        rest = block[cut:]
        if len(rest) > LONGEST_LINE:
            lines = number + block[:cut].count(b"\n")
            raise CimError(f"{file}: line {lines}: is longer than {LONGEST_LINE} bytes")
        lines_here = _text(file, number, block[:cut]).split("\n")[:-1]
        if lines_here:
            yield number, lines_here
        number += len(lines_here)
    if rest.strip():
        yield number, [_text(file, number, rest)]


def _text(file: Path, number: int, block: bytes) -> str:
    try:
        return block.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = number + block[: error.start].count(b"\n")
        raise CimError(f"{file}: line {line}: is not plain text; expected ASCII") from None


def _parsed(
    file: Path, first: int, lines: list[str], names: Sequence[str], columns: Mapping[str, CsvColumn]
) -> CsvRows:
    places = [names.index(name) for name in columns]
    words: dict[int | str, Callable[[str], float]] = {
        place: column.number
        for place, column in zip(places, columns.values(), strict=True)
        if column.words is not None
    }
    try:
        values: FloatArray = np.loadtxt(
            lines,
            dtype=np.float64,
            delimiter=",",
            comments=None,
            ndmin=2,
            usecols=places,
            converters=words or None,
        )
        wrong = [one.wrong(v) for one, v in zip(columns.values(), values.T, strict=True)]
        commas = sum(line.count(",") for line in lines)
        if commas != len(lines) * (len(names) - 1) or len(values) != len(lines) or np.any(wrong):
            raise ValueError
    except ValueError:
        raise _first_error(file, first, lines, names, columns) from None
    return CsvRows(file, first, dict(zip(columns, np.ascontiguousarray(values.T), strict=True)))


def _first_error(
    file: Path, first: int, lines: list[str], names: Sequence[str], columns: Mapping[str, CsvColumn]
) -> CimError:
    """The error of the first wrong line, found value by value."""
    for number, line in enumerate(lines, first):
        fields = line.split(",")
        if len(fields) != len(names):
            held = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
            return CimError(
                f"{file}: line {number}: has {held}; expected {len(names)}, {','.join(names)}"
            )
        for name, text in zip(names, fields, strict=True):
            try:
                if name in columns:
                    columns[name].number(text)
            except ValueError:
                shown = text.strip(" \t")[:40] or "empty"
                said = f"{file}: line {number}: {name} is {shown}; expected "
                return CimError(said + columns[name].expected)
    return CimError(f"{file}: lines {first} to {first + len(lines) - 1} are not numbers")
