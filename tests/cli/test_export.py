"""`cimtool export` lists the files of an exporter, or counts them where there are many."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporters import Exporter, Request
from cimtool.cli import run


class Ten(Exporter):
    """An exporter of ten files."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        return set()

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        for index in range(10):
            (folder / f"{index}.txt").write_bytes(b"x" * 100_000)


@pytest.mark.parametrize("counted", [False, True])
def test_an_exporter_says_if_its_files_are_counted(
    counted: bool,
    small_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(Exporter.family, "ten", Ten)
    monkeypatch.setattr(Ten, "counted", counted)
    out = tmp_path / "out"
    assert run(["export", str(small_bundle), "--format", "ten", "-o", str(out)]) == 0
    listed = [f"wrote {out / f'{index}.txt'}" for index in range(10)]
    expected = [f"wrote {out}: 10 files, 1.0 MB"] if counted else listed
    assert capsys.readouterr().out.splitlines() == expected


class Telling(Ten):
    """An exporter that tells its progress."""

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        request.say("half of it")
        super().write(bundle, request, folder)


@pytest.mark.parametrize(("exporter", "told"), [(Ten, []), (Telling, ["half of it"])])
def test_an_exporter_may_tell_its_progress_on_a_terminal(
    exporter: type[Exporter],
    told: list[str],
    small_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(Exporter.family, "ten", exporter)
    arguments = ["export", str(small_bundle), "--format", "ten", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(arguments) == 0
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert [line.partition(" s  ")[2] for line in lines] == told
