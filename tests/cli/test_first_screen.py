"""The first screen: what a command prints in a terminal of 80 columns, in at most 15 lines."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cimtool.demo.data import DemoFiles

LINES, COLUMNS = 15, 80


def in_terminal(*words: object) -> list[str]:
    """The lines that a command prints in a terminal of 80 columns, without its progress."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cimtool", *map(str, words)],
        stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, "COLUMNS": f"{COLUMNS}"},
    )  # fmt: skip
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65_536):
            printed += part
    except OSError:
        pass  # the end of a terminal
    os.close(ours)
    assert process.wait() == 0
    return printed.decode().replace("\r", "").splitlines()


def test_verify_and_cost_lead_with_the_verdict_in_15_lines(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("eval.npz").symlink_to(small_trunk.eval)
    Path("small").symlink_to(small_bundle)
    verify = in_terminal("verify", "small", "--data", "eval.npz", "--report", "report")
    cost = in_terminal("cost", "small", "--gallery", 1_000_000, "--data", "eval.npz", "-o", "cost")
    for lines in (verify, cost):
        assert len(lines) <= LINES, "\n".join(lines)
        assert lines[-1].startswith("next: cimtool ")
        assert max(map(len, lines)) <= COLUMNS
    assert verify[1].startswith("The compiled model is ")
    assert "compute-in-memory" in cost[1].lower()
    assert any(line.startswith("--verbose has the rest: ") for line in verify)
