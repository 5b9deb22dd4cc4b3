"""The folder of a sweep: whose it is, for one process at a time, and what killed runs left."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import signal
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.folders import LOCK, POINTS, SHARED
from cimtool.base.partial import PARTIAL
from cimtool.experiments.sweep import SWEEP

WHOSE = {"model": "one", "data": "two"}


def test_only_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    with SWEEP.opened(tmp_path, WHOSE):
        pass
    left = [tmp_path / f"{PARTIAL}a", tmp_path / f"{SHARED}b", tmp_path / POINTS / f"{PARTIAL}c"]
    mine = [tmp_path / ".git", tmp_path / POINTS / ".venv"]
    for folder in (*left, *mine):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    with SWEEP.opened(tmp_path, WHOSE):
        pass
    assert [folder.exists() for folder in (*left, *mine)] == [False] * 3 + [True] * 2


def test_a_folder_whose_first_write_was_killed_is_taken(tmp_path: Path) -> None:
    (tmp_path / f"{PARTIAL}a").mkdir()
    (tmp_path / LOCK).write_text("1\n")
    with SWEEP.opened(tmp_path, WHOSE):
        assert (tmp_path / SWEEP.file).is_file()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(CimError, match="holds no sweep"), SWEEP.opened(tmp_path / "other", WHOSE):
        pass
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_a_second_sweep_in_the_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with SWEEP.opened(tmp_path, WHOSE):
        told = rf"another sweep is running there \(process {os.getpid()}\); wait until it ends"
        with pytest.raises(CimError, match=told), SWEEP.opened(tmp_path, WHOSE):
            pass
    assert not (tmp_path / LOCK).exists()
    with SWEEP.opened(tmp_path, WHOSE):
        pass


def hold(path: Path, ready: multiprocessing.synchronize.Event) -> None:
    with SWEEP.opened(path, WHOSE):
        ready.set()
        signal.pause()


def test_the_lock_of_a_killed_process_is_no_lock(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold, args=(tmp_path, ready))
    process.start()
    try:
        assert ready.wait(60)
        with pytest.raises(CimError, match=f"process {process.pid}"), SWEEP.opened(tmp_path, WHOSE):
            pass
    finally:
        process.kill()
        process.join()
    assert (tmp_path / LOCK).is_file()
    with SWEEP.opened(tmp_path, WHOSE):
        pass
