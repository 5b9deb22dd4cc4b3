"""The first screen: what a command prints in a terminal of 80 columns, in at most 15 lines."""

import io
import os
import pty
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from threading import Thread

import pytest

from cimtool import cli
from cimtool.demo.data import DemoFiles

LINES, COLUMNS = 15, 80


def in_terminal(*words: object) -> list[str]:
    """The lines that a command prints in a terminal of 80 columns, without its progress."""
    ours, theirs = pty.openpty()
    printed = bytearray()

    def read() -> None:
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65_536):
                printed.extend(part)

    reader = Thread(target=read)
    reader.start()
    with (
        pytest.MonkeyPatch.context() as patched,
        open(theirs, "w", encoding="utf-8") as terminal,
        redirect_stdout(terminal),
        redirect_stderr(io.StringIO()),
    ):
        patched.setenv("COLUMNS", f"{COLUMNS}")
        status = cli.run(list(map(str, words)))
    reader.join()
    os.close(ours)
    assert status == 0
    return printed.decode().replace("\r", "").splitlines()


def test_verify_and_cost_lead_with_the_verdict_in_15_lines(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("eval.npz").symlink_to(small_trunk.eval)
    Path("small").symlink_to(small_bundle)
    verify = in_terminal("verify", "small", "--data", "eval.npz", "--report", "report")
    cost = in_terminal("cost", "small", "--gallery", 1_000_000, "--data", "eval.npz", "-o", "cost")
    among = "--gallery", 10_000_000
    larger = in_terminal("verify", "small", "--data", "eval.npz", "--report", "report", *among)
    assert verify[-1] == "next: cimtool cost small --gallery N"
    assert larger[-1].startswith("wrote report/")  # no hand-off of what is worse
    for lines in (verify, cost, larger):
        assert len(lines) <= LINES, "\n".join(lines)
        assert max(map(len, lines)) <= COLUMNS
    assert verify[1].startswith("The compiled model is ")
    assert "compute-in-memory" in cost[1].lower()
    assert any(line.startswith("--verbose has the rest: ") for line in verify)
