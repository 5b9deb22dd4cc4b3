"""Temporary folders for files that are then moved to their place, and locks.

The kernel releases a lock when the process that holds it ends. A folder without a holder was left
by a killed run, and is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from cimtool.base.errors import CimWarning


def lock(handle: int) -> bool:
    """Lock an open file or folder; False if another process holds it.

    Raises OSError if the file system has no such lock; NFS, for example, cannot lock a folder.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(handle: int, place: Path) -> bool:
    """True if an open file or folder is still the one at this place."""
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except FileNotFoundError:
        return False


PAUSE = 0.02
"""Seconds between two attempts to take a lock."""


@contextmanager
def held(place: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing, while other processes wait for it.

    Goes on without the lock if another process holds it for `seconds`, if the file cannot be made,
    and if the file system has no locks.
    """
    handle = None
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    if handle is None:
        yield
        return
    try:
        until = time.monotonic() + seconds
        with suppress(OSError):
            while not lock(handle) and time.monotonic() < until:
                time.sleep(PAUSE)
        yield
    finally:
        os.close(handle)


PARTIAL = ".partial-"
"""Beginning of the name of a folder that holds files until all of them are written."""

HOST_LETTERS = 8


def partial_of(name: str) -> str:
    """The beginning of a partial folder's name, next to its final place NAME: `.NAME.partial-`."""
    return f".{name}{PARTIAL}"


@contextmanager
def partial_folder(parent: Path, beginning: str) -> Iterator[Path]:
    """Give a new folder in `parent`, whose name has this beginning, and remove it at the end.

    A lock on the folder shows that it is in use: the kernel drops it with the process. Folders with
    the same beginning that no process holds are removed first, each with a CimWarning. Raises
    OSError.
    """
    # Another host may not see the lock, so the name says which host may remove the folder.
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:HOST_LETTERS]
    _remove_left(parent, f"{beginning}{host}-")
    folder, handle = _made(parent, f"{beginning}{host}-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _made(parent: Path, beginning: str) -> tuple[Path, int]:
    """A new folder and its handle, with the lock if the file system has one."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=beginning, dir=parent))
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            held = True
            with suppress(OSError):
                held = lock(handle)
            if held and is_at(handle, folder):
                return folder, handle
            os.close(handle)
        # Another run removed the folder as left over, before it was locked.


def _remove_left(parent: Path, beginning: str) -> None:
    """Remove the folders of this beginning that no process holds."""
    with suppress(OSError):
        for left in sorted(parent.glob(f"{escape(beginning)}*")):
            with suppress(OSError):  # it is gone meanwhile, or cannot be locked
                handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if lock(handle):
                        shutil.rmtree(left)
                        sentence = f"{left}: was left by a run that was killed, and is removed now"
                        warnings.warn(sentence, CimWarning, stacklevel=2)
                finally:
                    os.close(handle)
