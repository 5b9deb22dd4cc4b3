"""WordPiece, the tokens of BERT without capitals: the longest pieces of a vocabulary, word by word.

The numbers are those of the package `tokenizers`, which is not needed here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from itertools import islice

LONGEST_WORD = 100
"""Letters of a word; a longer one is unknown."""

IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
"""Ranges of characters that are words of their own."""


class WordPiece:
    """The numbers of the pieces of texts in a vocabulary."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self.vocabulary = vocabulary
        self.known: dict[str, tuple[int, ...]] = {}

    def numbers(self, text: str, most: int) -> list[int]:
        """The numbers of `text` between [CLS] and [SEP], at most `most` with these."""
        pieces = (number for word in words_of(text) for number in self._pieces(word))
        first, last = self.vocabulary["[CLS]"], self.vocabulary["[SEP]"]
        return [first, *islice(pieces, most - 2), last]

    def _pieces(self, word: str) -> tuple[int, ...]:
        if word not in self.known:
            self.known[word] = self._longest_pieces(word)
        return self.known[word]

    def _longest_pieces(self, word: str) -> tuple[int, ...]:
        unknown = (self.vocabulary["[UNK]"],)
        if len(word) > LONGEST_WORD:
            return unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((one for one in ends if mark + word[start:one] in self.vocabulary), None)
            if end is None:
                return unknown
            found.append(self.vocabulary[mark + word[start:end]])
            start = end
        return tuple(found)


def words_of(text: str) -> Iterator[str]:
    """The words of `text` in lower case without accents; a mark is a word."""
    word = ""
    for letter in _letters(text):
        alone = _is_mark(letter) or _is_ideograph(letter)
        if not (alone or letter.isspace()):
            word += letter
            continue
        if word:
            yield word
            word = ""
        if alone:
            yield letter
    if word:
        yield word


def _letters(text: str) -> Iterator[str]:
    """The letters in lower case, without control characters and accents."""
    for letter in text:
        category = "" if letter.isspace() else unicodedata.category(letter)
        if letter == "\ufffd" or category.startswith("C"):
            continue
        for part in unicodedata.normalize("NFD", letter):
            if unicodedata.category(part) != "Mn":
                yield from part.lower()


def _is_mark(letter: str) -> bool:
    if letter.isascii():
        return not letter.isalnum() and not letter.isspace()
    return unicodedata.category(letter).startswith("P")


def _is_ideograph(letter: str) -> bool:
    return not letter.isascii() and any(a <= ord(letter) <= b for a, b in IDEOGRAPHS)
