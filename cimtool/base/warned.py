"""Warnings, handed to a function in place of the screen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def taking_warnings(take: Callable[[str, type[Warning]], bool]) -> Iterator[None]:
    """Ask `take` for each warning, its text and category; one for which it is False is shown."""
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
