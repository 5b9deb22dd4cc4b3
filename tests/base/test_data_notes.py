"""Notes of data: what all reads of a file leave out, and each sentence once."""

from __future__ import annotations

from cimtool.base.data_notes import data_noted, note_data, note_unread


def test_an_array_that_any_read_takes_is_read() -> None:
    with data_noted() as notes:
        note_unread("a.npz", ("video", "audio"))
        note_unread("a.npz", ("text", "audio"))
        note_unread("b.npz", ("audio", "depth"))
        note_unread("c.npz", ())
    assert notes.sentences == ["a.npz: audio is not read", "b.npz: audio, depth are not read"]


def test_a_sentence_is_told_once_and_only_to_who_listens() -> None:
    note_data("nobody hears it")
    with data_noted() as notes:
        note_data("zeros")
        with data_noted() as inner:
            note_data("more")
        note_data("zeros")
    note_data("after it")
    assert (notes.sentences, inner.sentences) == (["zeros"], ["more"])
