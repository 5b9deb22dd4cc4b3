"""A short run of changed files at every door: each is read, or refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "exports/reference-small@isaac-rram-128"


def test_no_changed_file_is_more_than_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "tests/fuzz/doors.py", "--count", "650", "--seed", "11"]
    command += ["--minutes", "3", "--bundle", BUNDLE, "--finds", str(tmp_path / "finds")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *doors, total = done.stdout.splitlines()
    assert total == "650 inputs, 0 kinds of finds"
    # Every door refuses something, and reads something of what is only a little changed.
    for line in doors:
        read, refused = (int(line.split(how)[0].split()[-1]) for how in ("read", "refused"))
        assert refused > 10, line
        assert read + refused == 50, line
