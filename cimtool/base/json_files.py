"""JSON files of this project's own formats, read with their sizes checked first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.files import reading

LARGEST = 1 << 28
"""Bytes that such a file may have."""


def read_table(file: Path, again: str) -> dict[str, Any]:
    """Read the one object of a file; CimError, which says what to do `again`, for anything else."""
    with reading(file):
        size = file.stat().st_size
        if size > LARGEST:
            raise CimError(f"{file}: has {size:,} bytes; expected at most {LARGEST:,}")
        text = file.read_bytes()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise CimError(f"{file}: is no JSON; {again} again") from None
    if not isinstance(values, dict):
        raise CimError(f"{file}: holds no table; {again} again")
    return values
