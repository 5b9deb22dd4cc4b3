"""The first screen of a document in a terminal."""

from cimtool.report.document import Document, Note, Section, Sentence
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
    assert lines(9) == (["Why? the inputs", warned, warned, said, said], "a table")
    assert lines(8) == (["Why? the inputs", warned, warned, said], "a table, 1 note")
    assert lines(7) == (["Why? the inputs", warned, warned], "a table, 2 notes")
    assert lines(6) == ([warned, warned], "a table, 2 notes")
    assert lines(5) == ([warned], "1 warning, a table, 2 notes")
    assert lines(4) == lines(1) == ([], "2 warnings, a table, 2 notes")
