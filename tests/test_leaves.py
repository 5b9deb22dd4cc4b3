"""The core without its leaves: each can be deleted, and what is left compiles and verifies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from house import CORE, LEAVES, PACKAGE, ROOT, arrows

CHECKPOINTS = ROOT / "tests" / "golden" / "checkpoints"
WALK = ROOT / "tests" / "kits" / "core_walk.py"


TESTED = ("base", "reference", "report", "ir", "hardware", "simulation")
"""Rooms whose tests run without leaves; those of the others train their models."""

NEEDS = re.compile(
    rf"cimtool\.({'|'.join(leaf.replace('/', '.') for leaf in LEAVES)})\b"
    r"|\b(small_trunk|narrow_trunk|tiny_trunk|medium_trunk|small_two_branch|small_models)\b"
)
"""Marks of a test file that takes a leaf: an import, or a model that training makes."""

NEEDS_INSIDE = {
    "tests/ir/test_backends.py": "the tables of the leaves",
    "tests/report/test_page_in_chromium.py": "the section of costs",
    "tests/hardware/test_cell_distance.py": "the C model and torch",
    "tests/hardware/test_plugin_faults.py": "a bundle that the demo's kit makes",
}
"""Test files that take a leaf in another way, and what for."""


def _linked(folder: Path, copy: Path, without: set[Path]) -> None:
    """A folder of links to what another one holds, but for some folders in it.

    Links keep the compiled kernels, which lie beside their sources.
    """
    copy.mkdir(parents=True)
    for one in folder.iterdir():
        if any(removed.is_relative_to(one) for removed in without - {one}):
            _linked(one, copy / one.name, without)
        elif one not in without:
            (copy / one.name).symlink_to(one)


def walked(folder: Path, *removed: str) -> str:
    """The digest of the scores that the core computes without some leaves."""
    copy = folder / "copy"
    _linked(PACKAGE, copy / "cimtool", {PACKAGE / leaf for leaf in removed})
    files = [CHECKPOINTS / f"small-trunk.{suffix}" for suffix in ("safetensors", "json")]
    (folder / "work").mkdir()
    done = subprocess.run(
        [sys.executable, WALK, copy, *files, folder / "work"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.rpartition("scores ")[2].strip()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return walked(tmp_path_factory.mktemp("whole"))


@pytest.mark.thorough("a copy of the core compiles its kernels anew")
def test_the_core_computes_the_same_without_any_leaf(whole: str, tmp_path: Path) -> None:
    assert walked(tmp_path, *LEAVES) == whole


@pytest.mark.thorough("each leaf alone; all of them together are in the first tier")
@pytest.mark.parametrize("leaf", LEAVES)
def test_each_leaf_can_be_removed(leaf: str, whole: str, tmp_path: Path) -> None:
    assert walked(tmp_path, leaf) == whole


def test_nothing_in_the_core_imports_a_leaf() -> None:
    leaves = tuple(f"cimtool.{leaf.replace('/', '.')}" for leaf in LEAVES)

    def in_leaf(module: str) -> bool:
        return any(module == leaf or module.startswith(f"{leaf}.") for leaf in leaves)

    core = {module for module in arrows() if module.split(".")[1:2] != [] and not in_leaf(module)}
    assert {module.split(".")[1] for module in core} == {*CORE, "api", "cli", "__main__"}
    assert not [
        f"{module} -> {other}" for module in core for other in arrows()[module] if in_leaf(other)
    ]


@pytest.mark.thorough("two thousand tests in one process")
def test_tests_of_the_core_pass_without_any_leaf(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "cimtool")
    for leaf in LEAVES:
        shutil.rmtree(copy / "cimtool" / leaf)
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "docs", "examples", "exports", "targets"):
        (copy / name).symlink_to(ROOT / name)
    found = [file for room in TESTED for file in sorted((copy / "tests" / room).rglob("test_*.py"))]
    names = [
        file.relative_to(copy).as_posix() for file in found if not NEEDS.search(file.read_text())
    ]
    assert set(NEEDS_INSIDE) < set(names)
    assert len(names) > 70
    run = [name for name in names if name not in NEEDS_INSIDE]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quick", "-q", "-p", "no:cacheprovider", *run],
        cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True,
        timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
