"""Tables of a page: what its cells say, by what they sort, and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    """A column's heading and meaning; `numeric` ones are set right."""

    title: str
    meaning: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """What a cell says and the value that it sorts by, None to sort by its text; NaN comes last.

    `note` stands small behind the text, `picture`, SVG text of `charts`, before it; `style` is a
    class of the page's style: `good`, `bad`, `soft` or `long`.
    """

    text: str
    value: float | None = None
    note: str = ""
    picture: str = ""
    style: str = ""

    @property
    def key(self) -> str | None:
        """What the script sorts by: a number as it reads them, None for the text."""
        if self.value is None:
            return None
        return repr(float(self.value)).replace("inf", "Infinity").replace("nan", "NaN")


@dataclass(frozen=True)
class Line:
    """A row of cells; `style` is `result` (bold), `cause` (marked) or both, with a blank."""

    cells: tuple[Cell, ...]
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows; `caption` says what it holds."""

    caption: str
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]
    sortable: bool = True

    @property
    def meanings(self) -> tuple[Head, ...]:
        """The columns that say what they mean."""
        return tuple(head for head in self.heads if head.meaning)


def plain_table(
    caption: str, heads: Sequence[Head], rows: Sequence[Sequence[str]], sortable: bool = True
) -> Table:
    """A table of texts."""
    lines = tuple(Line(tuple(Cell(text) for text in row)) for row in rows)
    return Table(caption, tuple(heads), lines, sortable)
