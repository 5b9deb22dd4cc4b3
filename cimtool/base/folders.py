"""Folders of work that can be resumed: identity, lock, clean-up after a kill, exchange."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cimtool.base.errors import CimError
from cimtool.base.files import (
    check_folder,
    no_empty_folders,
    reading,
    replace_texts,
    require_outside_bundles,
    unwritable,
)
from cimtool.base.json_files import LARGEST, parse_json, values_digest
from cimtool.base.partial import PARTIAL, is_at, lock
from cimtool.base.untrusted import read_bounded

LOCK = ".lock"
SHARED = ".shared-"
"""The beginning of the name of a folder that processes share."""

LEFT = (LOCK, PARTIAL, SHARED)
"""The beginnings of the names of files and folders that a killed run may leave."""

POINTS = "points"
"""The subfolder with the results of each point."""

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of Linux's `renameat2`: paths from the current folder; exchange of both."""

WorkIdentity = Mapping[str, str | int]


@dataclass(frozen=True)
class KindOfWork:
    """A kind of work: its `noun`, the `file` with its identity, words for the keys (`names`)."""

    noun: str
    file: str
    names: Mapping[str, str]

    @contextmanager
    def opened(self, path: Path, whose: WorkIdentity) -> Iterator[None]:
        """Open or make the folder, and keep other processes out until the end.

        Raises CimError if it holds other work of this kind or something else, and if another
        process is at work in it.
        """
        require_outside_bundles(path)
        check_folder(path)
        known = not path.exists() or (path / self.file).is_file()
        left_alone = path.is_dir() and all(f.name.startswith(LEFT) for f in path.iterdir())
        if not known and not left_alone:
            raise CimError(
                f"{path}: exists and holds no {self.noun}, so nothing is written there; expected "
                "a new folder"
            )
        with alone_in(path, self.noun):
            if (path / self.file).is_file():
                held = read_object(path / self.file) or {}
                for name, value in whose.items():
                    if held.get(name) != value:
                        raise CimError(
                            f"{path}: holds a {self.noun} with another {self.names[name]}; "
                            "expected a new folder"
                        )
                for prefix in (PARTIAL, SHARED):  # left by a killed run
                    for left in [*path.glob(f"{prefix}*/"), *path.glob(f"{POINTS}/{prefix}*/")]:
                        shutil.rmtree(left, ignore_errors=True)
            else:
                text = json.dumps(dict(whose), indent=1) + "\n"
                replace_texts(path, {self.file: text}, f"the {self.noun}")
            yield


@contextmanager
def alone_in(folder: Path, noun: str, lock_file: str = LOCK) -> Iterator[None]:
    """Make a folder that is written step by step, and keep other processes out until the end.

    The lock ends with the process, however that ends. An empty folder is removed.
    Raises CimError if another process is at work there; the work is called `noun`.
    """
    file = folder / lock_file
    with no_empty_folders(folder):
        try:
            stream, taken = _lock_of(file)
        except OSError as error:
            raise unwritable(folder, error) from error
        with stream:
            if not taken:
                raise CimError(
                    f"{folder}: another {noun} is running there (process "
                    f"{stream.read(20).strip()}); wait until it ends, or give a new folder"
                )
            try:
                try:
                    os.ftruncate(stream.fileno(), 0)
                    os.write(stream.fileno(), f"{os.getpid()}\n".encode())
                except OSError as error:  # the disk has no room for the lock
                    raise unwritable(folder, error) from error
                yield
            finally:
                file.unlink(missing_ok=True)


def _lock_of(file: Path) -> tuple[IO[str], bool]:
    """A lock's open file, made if missing, and whether this process holds it now."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            stream = file.open("a+")
        except FileNotFoundError:  # the holder has just removed the folder that it had made
            continue
        if not lock(stream.fileno()):
            stream.seek(0)
            return stream, False
        if is_at(stream.fileno(), file):
            return stream, True
        stream.close()  # the holder has just removed it


@contextmanager
def alone_with(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder that is to be replaced, if there is one, until the end.

    The lock ends with the process, however that ends. Raises CimError if another process holds
    it or has just replaced the folder, or if the file system cannot lock a folder.
    """
    if not folder.is_dir():
        yield
        return
    with reading(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            taken = lock(handle) and is_at(handle, folder)
        except OSError as error:
            raise CimError(
                f"{folder}: its file system cannot lock a folder ({error.strerror}), so it cannot "
                "be changed there; expected a folder on another file system"
            ) from error
        if not taken:
            raise CimError(f"{folder}: another process is changing it; wait until it ends")
        yield
    finally:
        os.close(handle)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False if the system or the file system cannot.

    It is Linux's `renameat2` with RENAME_EXCHANGE. Raises OSError if it fails.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def sealed_text(values: Mapping[str, Any]) -> str:
    """The text of a JSON file of values and their SHA-256."""
    return json.dumps({**values, "sha256": values_digest(values)}, indent=1) + "\n"


def read_sealed(file: Path) -> dict[str, Any]:
    """The values of a file that `sealed_text` made; empty if it is missing or was changed."""
    values = read_object(file) or {}
    return values if values.get("sha256") == values_digest(values) else {}


def read_object(file: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no file or no object in it."""
    try:
        values = parse_json(read_bounded(file, LARGEST))
    except (CimError, ValueError):
        return None
    return values if isinstance(values, dict) else None
