"""Tables and sentences for a terminal or a pipe: plain text, without colours."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich import box, table
from rich.console import Console
from rich.text import Text

from cimtool.report.table import Column, Row, Table

UNLIMITED = 10_000
"""Columns that no table has."""


def table_text(made: Table, width: int | None = None, gap: int = 2) -> str:
    """Write a table with `gap` blanks between its columns; its footnotes are left out.

    Where it does not fit into `width`, only the essential columns stay, then notes stand below
    their figures, and at last cells are folded.
    """
    text = _drawn(made.columns, made.rows, gap)
    if width is None or _widest(text) <= width:
        return text
    kept = [index for index, column in enumerate(made.columns) if column.essential]
    columns = [made.columns[index] for index in kept]
    rows = [Row(tuple(row.cells[index] for index in kept)) for row in made.rows]
    for notes_below in (False, True):
        text = _drawn(columns, rows, gap, notes_below)
        if _widest(text) <= width:
            return text
    return _drawn(columns, rows, gap, True, width)


def _drawn(
    columns: Sequence[Column],
    rows: Iterable[Row],
    gap: int,
    notes_below: bool = False,
    width: int | None = None,
) -> str:
    drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for column in columns:
        drawn.add_column(
            Text(column.lines),
            justify="right" if column.numeric else "left",
            vertical="bottom",
            no_wrap=width is None,
            overflow="fold",
        )
    for row in rows:
        below = notes_below and any(cell.note for cell in row.cells)
        texts = [f"{cell.text}\n{cell.note}" if below else cell.line for cell in row.cells]
        drawn.add_row(*map(Text, texts))
    return _printed([drawn], width or UNLIMITED).strip("\n")


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def wrapped(sentences: Iterable[str], width: int) -> str:
    """Sentences below one another, in lines of at most `width` columns."""
    return _printed(map(Text, sentences), width)


def _printed(parts: Iterable[table.Table | Text], width: int) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
