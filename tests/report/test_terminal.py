"""The first screen of a document in a terminal."""

from cimtool.report.document import Document, Note, Section, Sentence
from cimtool.report.table import Column, make_table
from cimtool.report.terminal import fitted, left_out, terminal


def test_what_makes_a_first_screen_too_long_is_left_to_the_rest() -> None:
    note, warning = Note("a remark"), Note("warning: the rows clip")
    card = Section("Why?", (Sentence("the inputs", "verdict"), Sentence("next", "detail")))
    verdict = [Sentence(f"verdict {number}", "verdict") for number in range(3)]
    document = Document("title", (*verdict, warning, warning, note, note, card))

    def lines(most: int) -> tuple[list[str], str]:
        found = fitted(document, 80, most)
        return terminal(found, 80).splitlines()[4:], left_out(found, 80)

    warned, said = "* warning: the rows clip", "* a remark"
    assert lines(9) == (["Why? the inputs", warned, warned, said, said], "1 section")
    assert lines(8) == (["Why? the inputs", warned, warned, said], "1 section, 1 note")
    assert lines(7) == (["Why? the inputs", warned, warned], "1 section, 2 notes")
    assert lines(6) == ([warned, warned], "1 section, 2 notes")
    assert lines(5) == ([warned], "1 warning, 1 section, 2 notes")
    assert lines(4) == lines(1) == ([], "2 warnings, 1 section, 2 notes")


def test_a_table_keeps_two_rows_and_one_in_a_section_goes_whole() -> None:
    rows = make_table("", [Column("figure"), Column("value")], [(name, 1) for name in "abcd"])
    table = rows.named("rows", "verdict")
    inside = Section("Why?", (Section("", (table,)), Sentence("the inputs", "verdict")))
    found = fitted(Document("title", (inside, table)), 80, 1)
    assert terminal(found, 80).splitlines()[3:] == [" a       1", " b       1"]
