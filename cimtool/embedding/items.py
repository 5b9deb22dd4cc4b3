"""The items of a table, of a file of lines or of a folder: texts, and paths of images."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import require_file
from cimtool.base.json_files import parse_json
from cimtool.base.named import nearest
from cimtool.base.untrusted import read_bounded

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES, LINES = ".jsonl", ".txt"

LARGEST_TABLE = 1 << 30
"""Most bytes of a file of items."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
"""Endings of the names of images in a folder, in small or capital letters."""


@dataclass(frozen=True)
class EncoderItems:
    """The items of one modality, `text` or `image`, and the place of each for messages.

    An image is the path of a file, as it is written, below `folder`.
    """

    modality: str
    column: str | None
    values: Sequence[str]
    places: Sequence[str]
    folder: Path

    def path(self, row: int) -> Path:
        """The file of an image."""
        return self.folder / self.values[row]

    def once(self) -> tuple[EncoderItems, IntArray]:
        """The items without repeats, and the new row [n] of each."""
        rows = {value: row for row, value in enumerate(dict.fromkeys(self.values))}
        places = dict(zip(reversed(self.values), reversed(self.places), strict=True))  # the first
        kept = replace(self, values=tuple(rows), places=tuple(places[value] for value in rows))
        return kept, np.array([rows[value] for value in self.values], np.int64)


def read_items(source: Path, text: str | None, image: str | None) -> list[EncoderItems]:
    """Read the columns `text` and `image` of a file, as far as they are named; or a folder.

    Raises CimError for a missing column, a blank cell and an image that is no ordinary file.
    """
    if source.is_dir():
        return [_images_in(source, text, image)]
    if source.suffix == LINES:
        if text is not None or image is not None:
            raise ArgumentError(
                "{}: is a text a line, without columns; expected neither {text} nor {image}", source
            )
        return [_lines_of(source)]
    columns = {"text": text, "image": image}
    wanted = {modality: name for modality, name in columns.items() if name is not None}
    if not wanted:
        raise ArgumentError("{}: is a table; expected {text}, {image} or both, columns", source)
    content = _text_of(source)
    if source.suffix in DELIMITERS:
        rows = list(_table_rows(source, content, list(wanted.values())))
    elif source.suffix == JSON_LINES:
        rows = list(_object_rows(source, content, list(wanted.values())))
    else:
        known = ", ".join((*DELIMITERS, JSON_LINES, LINES))
        raise CimError(f"{source}: is no file of items; expected {known}, or a folder of images")
    if not rows:
        raise CimError(f"{source}: has no rows; expected at least one")
    places = [f"{source}: line {number}" for number, _ in rows]
    return [
        _checked(
            EncoderItems(modality, name, [row[name] for _, row in rows], places, source.parent)
        )
        for modality, name in wanted.items()
    ]


def _text_of(source: Path) -> str:
    content = read_bounded(source, LARGEST_TABLE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CimError(f"{source}: line {line}: is not UTF-8") from None


def _images_in(folder: Path, text: str | None, image: str | None) -> EncoderItems:
    if text is not None or image is not None:
        raise ArgumentError(
            "{}: is a folder of images, without columns; expected neither {text} nor {image}",
            folder,
        )
    files = [one for one in folder.rglob("*") if one.suffix.lower() in IMAGE_SUFFIXES]
    names = sorted(one.relative_to(folder).as_posix() for one in files)
    if not names:
        raise CimError(f"{folder}: holds no image; expected {', '.join(IMAGE_SUFFIXES)}")
    return _checked(
        EncoderItems("image", None, names, [str(folder / one) for one in names], folder)
    )


def _lines_of(source: Path) -> EncoderItems:
    lines = _text_of(source).replace("\r\n", "\n").removesuffix("\n")
    texts = lines.split("\n")
    places = [f"{source}: line {number}" for number in range(1, len(texts) + 1)]
    return _checked(EncoderItems("text", None, texts, places, source.parent))


def _table_rows(
    source: Path, content: str, wanted: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number of the last line of each row, and its cells by column."""
    table = csv.reader(io.StringIO(content, ""), delimiter=DELIMITERS[source.suffix], strict=True)
    try:
        names = next(table, [])
        _require_columns(f"{source}: line 1", names, wanted)
        for cells in table:
            if cells and len(cells) != len(names):
                raise CimError(
                    f"{source}: line {table.line_num}: has {len(cells)} cells; expected "
                    f"{len(names)}, as many as the first line has"
                )
            if cells:
                yield table.line_num, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise CimError(f"{source}: line {table.line_num}: is no row of a table: {error}") from None


def _require_columns(place: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise CimError unless every wanted column is there once."""
    for name in wanted:
        if names.count(name) != 1:
            had = "has no column" if name not in names else "has more than one column"
            raise CimError(
                f"{place}: {had} {name}; it has {', '.join(names[:8]) or 'none'}"
                f"{'' if name in names else nearest(name, names)}"
            )


def _object_rows(
    source: Path, content: str, wanted: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number of each line, and its values by key."""
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{source}: line {number}"
        try:
            values = parse_json(line)
        except ValueError as error:
            raise CimError(f"{place}: is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise CimError(f"{place}: holds no object; expected one a line")
        _require_columns(place, list(values), wanted)
        for name in wanted:
            if not isinstance(values[name], str):
                raise CimError(f"{place}: {name} is not a text; expected one")
        yield number, values


def _checked(items: EncoderItems) -> EncoderItems:
    """The items; CimError for a blank one, and for an image that is no ordinary file."""
    name = items.column or items.modality
    for row, (value, place) in enumerate(zip(items.values, items.places, strict=True)):
        if not value.strip():
            kind = "a text" if items.modality == "text" else "the path of an image"
            raise CimError(f"{place}: {name} is blank; expected {kind}")
        if items.modality == "image":
            require_file(items.path(row))
    return items
