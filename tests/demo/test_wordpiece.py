from __future__ import annotations

import pytest

from cimtool.demo.wordpiece import WordPiece, words_of

NAMES = ("[UNK]", "[CLS]", "[SEP]", "re", "##turn", "##s", "return", "the", "_", ".", "x")
PIECES = WordPiece({name: number for number, name in enumerate(NAMES)})


def named(text: str, most: int = 99) -> list[str]:
    return [NAMES[number] for number in PIECES.numbers(text, most)]


def test_the_longest_piece_of_a_word_comes_first() -> None:
    assert named("Returns the.") == ["[CLS]", "return", "##s", "the", ".", "[SEP]"]
    assert named("rereturns") == ["[CLS]", "[UNK]", "[SEP]"]  # re, then nothing begins with ##re
    assert named("the x_x") == ["[CLS]", "the", "x", "_", "x", "[SEP]"]


def test_a_long_text_keeps_its_first_tokens() -> None:
    assert named("the the the the", 4) == ["[CLS]", "the", "the", "[SEP]"]
    assert named("") == ["[CLS]", "[SEP]"]


def test_a_very_long_word_is_unknown() -> None:
    assert named("the" * 40) == ["[CLS]", "[UNK]", "[SEP]"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Naïve  Ünïcode—dash", ["naive", "unicode", "—", "dash"]),
        ("a\x00b\tc\u200dd", ["ab", "cd"]),
        ("x≈y 漢字", ["x≈y", "漢", "字"]),
        ("f(x)=3.5", ["f", "(", "x", ")", "=", "3", ".", "5"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words
