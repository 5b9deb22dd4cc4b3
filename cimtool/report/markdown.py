"""Tables, lists and folded parts in Markdown, as GitHub reads it."""

from __future__ import annotations

from collections.abc import Iterable

from cimtool.report.table import Table


def plain(text: str) -> str:
    """Text whose characters Markdown would take for markup or HTML, escaped."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return "".join(f"\\{c}" if c in "`*_[]" else c for c in escaped)


def bullets(texts: Iterable[str]) -> list[str]:
    """A list of plain texts."""
    return [f"* {plain(text)}" for text in texts]


def folded(title: str, lines: Iterable[str]) -> list[str]:
    """Lines that a reader unfolds by their title."""
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


def table_lines(made: Table) -> list[str]:
    """A table; words are escaped, numbers stand as they are."""
    numeric = [column.numeric for column in made.columns]
    rows = [
        [
            cell.line if is_number else plain(cell.line)
            for cell, is_number in zip(row.cells, numeric, strict=True)
        ]
        for row in made.rows
    ]
    titles = [column.title for column in made.columns]
    marks = [" ---: " if is_number else " --- " for is_number in numeric]
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, *rows)]
    return [lines[0], "|" + "|".join(marks) + "|", *lines[1:]]


def meanings(made: Table) -> list[str]:
    """The meanings of a table's columns, of those that give one."""
    return bullets(f"{column.title}: {column.help}" for column in made.columns if column.help)
