"""What every reader and writer of files needs: checksums, and the sentence for a failed write."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cimtool.errors import CimError


def sha256(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def unwritable(place: Path, error: OSError) -> CimError:
    """Build the error for a place that cannot be written and where nothing was left."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return CimError(f"{place}: cannot be written ({reason}); nothing was left there")
