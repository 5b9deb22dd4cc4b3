"""Compilers of C, and what they make of an export."""

from __future__ import annotations

import subprocess
from pathlib import Path

from programs import installed

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Werror")


def c_compiler(name: str) -> str:
    """Path of a compiler; without it a test is skipped, or fails as `installed` says."""
    return installed(name, "CIMTOOL_REQUIRE_COMPILERS")


def make(folder: Path, *arguments: str, quick: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the goal `check` of a hand-off; `quick` compiles in a tenth of a second, not in four.

    Its own flags optimise the model.
    """
    c_compiler("gcc")
    flags = [f"CFLAGS={' '.join(STRICT)} -O0"] if quick else []
    command = ["make", "-C", folder, "check", *flags, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def differing(folder: Path, *arguments: str, quick: bool = True) -> tuple[int, int]:
    """Count the values that a hand-off's model compares, and those that differ."""
    done = make(folder, *arguments, quick=quick)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    total = next(line for line in done.stdout.splitlines() if line.split()[0] == "all")
    compared, _, wrong, _ = total.split()[1:]
    return int(compared), int(wrong)
