"""Two processes at one folder: the second is refused, and what the first writes is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cimtool.demo import walk as demo
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]

HELD = """
import sys
from cimtool import cli
from cimtool.demo import walk as demo
from cimtool.training.trainer import Trainer

def held(function):
    def waiting(*arguments):
        print("ready", flush=True)
        sys.stdin.readline()
        return function(*arguments)
    return waiting

Trainer.run, demo.installed_sources = map(held, (Trainer.run, demo.installed_sources))
sys.exit(cli.run(sys.argv[1:]))
"""
"""A command that waits, before it writes anything, for a line of its standard input."""


@contextmanager
def at_work(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HELD, *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line == "ready\n":
                    break
            yield process
        finally:
            process.kill()


def trained(files: DemoFiles, folder: Path) -> list[object]:
    sizes = ["--set", "model.hidden=16", "--batch", 16, "--epochs", 1]
    return ["train", "--data", files.calibration, "-o", folder, *sizes]


def tuned(files: DemoFiles, folder: Path) -> list[object]:
    start = ["--start", files.projectors, "--poly", files.poly, "--data", files.train]
    given = [*start, "--calibration", files.calibration, "--batch", 32, "--epochs", 1]
    return ["train", "--hardware", "ideal", *given, "-o", folder]


@pytest.mark.thorough("starts many whole processes")
@pytest.mark.parametrize(("command", "more"), [(trained, []), (trained, ["--resume"]), (tuned, [])])
def test_a_second_training_in_the_folder_is_refused(
    command: Callable[[DemoFiles, Path], list[object]],
    more: list[str],
    cimtool: Run,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "made" / "run"
    with at_work(*command(small_trunk, folder)) as process:
        second = cimtool(*command(small_trunk, folder), *more)
        assert second.status == 2
        told = f"another training is running there (process {process.pid}); wait until it ends"
        assert second.sentence.startswith(f"{folder}: {told}")
        out, _ = process.communicate("\n", timeout=100)
    assert process.returncode == 0
    assert f"wrote {folder / 'model.pth'}" in out
    assert {"model.pth", "history.json"} <= set(os.listdir(folder))
    assert ".lock" not in os.listdir(folder)


@pytest.mark.thorough("starts many whole processes")
def test_a_second_demo_in_the_folder_is_refused(
    cimtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "installed_sources", lambda: pytest.fail("it began"))
    out = tmp_path / "made" / "exports"
    command = ["demo", "--target", "ideal", "--cache", tmp_path / "cache", "--out", out]
    with at_work(*command) as process:
        second = cimtool(*command)
        assert (second.status, second.out) == (2, "")
        told = f"{out}: another demo is running there (process {process.pid}); wait until it ends"
        assert second.sentence.startswith(told)
    assert not (tmp_path / "cache").exists()


def test_a_training_that_is_refused_leaves_no_folder(
    cimtool: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    folder = tmp_path / "made" / "run"
    refused = cimtool(*trained(small_trunk, folder), "--set", "model.width=100000000000")
    assert refused.status == 2
    assert not folder.parent.exists()
