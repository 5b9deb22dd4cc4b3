"""Names of files that are no UTF-8: every command works, and writes what UTF-8 has of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]


@pytest.mark.thorough("starts many whole processes")
def test_bytes_of_names_that_are_no_utf_8(
    small_trunk: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    def odd(file: Path) -> Path:
        place = tmp_path / os.fsdecode(file.stem.encode() + b"\xff" + file.suffix.encode())
        shutil.copy(file, place)
        return place

    names = ("projectors", "poly", "calibration", "eval")
    files = replace(small_trunk, **{name: odd(getattr(small_trunk, name)) for name in names})
    bundle = tmp_path / os.fsdecode(b"b\xff")
    assert cimtool(*compiling(files, bundle, target="isaac-rram-128")).status == 0
    assert cimtool("cost", bundle).status == 0
    verified = cimtool("verify", bundle, "--data", files.eval)
    assert (verified.status, verified.err) == (0, "")
    assert "eval\ufffd.npz" in (bundle / "report.md").read_text("utf-8")
    assert cimtool("verify", bundle, "--data", files.eval, "--baseline", bundle / "report.json",
                   "--report", tmp_path / "again").status == 0  # fmt: skip
    swept = cimtool(
        *("sweep", "--projectors", files.projectors, "--poly", files.poly, "--target", "ideal"),
        *("--calibration", files.calibration, "--data", files.eval, "--grid", "weight_bits=8"),
        *("--output", tmp_path / os.fsdecode(b"s\xff")),
    )
    assert swept.status == 0
