"""The folder is a leaf: nothing imports it, and the rest works if it is deleted."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

D = 5
ROOT = Path(__file__).parents[3]
LEAF = "cimtool.loading.onnx"

WITHOUT = """
import sys
from pathlib import Path
import cimtool.api as api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.loading.source import ModelSource

checkpoint, poly, rows, file = map(Path, sys.argv[1:])
print(inspect(checkpoint)["layout"])
prepared = api.prepare(checkpoint, poly, calibration=rows, target="isaac-rram-128")
print(prepared.stages[-1].name)
for read in inspect, (lambda one: ModelSource((one, one)).load()):
    try:
        read(file)
    except CimError as error:
        print(error)
"""


def test_nothing_else_imports_this_folder() -> None:
    users = []
    for file in (ROOT / "cimtool").rglob("*.py"):
        if ROOT / "cimtool" / "loading" / "onnx" in file.parents:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            users += [file for name in names if f"{name}.".startswith(f"{LEAF}.")]
    assert not users


@pytest.mark.thorough("a copy without any leaf is in the first tier")
def test_the_rest_works_without_this_folder(
    tmp_path: Path, branch_content: dict[str, Any], poly_file: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(ROOT / "cimtool", copied / "cimtool")  # with the compiled kernels
    shutil.copytree(ROOT / "targets", copied / "targets")
    shutil.rmtree(copied / "cimtool" / "loading" / "onnx")
    checkpoint, rows, file = (tmp_path / name for name in ("last.pth", "rows.npz", "text.onnx"))
    torch.save(branch_content, checkpoint)
    given = np.random.default_rng(3).normal(size=(2, 50, D)).astype(np.float32)
    np.savez(rows, text=given[0], video=given[1])
    file.write_bytes(b"0")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, checkpoint, poly_file, rows, file],
        env=os.environ | {"PYTHONPATH": str(copied)}, cwd=copied,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    layout, stage, described, read = done.stdout.splitlines()
    assert (layout, stage) == ("two-branch", "converters fitted")
    assert described.startswith(f"{file}: its suffix does not say what it holds; expected a")
    assert read == (
        f"{file} and {file}: this cimtool cannot read pairs of projectors, as its folder "
        "loading/onnx is missing; expected a checkpoint"
    )
