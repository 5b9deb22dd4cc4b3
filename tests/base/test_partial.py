"""Folders of what is being written: those that no process holds are removed, and no other."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cimtool.base import partial
from cimtool.base.errors import CimWarning
from cimtool.base.partial import lock, partial_folder

HOLD = """
import sys
from pathlib import Path
from cimtool.base.partial import partial_folder

with partial_folder(Path(sys.argv[1]), ".bundle.partial-") as folder:
    (folder / "half").write_text("x")
    print(folder, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def writer(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that writes into a folder beside the place until a line comes, and the folder."""
    command, pipe = [sys.executable, "-c", HOLD, str(parent)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def begin(parent: Path) -> list[str]:
    """Write beside the same place, and return what is said of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with partial_folder(parent, ".bundle.partial-"):
            pass
    return [str(one.message) for one in said if one.category is CimWarning]


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    with writer(tmp_path) as (killed, left), writer(tmp_path) as (living, held):
        assert begin(tmp_path) == []
        assert sorted(tmp_path.iterdir()) == sorted([left, held])
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
        # A stopped process is a living one.
        living.send_signal(signal.SIGSTOP)
        told = f"{left}: was left by a run that was killed, and is removed now"
        assert begin(tmp_path) == [told]
        assert list(tmp_path.iterdir()) == [held]
        living.send_signal(signal.SIGCONT)
        living.communicate("\n", timeout=30)
        assert living.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another place, of another host, whose locks may not be seen here, and links."""
    with writer(tmp_path) as (process, left):
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    (tmp_path / f"{left.name}-link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / ".bundle.partial-mine").mkdir()
    with partial_folder(tmp_path, ".other.partial-"):
        pass
    monkeypatch.setattr(partial.socket, "gethostname", lambda: "another")
    assert begin(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.undo()
    assert len(begin(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_another_run_takes_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, calls = [], []

    def late(handle: int) -> bool:
        calls.append(handle)
        if len(calls) == 1:  # the folder is removed as another run does it
            (folder,) = tmp_path.iterdir()
            taken.append(folder)
            folder.rmdir()
        return lock(handle)

    monkeypatch.setattr(partial, "lock", late)
    with partial_folder(tmp_path, ".bundle.partial-") as folder:
        assert len(calls) == 2
        assert [folder] != taken
        assert list(tmp_path.iterdir()) == [folder]


def test_where_folders_cannot_be_locked_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    with writer(tmp_path) as (process, left):
        process.kill()
        process.wait(30)
    monkeypatch.setattr(fcntl, "flock", without)
    assert begin(tmp_path) == []
    assert list(tmp_path.iterdir()) == [left]


def test_a_lock_that_is_held_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    place, order = tmp_path / "new" / "kernel.lock", []

    def second() -> None:
        with partial.held(place, 60):
            order.append("second")

    with partial.held(place, 60):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(5 * partial.PAUSE)
        with partial.held(place, 0.0):  # a process that was stopped stops no other one
            order.append("first")
    waiting.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_lock_that_cannot_be_made_is_gone_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refused(*of: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refused)
    with partial.held(tmp_path / "kernel.lock", 60):
        assert not list(tmp_path.iterdir())
