"""Locks of open files and folders, which the kernel drops with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(handle: int) -> bool:
    """Lock an open file or folder; False where another process holds it.

    Raises OSError where its file system has no such lock, as NFS has none of a folder.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(handle: int, place: Path) -> bool:
    """True where an open file or folder is still the one at this place."""
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except FileNotFoundError:
        return False
