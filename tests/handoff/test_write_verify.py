"""Write-verify in a hand-off: bounds of cells, their programming in the bench, and its faults."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_tools import c_compiler
from handoff_bench import Bench, numbers
from handoff_runs import counts, handoff_of, lint, run_goal, shown_faults

from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.hardware.write_verify import WriteVerify

TARGET = """
name = "written"
title = "cells of 40 uS that are programmed by write-verify"
base = "isaac-rram-128"
class = "bit-exact"

[noise]
source = "made up"
g_max = 40.0

[noise.programming]
sigma = [0.1]

[write_verify]
tolerance = {tolerance}
pulse = 1.5
max_pulses = {most}
"""
LAYER = "text.mu"


def handed_off(
    files: DemoFiles, folder: Path, tolerance: float = 2.0, most: int = 60, **choices: object
) -> Path:
    target = folder / "target.toml"
    target.write_text(TARGET.format(tolerance=tolerance, most=most), "utf-8")
    return handoff_of(files, folder, {"target": target, "array": "24x32"} | choices, LAYER)


@pytest.fixture(scope="module")
def handoff(narrow_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handed_off(narrow_trunk, tmp_path_factory.mktemp("written"))


def test_bounds_are_those_of_the_levels(handoff: Path) -> None:
    found = numbers(handoff / "constants" / LAYER / "write_bounds.hex").reshape(4, 3)
    levels = np.arange(4) * 40 / 3
    np.testing.assert_allclose(found[:, 0] / 16, levels, atol=1 / 32)
    np.testing.assert_array_equal(found[:, 2] - found[:, 0], 2 * 16)
    np.testing.assert_array_equal(found[1:, 0] - found[1:, 1], 2 * 16)
    assert found[0, 1] == 0
    assert f"write_verify {LAYER} 4 32 24 60 0 4" in (handoff / "steps.txt").read_text("utf-8")
    assert "cim_writer.sv" in (handoff / "README.md").read_text("utf-8")
    page = (handoff / "FORMAT.md").read_text("utf-8")
    assert "### `write_verify`" in page
    assert "A word line is erased: its cells conduct `erased`." in page


def test_the_bench_programs_every_cell_before_it_reads(handoff: Path) -> None:
    done = run_goal(handoff, "icarus")
    assert (done.returncode, done.stderr) == (0, "")
    found = counts(done.stdout)
    assert found["write_verify"] == (24 * 32, 0)
    assert all(differ == 0 for _, differ in found.values())
    pulses = re.search(
        r"^kind1: (\d+) cells, (\d+) pulses, mean ([\d.]+), at most (\d+), 0 cells not reached$",
        done.stdout, re.M,
    )  # fmt: skip
    assert pulses is not None
    cells, total, mean, most = map(float, pulses.groups())
    assert mean == pytest.approx(total / cells, abs=0.01)
    assert 38 / 1.5 < most <= 60
    bench = Bench(handoff)
    bench.run()
    assert bench.compared["write bounds"] == 12
    assert sum(bench.differing.values()) == 0


@pytest.mark.thorough("a bench more; one that programs every cell is in the first tier")
def test_a_cell_that_does_not_reach_its_target_is_named(
    narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    done = run_goal(handed_off(narrow_trunk, tmp_path, most=27), "icarus")
    assert done.returncode != 0
    assert re.search(
        rf"FAIL: {LAYER}/r0\.c0: the cell of word line \d+, column \d+ conducts \d+ after 27 "
        r"pulses; expected 608 to 672, in 2\^-4 uS\n",
        done.stdout,
    )


def test_each_fault_is_found(handoff: Path, tmp_path: Path) -> None:
    shown = [one for one in shown_faults(handoff) if one[1] == "write_verify"]
    assert len(shown) == 3
    sv = handoff / "sv"
    sources = [sv / "kind1/parameters.svh", sv / "tb_array.sv", sv / "cim_cells.sv"]
    sources += sorted((sv / "faulty").glob("*.sv"))
    command = [c_compiler("iverilog"), "-g2012", "-DWRITE_VERIFY=1", f"-I{sv}/faulty", f"-I{sv}"]
    bench = str(tmp_path / "bench")
    subprocess.run([*command, "-s", "tb_array", "-o", bench, *sources], check=True)
    for number, tap, _ in shown:
        run = ["vvp", "-n", bench, f"+HANDOFF={handoff}", f"+FAULT={number}"]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert f"fault {number}: found at {tap}\n" in done.stdout


@pytest.mark.thorough("a second simulator, and pairs in two word lines")
def test_pairs_in_two_word_lines_are_programmed_in_both_simulators(
    narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    target = tmp_path / "target.toml"
    target.write_text(
        'name = "written"\ntitle = "pairs"\nbase = "neurram-rram-130nm"\nclass = "nominal"\n'
        "[write_verify]\ntolerance = 1.0\npulse = 0.9\nmax_pulses = 80\n",
        "utf-8",
    )
    folder = handoff_of(narrow_trunk, tmp_path, {"target": target, "array": "24x32"}, LAYER)
    parts = ("macro", "output", "adapter", "array", "column", "writer", "cells")
    sources = ["kind1/parameters.svh", "tb_array.sv", *(f"cim_{name}.sv" for name in parts)]
    assert lint(folder, "tb_array", "-DWRITE_VERIFY=1", *sources) == ""
    for goal in ("icarus", "verilator"):
        done = run_goal(folder, goal)
        assert (done.returncode, done.stderr) == (0, "")
        found = counts(done.stdout)
        assert found["write_verify"][0] == 2 * 24 * 32
        assert all(differ == 0 for _, differ in found.values())


def test_digits_that_are_not_told_apart_are_refused(
    narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=r"= 7: must be less than half the 13\.3333 uS between two"):
        handed_off(narrow_trunk, tmp_path, tolerance=7.0)
    assert not (tmp_path / "here").exists()


def test_the_option_says_its_units() -> None:
    units = [one["unit"] for one in (
        field.json_schema_extra for field in WriteVerify.model_fields.values()
    ) if isinstance(one, dict)]  # fmt: skip
    assert units == ["uS", "uS"]
