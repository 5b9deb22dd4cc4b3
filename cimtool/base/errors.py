"""What can go wrong for a user, and the exit status that each kind gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CimError(Exception):
    """A user's mistake: one sentence naming file, key, value and what was expected."""

    exit_status = 2


class CheckFailed(CimError):
    """A check that the user asked for did not hold: drift over its limit, a bit that differs."""

    exit_status = 1


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Puts the file before the sentence of an error that does not know where its values are from.

    What is raised inside is a plain CimError then.
    """
    try:
        yield
    except CimError as error:
        raise CimError(f"{file}: {error}") from None
