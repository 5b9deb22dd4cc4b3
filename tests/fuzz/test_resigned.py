"""A short run of bundles whose checksums were made anew, and faults that it must find."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "fuzz"))

import resigned  # noqa: E402
from resigned import Place, tried  # noqa: E402


@pytest.mark.thorough("a fuzzer; make fuzz runs it for longer")
def test_no_changed_bundle_is_more_than_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "tests/fuzz/resigned.py", "--runs", "60", "--seed", "5"]
    command += ["--finds", str(tmp_path / "finds")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *commands, _, total = done.stdout.splitlines()
    assert total == "60 runs, 0 kinds of finds in 0 runs"
    counts = {
        how: sum(int(line.split(how)[0].split()[-1]) for line in commands) for how in resigned.ENDS
    }
    assert counts["found"] == 0
    assert counts["done"] + counts["checked"] > 10
    assert counts["refused"] > 10


def said(text: str, status: int) -> int:
    print(text)
    return status


def written(file: Path, text: str, status: int = 0) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return said("cimtool: error: no", status) if status else 0


def made(place: Place, recipe: str) -> int:
    return written(place.out / "Makefile", f"check:\n\t{recipe}\n")


Planted = Callable[[Place], int]
PLANTED: dict[str, tuple[Planted, str]] = {
    "a fault": (lambda p: said("cimtool: error: a fault in cimtool (X)", 70), "status 70: cimtool"),
    "a traceback": (lambda p: 1 // 0, "status 99: ZeroDivisionError"),
    "a signal": (lambda p: os.kill(os.getpid(), signal.SIGTERM) or 0, "signal SIGTERM"),
    "a hang": (lambda p: time.sleep(60) or 0, "more than 3 seconds"),
    "memory": (lambda p: (b"x" * (300 << 20)).count(b"y"), "more memory than "),
    "no sentence": (lambda p: said("Error", 2), "status 2 without one sentence"),
    "two sentences": (lambda p: said("cimtool: error: a\nb", 2), "status 2 without one sentence"),
    "code that ran": (lambda p: written(p.canary, ""), "code of the bundle ran"),
    "a file outside": (
        lambda p: written(p.out.parents[1] / "x", ""),
        "a file outside the output: deep/deeper/x",
    ),
    "a changed bundle": (
        lambda p: written(p.bundle / "report.md", ""),
        "a file outside the output: in/bundle/report.md",
    ),
    "a half": (lambda p: written(p.out / "a.c", "", status=2), "left by a refused command: a.c"),
    "an escape": (lambda p: said("done \x1b[31m", 0), "a control character in what is said"),
    "an escape in C": (lambda p: written(p.out / "a.c", "\x1b"), "a control character in a.c"),
    "markup": (
        lambda p: written(p.out / "r.md", "# <script>alert(1)</script>"),
        "markup of a name in r.md",
    ),
    "no XML": (lambda p: written(p.out / "a.svg", "<svg>a & b</svg>"), "a.svg is no XML"),
    "code in make": (
        lambda p: made(p, f"touch {p.canary}"),
        "code of the bundle ran in `make check`",
    ),
    "C that fails": (lambda p: made(p, "false"), "`make check` ends with 2"),
    "a file outside of make": (
        lambda p: made(p, "touch ../x"),
        "a file outside the output: deep/deeper/deepest/x",
    ),
    "nothing": (lambda p: made(p, "true"), "None"),
}


@pytest.mark.thorough("a fuzzer; make fuzz runs it for longer")
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_wrong_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resigned, "SLOWEST", 3.0 if name == "a hang" else 30.0)
    place, whole = Place(tmp_path / "run"), tmp_path / "whole"
    written(whole / "manifest.json", "{}")
    place.made(whole)
    run, complaint = PLANTED[name]
    own = int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])
    monkeypatch.setattr(resigned, "MOST_MEMORY", own + (200 << 10))
    found = tried(place, "handoff", tmp_path / "rows.npz", lambda words: run(place))[1]
    assert str(found).startswith(complaint)
