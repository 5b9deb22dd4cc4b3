"""Style sheets and scripts of pages and pictures."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> str:
    """The text of a file beside the templates."""
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")
