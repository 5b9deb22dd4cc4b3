"""A macro, and a column of bit cells, in place of a hand-off's own, by the commands of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from c_tools import c_compiler
from handoff_runs import KINDS, TAPS, counts, handoff_of, run_goal

from cimtool.demo.data import DemoFiles

ROOT = Path(__file__).resolve().parents[2]
COLUMN = ROOT / "examples" / "handoff" / "cim_column.sv"
PAGE = ROOT / "docs" / "handoff.md"


@pytest.mark.thorough("whole pages and notebooks run in order")
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    c_compiler("iverilog")
    for name in ("exports", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("cimtool", "-m cimtool"), ("python3", "")):
        text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n'
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    # One layer is enough; all of them take minutes.
    page = PAGE.read_text("utf-8").replace("--format handoff", "--format handoff --layers text.fc2")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    done = [
        subprocess.run(
            ["sh", "-ec", commands], cwd=tmp_path, env=os.environ | paths, capture_output=True,
            text=True, check=False,
        )
        for commands in blocks
    ]  # fmt: skip
    reference, late, own, broken, column = done
    for one in (reference, late, own, column):
        assert (one.returncode, one.stderr) == (0, "")
    found = counts(own.stdout)
    assert found.pop("sums") == (0, 0)
    for one in (reference, late, column):
        assert counts(one.stdout) | found == counts(one.stdout)
        assert tuple(counts(one.stdout)) == TAPS
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())
    assert broken.returncode != 0
    assert first_that_differs(broken.stdout) == "codes"


def first_that_differs(printed: str) -> str:
    return next(tap for tap, (_, differ) in counts(printed).items() if differ)


@pytest.mark.thorough("builds a bench for each kind of array")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "leak"])
def test_it_takes_every_kind_of_array_without_leak(
    kind: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    handoff = handoff_of_kind(kind, tmp_path)
    done = run_goal(handoff, "icarus", f"MACRO=sv/cim_array.sv {COLUMN}")
    found = counts(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert tuple(found) == TAPS
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
@pytest.mark.parametrize(
    ("choices", "refusal"),
    [
        (KINDS["leak"], r"cim_column: LEAK = \d+, but bit cells do not leak; expected 0"),
        ({"adc_bits": 5}, r"cim_column: 32 codes; 15 comparators tell 16"),
        (
            {"adc_bits": 5, "references": "levels"},
            r"cim_column: THRESHOLDS = 31; expected at most 15",
        ),
    ],
)
def test_what_it_cannot_take_ends_the_run(
    choices: dict[str, object], refusal: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    done = run_goal(
        handoff_of(narrow_trunk, tmp_path, choices), "icarus", f"MACRO=sv/cim_array.sv {COLUMN}"
    )
    assert done.returncode != 0
    assert re.search(refusal, done.stdout + done.stderr)
    assert "PASS" not in done.stdout


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_verilator_agrees_without_a_warning(handoff: Path) -> None:
    done = run_goal(handoff, "verilator", f"MACRO=sv/cim_array.sv {COLUMN}")
    assert (done.returncode, done.stderr) == (0, "")
    assert counts(done.stdout) == counts(run_goal(handoff, "icarus").stdout)
    assert "%Warning" not in (handoff / "build" / "verilator_kind1.log").read_text("utf-8")


@pytest.mark.thorough("builds a bench for each fault")
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize(
    ("right", "wrong", "tap"),
    [
        (".word_line(word_lines)", ".word_line(word_lines & ~ROWS'(2))", "sums"),
        ("m < COMPARATORS; m++", "m < COMPARATORS - 1; m++", "codes"),
    ],
)
def test_a_wrong_column_fails_where_it_is_wrong(
    right: str, wrong: str, tap: str, simulator: str, handoff: Path, tmp_path: Path
) -> None:
    source = COLUMN.read_text("utf-8")
    assert source.count(right) == 1
    (tmp_path / "wrong.sv").write_text(source.replace(right, wrong), "utf-8")
    done = run_goal(handoff, simulator, f"MACRO=sv/cim_array.sv {tmp_path / 'wrong.sv'}")
    assert done.returncode != 0
    assert first_that_differs(done.stdout) == tap


@pytest.mark.thorough("a hand-off of its own for a sentence")
@pytest.mark.parametrize("name", ["MACRO", "ADAPTER"])
def test_a_source_that_is_missing_is_told(name: str, handoff: Path) -> None:
    done = run_goal(handoff, "icarus", f"{name}=sv/none.sv")
    assert done.returncode != 0
    assert f"{name}: sv/none.sv: no such file" in done.stderr
