"""Places of output are checked before long work, and replaced as a whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.files import (
    check_folder,
    check_output,
    check_room,
    replace_files,
    replace_texts,
    sha256,
    staged,
)
from cimtool.bundle.bundle import check_inputs_apart
from cimtool.hardware.target import load_target


def test_a_file_in_folders_that_are_still_to_be_made_is_fine(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "folder" / "bits.toml", ".toml")
    assert not list(tmp_path.iterdir())


def test_what_cannot_become_the_file_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("")
    Path("folder.toml").mkdir()
    for name, sentence in (
        ("bits.json", "bits.json: the output is a .toml file; expected a name that ends in .toml"),
        ("folder.toml", "folder.toml: is a folder; expected a file"),
        ("plain/x/bits.toml", f"({tmp_path / 'plain'} is a file); expected a folder"),
    ):
        with pytest.raises(CimError) as caught:
            check_output(Path(name), ".toml")
        assert sentence in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_said_first(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CimError, match="read-only"):
        check_output(tmp_path / "bits.toml", ".toml")


def test_nothing_is_replaced_where_one_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(CimError, match="the report cannot be written"):
        replace_files(tmp_path, {"a": b"new", "missing/b": b"new"}, "the report")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [place.name for place in tmp_path.iterdir()] == ["a"]


def test_folders_that_were_made_for_what_cannot_be_written_are_not_left(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="the report cannot be written"):
        replace_files(tmp_path / "new" / "deep", {"missing/b": b"new"}, "the report")
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "other", "the report"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_disk_must_have_room(tmp_path: Path) -> None:
    place = tmp_path / "new" / "folder"
    check_room(place, 1)
    with pytest.raises(CimError, match=r"folder: takes 1,000,000,000,000,000,000 bytes or more"):
        check_room(place, 10**18)


def test_a_text_with_a_zero_byte_is_no_name() -> None:
    with pytest.raises(CimError, match="is not a file name"):
        sha256(Path("a\0b"))


def test_a_folder_that_is_a_link_to_itself_cannot_be_written(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place in (loop, loop / "report"):
        with pytest.raises(CimError, match="the report cannot be written"):
            replace_texts(place, {"report.md": ""}, "the report")


def test_links_in_a_circle_are_one_sentence_where_a_target_or_a_bundle_should_be(
    tmp_path: Path,
) -> None:
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    with pytest.raises(CimError, match=r"loop\.toml: cannot be read: Too many levels of symbolic"):
        load_target(str(loop))
    file = tmp_path / "model.onnx"
    file.write_bytes(b"")
    check_inputs_apart(loop / "bundle", [str(file)])


def test_a_full_disk_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=0))
    for check in (
        lambda: check_output(tmp_path / "a.toml", ".toml"),
        lambda: check_folder(tmp_path),
    ):
        with pytest.raises(CimError, match=r"cannot be written \(the disk of .* is full\)"):
            check()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(total=0, free=0))
    check_folder(tmp_path)
