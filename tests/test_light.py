"""The core without the libraries of the extras: each command runs, or names the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = (
    *("torch", "sklearn", "distributed", "pyarrow", "pandas", "polars", "tokenizers", "PIL"),
    "transformers",
)


@pytest.mark.thorough("starts many whole processes")
def test_the_core_runs_without_any_extra_and_names_it_where_one_is_needed(tmp_path: Path) -> None:
    walk = ROOT / "tests" / "kits" / "light_walk.py"
    done = subprocess.run(
        [sys.executable, walk, tmp_path, "--short", "--without", ",".join(EXTRAS)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 19


@pytest.mark.thorough("starts a process for each", quick=("train-",))
@pytest.mark.parametrize(
    ("command", "line"), [("train", "--loss NAME"), ("demo", "Folder of trained models.")]
)
def test_help_needs_no_extra(command: str, line: str) -> None:
    hidden = f"from light_walk import Hidden; import sys; sys.meta_path.insert(0, Hidden({EXTRAS}))"
    code = f"{hidden}; from cimtool.cli import run; sys.exit(run(['{command}', '--help']))"
    kits = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "kits")))
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": kits},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout
