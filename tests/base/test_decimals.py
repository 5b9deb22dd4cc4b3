"""Numbers in a user's text: ASCII digits, and nothing that Python's own readers take beside."""

from __future__ import annotations

import math
import re

import pytest

from cimtool.base.decimals import integer_of, number_of


def test_integers_and_numbers() -> None:
    assert [integer_of(text) for text in ("0", "-12", "+7", " 3\t")] == [0, -12, 7, 3]
    texts = ("1", ".5", "2.", "-1e-3", "1E5")
    assert [number_of(text) for text in texts] == [1, 0.5, 2, -1e-3, 1e5]
    assert number_of("-inf") == -math.inf
    assert math.isnan(number_of("NaN"))


@pytest.mark.parametrize("text", ["1_0", "٣", "１", " ", "-", "1\n", "0x1", "1 0", "²"])
def test_what_is_no_number(text: str) -> None:
    for read in (integer_of, number_of):
        with pytest.raises(ValueError, match=re.escape(text)):
            read(text)


def test_an_integer_has_no_point() -> None:
    with pytest.raises(ValueError, match=r"1\.0"):
        integer_of("1.0")
