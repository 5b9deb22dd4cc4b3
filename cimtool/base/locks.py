"""Locks of open files and folders, which the kernel drops with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lock(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file or folder; False where another process holds it.

    Raises OSError where its file system has no such lock, as NFS has none of a folder.
    """
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(handle: int, place: Path) -> bool:
    """True where an open file or folder is still the one at this place."""
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except FileNotFoundError:
        return False


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Show other processes that a folder is in use, wherever it is moved meanwhile.

    So it is already where another lock of it is held; where there is no folder nothing is done.
    """
    handle = None
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        lock(handle, fcntl.LOCK_SH)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
