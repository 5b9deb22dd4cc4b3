"""Tables, which a renderer writes for each medium: terminal, Markdown, HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from cimtool.base.intervals import Change
from cimtool.report.formats import NOTHING, NumberFormat


@dataclass(frozen=True)
class Cell:
    """The text of a cell and the value that it sorts by: None for the text itself; NaN comes last.

    `note`, usually an interval, follows the text in small type. `picture`, SVG text of `charts`,
    comes before it. `style` is a class of the page's style: `good`, `bad` or `long`.
    """

    text: str
    value: float | None = None
    note: str = ""
    picture: str = ""
    style: str = ""

    @property
    def key(self) -> str | None:
        """The value in the form that the page's script reads, None to sort by the text."""
        if self.value is None:
            return None
        return repr(float(self.value)).replace("inf", "Infinity").replace("nan", "NaN")

    @property
    def line(self) -> str:
        """Text and note in one line."""
        return f"{self.text} {self.note}" if self.note else self.text


Content = str | float | Cell | None
"""A text, a number for its column's `form`, a finished cell, or nothing."""


def interval_cell(value: Change | None, form: NumberFormat) -> Content:
    """A number and its interval; nothing if it is not known."""
    if value is None:
        return None
    return Cell(form(value.value), value.value, f"[{form(value.low)}, {form(value.high)}]")


Item = TypeVar("Item")


@dataclass(frozen=True)
class Column:
    """A column: its heading, its unit, the `form` of its numbers, and its meaning (`help`).

    Without `form` it holds words, which are aligned left. A heading may have several lines, to keep
    the table narrow; only `essential` columns stay on a narrow terminal.
    """

    heading: str
    form: NumberFormat | None = None
    help: str = ""
    unit: str = ""
    essential: bool = True

    @property
    def title(self) -> str:
        """Heading and unit in one line."""
        return self.lines.replace("\n", " ")

    @property
    def lines(self) -> str:
        """Heading and unit in the heading's lines."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    @property
    def numeric(self) -> bool:
        """True for a column of numbers, which are aligned right."""
        return self.form is not None

    def cell(self, content: Content, absent: str = NOTHING) -> Cell:
        """The cell of a content: numbers sort by their value; None is written as `absent`."""
        if isinstance(content, Cell):
            return content
        if isinstance(content, str):
            return Cell(content)
        if content is None:
            return Cell(absent, math.nan)
        return Cell((self.form or str)(content), content)


ItemColumns = Iterable[tuple[Column, Callable[[Item], Content]]]
"""Columns, each with a function for its content of an item."""


@dataclass(frozen=True)
class Row:
    """A row of cells; `style` is `result` (bold), `cause` (marked), or both and a blank.

    Only `essential` rows are on a terminal's first screen.
    """

    cells: tuple[Cell, ...]
    style: str = ""
    essential: bool = True


BlockLevel = Literal["verdict", "shown", "detail"]
"""The place of a block in a document: first, always there, or only on request."""


@dataclass(frozen=True)
class Table:
    """A table with a `title`; its first column names the rows and sorts in their original order.

    `footnotes` are sentences below it; a `sortable` table sorts by its headings on a page. `name`
    selects it as a data frame.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...] = ()
    sortable: bool = True
    name: str = ""
    level: BlockLevel = "shown"

    def named(self, name: str, level: BlockLevel = "shown") -> Table:
        """The table with a name and a level."""
        return replace(self, name=name, level=level)

    def keeping(self, essential: Iterable[bool]) -> Table:
        """The table with the rows that a first screen has marked."""
        marked = zip(self.rows, essential, strict=True)
        return replace(self, rows=tuple(replace(row, essential=one) for row, one in marked))


def make_table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Content]],
    styles: Sequence[str] | None = None,
    footnotes: Sequence[str] = (),
    absent: str = NOTHING,
    sortable: bool = True,
) -> Table:
    """Make a table from the contents of its `rows`, with their `styles` if given."""
    made = []
    for index, contents in enumerate(rows):
        cells = [c.cell(content, absent) for c, content in zip(columns, contents, strict=True)]
        cells[0] = Cell(cells[0].text, index)
        made.append(Row(tuple(cells), styles[index] if styles else ""))
    return Table(title, tuple(columns), tuple(made), tuple(footnotes), sortable)


def item_table(
    title: str,
    items: Iterable[Item],
    columns: ItemColumns[Item],
    style: Callable[[Item], str] = lambda _: "",
    essential: Callable[[Item], bool] = lambda _: True,
) -> Table:
    """Make a table with a row per item.

    `columns` give the contents, `style` the row's style, `essential` whether the first screen has
    it.
    """
    items = list(items)
    headings, contents = zip(*columns, strict=True)
    rows = [[content(item) for content in contents] for item in items]
    styles = [style(item) for item in items]
    return make_table(title, headings, rows, styles).keeping(map(essential, items))
