"""JSON files, read with their sizes and their nesting checked."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.untrusted import read_bounded

LARGEST = 1 << 26
"""Most bytes of a file in this project's formats."""

DEEPEST = 64
"""Most lists and tables nested in one another."""

LARGEST_GIVEN = 1 << 20
"""Most bytes of a file that a user writes: a polynomial, the parameters of a simulator."""

DIGITS = 6
"""Significant digits of the numbers in a report: every machine agrees on these."""


LONGEST_INTEGER = sys.int_info.default_max_str_digits
"""Most digits of an integer that Python reads."""

MOST_VALUES = 10_000_000
"""Most values of a text, by commas and brackets: an empty list of 3 bytes takes 64 in memory."""

MOST_TABLES = 1_000_000
"""Most tables of a text, by braces: a table of a single key takes 232 bytes in memory."""


def read_json(file: Path, most: int = LARGEST_GIVEN) -> Any:
    """Read a JSON file of at most `most` bytes; CimError if it is no JSON."""
    content = read_bounded(file, most)
    try:
        return parse_json(content)
    except ValueError as error:
        raise CimError(f"{file}: not valid JSON: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """The values of a text; anything that is not Unicode, such as a lone surrogate, becomes `?`.

    ValueError if the text is no JSON, has more than MOST_VALUES or MOST_TABLES, or is nested
    deeper than DEEPEST.
    """
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    if content.count(b"{") > MOST_TABLES:
        raise ValueError(f"it has more than {MOST_TABLES:,} tables")
    complaint = f"its lists and tables are nested more than {DEEPEST} deep"
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(complaint) from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python's sentence names an interpreter setting
        raise ValueError(f"it has an integer of more than {LONGEST_INTEGER:,} digits") from None
    level = [values] if isinstance(values, dict | list) else []
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
        if not level:
            return in_unicode(values) if b"\\ud" in content.lower() else values
    raise ValueError(complaint)


def read_table(file: Path, again: str, most: int = LARGEST) -> dict[str, Any]:
    """Read the one object in a JSON file of at most `most` bytes.

    CimError, which says what to do `again`, for anything else.
    """
    return table_in(read_bounded(file, most), file, again)


def table_in(content: bytes, file: Path, again: str) -> dict[str, Any]:
    """The one object of a file's `content`; CimError as `read_table` raises it."""
    try:
        values = parse_json(content)
    except ValueError:
        raise CimError(f"{file}: is not JSON; {again} again") from None
    if not isinstance(values, dict):
        raise CimError(f"{file}: holds no table; {again} again")
    return values


def in_unicode(values: Any) -> Any:
    """Values as JSON has them, with `?` for anything not Unicode, such as bytes of a file name."""
    return json.loads(_unicode_text(values))


def _unicode_text(values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, default=_as_python).encode("utf-8", "replace")


def values_digest(values: Mapping[str, Any]) -> str:
    """The SHA-256 of the values in a file's object, without its `sha256`."""
    said = in_unicode({key: value for key, value in values.items() if key != "sha256"})
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as `in_unicode`, with NumPy numbers as numbers, paths as text, NaN as None.

    Infinity is None too. Raises TypeError for what has no JSON form.
    """
    plain: dict[str, Any] = json.loads(_unicode_text(values), parse_constant=lambda _: None)
    return plain


def _as_python(value: Any) -> Any:
    """A NumPy number or array, a path, a table or a record as Python values."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if not hasattr(value, "tolist"):
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return value.tolist()


def six_digits(number: float) -> float | None:
    """A number at 6 significant digits, 0.0 for -0.0; None if it is not finite."""
    return significant(number) if math.isfinite(number) else None


def significant(number: float) -> float:
    """A number at 6 significant digits, 0.0 for -0.0."""
    return float(f"{number:.{DIGITS}g}") + 0.0
