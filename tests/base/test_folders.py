"""Folders that one process changes at a time, and their exchange in one step."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.folders import KindOfWork, alone_with, exchange, read_sealed, sealed_text


def test_two_folders_are_exchanged(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "one", tmp_path / "other")
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["other"]
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "missing")


def test_one_at_a_time_changes_a_folder(tmp_path: Path) -> None:
    folder, sentence = tmp_path / "folder", "folder: another process is changing it; wait"
    with alone_with(folder):  # there is none yet
        folder.mkdir()
    with (
        alone_with(folder),
        pytest.raises(CimError, match=sentence),
        alone_with(folder),
    ):
        pass
    with alone_with(folder):
        pass


def test_a_sealed_file_that_was_changed_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "point.json"
    values = {"loss": 0.1, "names": ["a"], "none": None}
    file.write_text(sealed_text(values))
    assert {key: one for key, one in read_sealed(file).items() if key != "sha256"} == values
    file.write_text(sealed_text(values).replace("0.1", "0.2"))
    assert read_sealed(file) == {}
    file.write_text(json.dumps(values))
    assert read_sealed(file) == {}
    file.unlink()
    os.mkfifo(file)  # nobody waits for what is in it
    assert read_sealed(file) == {}


def test_a_lock_for_which_the_disk_has_no_room_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kind, folder = KindOfWork("sweep", "sweep.json", {}), tmp_path / "sweep"
    monkeypatch.setattr(os, "write", full)
    with (
        pytest.raises(CimError, match=r"sweep: cannot be written .*No space left on device"),
        kind.opened(folder, {"grid": "a"}),
    ):
        pass
    assert not folder.exists()


def test_a_folder_of_work_is_not_made_behind_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    kind = KindOfWork("sweep", "sweep.json", {})
    with (
        pytest.raises(CimError, match=r"circle/sweep: cannot be written .*leads nowhere"),
        kind.opened(tmp_path / "circle" / "sweep", {"grid": "a"}),
    ):
        pass
