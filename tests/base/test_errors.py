"""Sentences that name arguments, for callers and for the command line; warnings taken."""

from __future__ import annotations

import pickle
import warnings

import pytest

from cimtool.base.errors import (
    Argument,
    ArgumentError,
    CimError,
    CimWarning,
    naming,
    taking_warnings,
)


def flag(argument: str) -> str:
    return f"--{argument}"


def test_an_argument_is_called_by_its_name_or_as_the_caller_says() -> None:
    error = ArgumentError("{top} is {:g}; expected it without {noise}", 3)
    assert str(error) == "top is 3; expected it without noise"
    assert error.sentence(flag) == "--top is 3; expected it without --noise"


def test_a_value_is_no_argument_whatever_it_holds() -> None:
    error = ArgumentError("{}: {top} is {}", "{noise}.npz", "{0}")
    assert error.sentence(flag) == "{noise}.npz: --top is {0}"


def test_an_argument_and_an_error_may_be_values() -> None:
    inner = ArgumentError("{} is {!r}", Argument("seed"), -1)
    error = ArgumentError("point 3: {}", inner)
    assert str(error) == "point 3: seed is -1"
    assert error.sentence(flag) == "point 3: --seed is -1"
    assert pickle.loads(pickle.dumps(error)).sentence(flag) == error.sentence(flag)


def test_a_plain_sentence_is_no_template() -> None:
    assert CimError("a{b}: {c}").sentence(flag) == "a{b}: {c}"


def test_a_file_is_put_before_a_sentence_with_its_arguments() -> None:
    with pytest.raises(CimError) as caught, naming("{x}.npz"):
        raise ArgumentError("{batch} is {}", 4)
    assert caught.value.sentence(flag) == "{x}.npz: --batch is 4"


def test_those_that_are_not_taken_are_shown_as_before() -> None:
    taken: list[str] = []

    def take(told: str, category: type[Warning]) -> bool:
        taken.append(told)
        return issubclass(category, CimWarning)

    def warned() -> None:
        with taking_warnings(take):
            warnings.warn("of its own", CimWarning, stacklevel=1)
            warnings.warn("of another", UserWarning, stacklevel=1)
        warnings.warn("later, of another", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="of another") as shown:
        warned()
    assert taken == ["of its own", "of another"]
    assert [str(one.message) for one in shown] == ["of another", "later, of another"]
