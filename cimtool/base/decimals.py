"""Numbers that a user writes as text: ASCII digits alone.

Python's own `int` and `float` also take `1_0`, which is a typing error here, and the digits of
other scripts.
"""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE
)


def integer_of(text: str) -> int:
    """The integer that a text is, blanks and tabs around it left out; ValueError for any other."""
    return int(_matched(_INTEGER, text))


def number_of(text: str) -> float:
    """The number that a text is, such as `1e-3` or `nan`; ValueError as for `integer_of`."""
    return float(_matched(_NUMBER, text))


def _matched(pattern: re.Pattern[str], text: str) -> str:
    number = text.strip(" \t")
    if pattern.fullmatch(number) is None:
        raise ValueError(text)
    return number
