"""An array of a hand-off by itself in cocotb: what is right passes, what is wrong is counted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from handoff_runs import counts, keep_directed, list_anew, run_cocotb, run_goal


@pytest.mark.thorough("seconds more; that one changed line differs is in the first tier")
@pytest.mark.parametrize("kind", ["leak", "levels", "differential"])
def test_a_column_agrees_as_in_the_bench(
    kind: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    folder = handoff_of_kind(kind, tmp_path)
    done = run_cocotb(folder)
    # The bench has further sums, those of counts.txt.
    keep_directed(folder, {"counts": 0})
    bench = counts(run_goal(folder, "icarus").stdout)
    found = counts(done.stdout)
    assert found == {"converter": bench["converter"]}, done.stdout
    compared, differ = found["converter"]
    assert compared > 100
    assert differ == 0
    assert done.returncode == 0


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("quotient = top;", "quotient = top - WIDE'(1);"), ("<<< (p %", "<<< (1 - p %")],
)
def test_a_wrong_column_fails(right: str, wrong: str, handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    source = folder / "sv" / "cim_column.sv"
    text = source.read_text("utf-8")
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong), "utf-8")
    list_anew(folder)
    done = run_cocotb(folder)
    assert counts(done.stdout)["converter"][1] > 0
    assert done.returncode != 0


def test_one_changed_line_fails(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    file = next((folder / "directed").glob("*/converter.txt"))
    text, changed = re.subn(
        r"(\d+)\n\Z", lambda one: f"{int(one[1]) - 1}\n", file.read_text("utf-8")
    )
    assert changed == 1
    file.write_text(text, "utf-8")
    list_anew(folder)
    done = run_cocotb(folder)
    # A sum is compared in every lane of its slice.
    assert counts(done.stdout)["converter"][1] == 8
    assert done.returncode != 0


def test_nothing_compared_fails(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    keep_directed(folder, {"converter": 0})
    done = run_cocotb(folder)
    assert "nothing was compared" in done.stdout + done.stderr
    assert done.returncode != 0


def test_a_file_that_was_cut_is_told(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    file = folder / "directed" / "text.fc1" / "converter.txt"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-1]), "utf-8")
    list_anew(folder)
    done = run_cocotb(folder)
    told = f"converter.txt has {len(lines) - 1} lines; expected {len(lines)} (steps.txt)"
    assert f"FAIL: directed/text.fc1/{told}" in done.stderr
    assert done.returncode != 0
