"""The rule for names: what keeps it, and what is made of a text that does not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.base.name_rule import NAME, clean_name, require_name


@pytest.mark.parametrize("name", ["a", "_a", "0", "text.fc1.2", "isaac-rram-128", "x" * 100])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    require_name(name, "here")
    assert clean_name(name) == name


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", '""'),
        (".", '"."'),
        ("-o", '"-o"'),
        ("../../../x", '"../../../x"'),
        ("a b", '"a b"'),
        ("a\n", r'"a\n"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("\u00e9t\u00e9", r'"\u00e9t\u00e9"'),
        ("x */ int y;", '"x */ int y;"'),
        ("x" * 101, f'"{"x" * 56}...'),
        (None, "null"),
        (3, "3"),
    ],
)
def test_any_other_value_is_refused(value: object, said: str) -> None:
    with pytest.raises(CimError) as caught:
        require_name(value, "model.name")
    assert str(caught.value) == (
        f"model.name is {said}; expected a name of at most 100 letters (a to z), digits, dots, "
        "dashes and underscores, with no dot or dash first"
    )


@given(st.text(st.characters(codec=None), max_size=300))
def test_every_text_has_a_name(text: str) -> None:
    name = clean_name(text)
    require_name(name, "here")
    assert clean_name(name) == name == clean_name(text)
    assert name == text or re.fullmatch(r".+-[0-9a-f]{8}", name)


@given(st.lists(st.text(max_size=120), unique=True, min_size=2))
def test_two_texts_have_two_names(texts: list[str]) -> None:
    assert len({clean_name(text) for text in texts}) == len(texts)


def test_what_can_be_read_of_a_text_stays() -> None:
    assert clean_name("my model@home") == "my_model_home-8d23c185"
    assert NAME.fullmatch(clean_name("\u6a21\u578b")) is not None
