from __future__ import annotations

from abc import abstractmethod

import pytest

from cimtool.base.errors import CimError
from cimtool.base.named import Named, nearest, unknown

TARGETS = ("colonnade-65nm", "hermes-pcm-14nm", "ideal", "isaac-rram-128")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("isac", "isaac-rram-128"), ("hermes", "hermes-pcm-14nm"), ("idael", "ideal")],
)
def test_the_nearest_name_is_suggested(wrong: str, right: str) -> None:
    assert nearest(wrong, TARGETS) == f'; did you mean "{right}"?'


@pytest.mark.parametrize("wrong", ["xyz", ""])
def test_what_is_near_nothing_gets_no_suggestion(wrong: str) -> None:
    assert nearest(wrong, TARGETS) == ""
    assert nearest(wrong, ()) == ""


def test_a_short_beginning_in_common_is_not_near() -> None:
    assert nearest("foo", ("format_version", "bundle")) == ""
    assert nearest("form", ("format_version", "bundle")) == '; did you mean "format_version"?'


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert str(unknown("colour", "grean", ("red", "green"))) == (
        'colour "grean" is not known: green, red; did you mean "green"?'
    )


def test_an_empty_list_is_said_in_words() -> None:
    class Shape(Named):
        pass

    assert str(unknown("colour", "red", ())) == 'colour "red" is not known: there are none'
    sentence = '^shape "round" is not known: nothing that is installed here offers one$'
    with pytest.raises(CimError, match=sentence):
        Shape.named("round", "shape")


def test_classes_are_found_by_name_and_names_are_taken_once() -> None:
    class Shape(Named):
        pass

    class Round(Shape, name="round"):
        pass

    assert Shape.named("round", "shape") is Round
    with pytest.raises(CimError, match='shape "ronud" is not known: round; did you mean "round"'):
        Shape.named("ronud", "shape")
    with pytest.raises(TypeError, match="named 'round'"):

        class Other(Shape, name="round"):
            pass


def test_a_class_between_base_and_names_has_the_same_family() -> None:
    class Shape(Named):
        pass

    class Cornered(Shape):
        pass

    class Square(Cornered, name="square"):
        pass

    class Round(Shape, name="round"):
        pass

    assert Shape.family == {"square": Square, "round": Round} == Cornered.family


def test_a_class_without_a_method_that_its_base_asks_for_takes_no_name() -> None:
    class Shape(Named):
        @classmethod
        @abstractmethod
        def of(cls) -> Shape:
            """The usual one."""

        @property
        @abstractmethod
        def area(self) -> float:
            """The area."""

    class Cornered(Shape):
        area = 1.0

    with pytest.raises(TypeError, match=r"^class Square lacks of$"):

        class Square(Cornered, name="square"):
            pass

    with pytest.raises(TypeError, match=r"^class Round lacks of and area$"):

        class Round(Shape, name="round"):
            pass

    assert Shape.family == {}
