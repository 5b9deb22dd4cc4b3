"""JSON files, read with their sizes and their nesting checked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.untrusted import read_bounded

LARGEST = 1 << 26
"""Bytes that a file of this project's own formats may have."""

DEEPEST = 64
"""Lists and tables in one another."""

LARGEST_GIVEN = 1 << 20
"""Bytes that a file which a user writes may have: a polynomial, the parameters of a simulator."""

DIGITS = 6
"""Significant digits of the numbers in a report: what every machine agrees on."""


def read_json(file: Path, most: int = LARGEST_GIVEN) -> Any:
    """Read what a file of at most so many bytes holds; CimError where it is no JSON."""
    content = read_bounded(file, most)
    try:
        return parse_json(content)
    except ValueError as error:
        raise CimError(f"{file}: not valid JSON: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """The values of a text; ValueError for one that is no JSON, or nested deeper than DEEPEST."""
    complaint = f"its lists and tables are nested more than {DEEPEST} deep"
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(complaint) from None
    level = [values] if isinstance(values, dict | list) else []
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
        if not level:
            return values
    raise ValueError(complaint)


def read_table(file: Path, again: str) -> dict[str, Any]:
    """Read the one object of a file; CimError, which says what to do `again`, for anything else."""
    content = read_bounded(file, LARGEST)
    try:
        values = parse_json(content)
    except ValueError:
        raise CimError(f"{file}: is no JSON; {again} again") from None
    if not isinstance(values, dict):
        raise CimError(f"{file}: holds no table; {again} again")
    return values


def six_digits(number: float) -> float | None:
    """A number at 6 significant digits, 0.0 for -0.0; None where it is not finite."""
    return significant(number) if math.isfinite(number) else None


def significant(number: float) -> float:
    """A number at 6 significant digits, 0.0 for -0.0."""
    return float(f"{number:.{DIGITS}g}") + 0.0
