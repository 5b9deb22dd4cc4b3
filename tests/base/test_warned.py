"""Warnings that a function takes, and those that it leaves."""

from __future__ import annotations

import warnings

import pytest

from cimtool.base.errors import CimWarning
from cimtool.base.warned import taking_warnings


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
