"""One table, and what each renderer makes of it (the page's is tested with the page)."""

from __future__ import annotations

import pytest

from cimtool.base.escapes import markdown_text
from cimtool.report.document import Document, Picture, Section
from cimtool.report.formats import percent
from cimtool.report.markdown import markdown
from cimtool.report.table import Cell, Column, Table, make_table
from cimtool.report.terminal import table_text, terminal, wrapped

COLUMNS = (
    Column("stage"),
    Column("R@1\ntext to video", percent, "queries | whose right item is best", unit="%"),
    Column("items", str, essential=False),
)


@pytest.fixture
def table() -> Table:
    rows = [("[red]a_b", Cell("50.0", 0.5, "[40.0, 60.0]"), 7), ("exact", 0.25, None)]
    return make_table("a title", COLUMNS, rows, ["result", ""])


def test_contents_become_cells_that_sort(table: Table) -> None:
    first, second = table.rows
    assert [cell.text for cell in second.cells] == ["exact", "25.0", "-"]
    assert [cell.key for cell in first.cells] == ["0.0", "0.5", "7.0"]
    assert [cell.key for cell in second.cells] == ["1.0", "0.25", "NaN"]
    assert (first.style, second.style) == ("result", "")
    assert make_table("", COLUMNS, [("a", None, None)], absent="").rows[0].cells[1].text == ""
    assert [column.title for column in table.columns] == ["stage", "R@1 text to video, %", "items"]


def test_rows_and_columns_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        make_table("", COLUMNS, [("a", 1.0)])


def test_a_terminal_has_it_aligned_under_its_headings(table: Table) -> None:
    assert table_text(table).splitlines() == [
        "                         R@1",
        " stage      text to video, %  items",
        " ──────────────────────────────────",
        " [red]a_b  50.0 [40.0, 60.0]      7",
        " exact                  25.0      -",
    ]


def test_a_narrow_terminal_has_the_essential_and_notes_below(table: Table) -> None:
    whole = table_text(table, 34)
    assert "items" in whole
    assert "[red]a_b 50.0 [40.0, 60.0]" in whole
    narrower = table_text(table, 30)
    assert "items" not in narrower
    assert "[red]a_b 50.0 [40.0, 60.0]" in narrower
    below = table_text(table, 26).splitlines()
    assert below[3].split() == ["[red]a_b", "50.0"]
    assert below[4].split() == ["[40.0,", "60.0]"]
    assert max(map(len, table_text(table, 16).splitlines())) <= 16


def test_details_have_every_column_in_tables_below_each_other(table: Table) -> None:
    first, second = table_text(table, 30, every=True).split("\n\n")
    assert first == table_text(table, 30)
    assert [line.split() for line in second.splitlines()[::2]] == [
        ["stage", "items"],
        ["[red]a_b", "7"],
    ]
    assert table_text(table, 34, every=True) == table_text(table, 34)


def test_a_section_of_pictures_is_not_in_a_terminal(table: Table) -> None:
    drawn = Section("Drawn", (Picture("p", "<svg></svg>"),))
    assert terminal(Document("t", (drawn, table))) == terminal(Document("t", (table,)))


def test_sentences_are_wrapped_and_hold_no_markup() -> None:
    assert wrapped(["one two [b]three[/b]", "four"], 8) == "one two\n[b]three\n[/b]\nfour"


def test_markdown_escapes_words_and_leaves_figures(table: Table) -> None:
    lines = markdown(Document("t", (table,))).splitlines()
    assert lines[4:8] == [
        "| stage | R@1 text to video, % | items |",
        "|---|---:|---:|",
        "| \\[red\\]a\\_b | 50.0 [40.0, 60.0] | 7 |",
        "| exact | 25.0 | - |",
    ]
    assert "* R@1 text to video, %: queries \\| whose right item is best" in lines
    assert markdown_text("<a> & `b`") == "&lt;a> &amp; \\`b\\`"
