"""Errors that a user can meet, with their exit status; warnings about work that goes on."""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO


class CimError(Exception):
    """A user's mistake: one sentence naming file, key, value and what was expected."""

    exit_status = 2

    def sentence(self, called: Callable[[str], str] = str) -> str:
        """The sentence; `called` gives the user's name for each argument in it."""
        return str(self)


class RowsError(CimError):
    """Rows whose numbers do not fit their use; `rows_of` puts their file before the sentence."""


class CheckFailed(CimError):
    """A check that the user asked for did not hold: drift over its limit, a bit that differs."""

    exit_status = 1


class CimWarning(RuntimeWarning):
    """One sentence about something unexpected; commands print it among their notes."""


class Argument(str):
    """The name of a library argument, as a value in the sentence of an ArgumentError."""


class ArgumentError(CimError):
    """A mistake in an argument of the library, for which the command line has an option.

    The sentence is a template: `{trials}` is the name of an argument, `{}` the next of `values`,
    which may be other errors. `ArgumentError("{trials} is {}; expected at least 1", trials)`.
    """

    def __init__(self, template: str, *values: object):
        super().__init__(template, *values)

    def sentence(self, called: Callable[[str], str] = str) -> str:
        """The template filled in."""
        template, *values = self.args
        return sentence_of(template, values, called)

    def __str__(self) -> str:
        return self.sentence()


def sentence_of(template: str, values: Sequence[object], called: Callable[[str], str] = str) -> str:
    """A template filled in; `called` gives the user's name for each argument in it."""
    return _Template(called).vformat(template, values, {})


class _Template(string.Formatter):
    def __init__(self, called: Callable[[str], str]):
        self.called = called

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = Argument(key) if isinstance(key, str) else args[key]
        if isinstance(value, CimError):
            return value.sentence(self.called)
        return self.called(value) if isinstance(value, Argument) else value


def kind_of(value: object) -> str:
    """The type of a value, for a sentence; for a tuple, also the types of its elements."""
    kind = type(value).__name__
    if not isinstance(value, tuple):
        return kind
    return f"{kind} ({', '.join(map(kind_of, value))})"


@contextmanager
def invalid_at(place: str = "") -> Iterator[None]:
    """For validators: an error inside becomes a ValueError whose sentence begins with `place`."""
    try:
        yield
    except (CimError, ValueError) as error:
        raise ValueError(f"{place}{error}") from None


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Put the file before the sentence of an error that does not know where its values are from.

    Any CimError raised inside becomes an ArgumentError.
    """
    try:
        yield
    except CimError as error:
        raise ArgumentError("{}: {}", file, error) from None


@contextmanager
def rows_of(file: object) -> Iterator[None]:
    """Put the file before the sentence of a RowsError; other errors stay as they are."""
    try:
        yield
    except RowsError as error:
        raise CimError(f"{file}: {error}") from None


@contextmanager
def taking_warnings(take: Callable[[str, type[Warning]], bool]) -> Iterator[None]:
    """Give each warning's text and category to `take`; show the warning if `take` returns False."""
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not take(str(message), category):
            shown(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
