"""A short run of changed files at every door: each is read, or refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "exports/reference-small@isaac-rram-128"


@pytest.mark.thorough("a fuzzer; make fuzz runs it for longer")
def test_no_changed_file_is_more_than_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "tests/fuzz/doors.py", "--count", "750", "--seed", "11"]
    command += ["--minutes", "3", "--bundle", BUNDLE, "--finds", str(tmp_path / "finds")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *doors, _, total = done.stdout.splitlines()
    assert total.startswith("750 inputs, 0 kinds of finds, ")
    # A door reads its seed as it is before it is tried; few changes leave a file that is read.
    assert len(doors) == 52
    counts = [
        [int(line.split(how)[0].split()[-1]) for how in ("read", "refused")] for line in doors
    ]
    assert all(sum(both) >= 7 for both in counts)
    assert sum(read > 0 for read, _ in counts) > 0.5 * len(doors)
    assert sum(refused > 0 for _, refused in counts) > 0.9 * len(doors)
