"""Progress of long work, told to a function that takes one line."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Tell nothing: the progress of a call that nobody watches."""
