"""The bench in SystemVerilog: 0 values differ in both simulators, and its faults are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from c_tools import c_compiler
from handoff_runs import (
    KINDS,
    TAPS,
    counts,
    handoff_of,
    lint,
    list_anew,
    run_goal,
    shown_faults,
    with_changed_line,
)

from cimtool.demo.data import DemoFiles
from cimtool.handoff.bench import BENCH_PART
from cimtool.handoff.faults import FAULTS, Fault, faulty


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier",
    quick=("levels",),
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_differs_in_icarus(
    kind: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    done = run_goal(handoff_of_kind(kind, tmp_path), "icarus")
    assert_no_value_differs(done)


ORDERS = {
    "binary words": 'rows = "descending"\nword_bits = 12\ndigits = "binary"',
    "hexadecimal words": 'columns = "slice-major"\nword_bits = 7',
    "highest bit first": 'columns = "slice-major"\nbit_order = "msb-first"',
    "negative first": 'pair = "negative-first"',
    "all": 'columns = "slice-major"\npair = "negative-first"\nrows = "descending"\n'
    'word_bits = 10\nbit_order = "msb-first"\ndigits = "binary"',
}
ONE_LAYER = "text.fc2"
"""Of several arrays, full ones and others: enough to show where cells lie."""

PAIRS = {
    "columns": "signed_rows = 256\nsigned_cols = 64",
    "rows": "signed_rows = 128\nsigned_cols = 128",
}


def own_target(file: Path, base: str, table: str) -> Path:
    file.write_text(
        f'name = "own"\ntitle = "Own order"\nbase = "{base}"\nfigures = []\n{table}\n', "utf-8"
    )
    return file


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier", quick=("row groups-all",)
)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["row groups", "differential", "polarity", "unit column"])
def test_cells_lie_in_the_order_of_the_target(
    kind: str, order: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    target = own_target(tmp_path / "own.toml", "isaac-rram-128", f"[image]\n{ORDERS[order]}")
    choices = KINDS[kind] | {"target": str(target)}
    handoff = handoff_of(narrow_trunk, tmp_path, choices, ONE_LAYER)
    assert_no_value_differs(run_goal(handoff, "icarus"))


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier",
    quick=("negative first-columns-difference",),
)
@pytest.mark.parametrize("conversion", ["difference", "polarity"])
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("order", ["negative first", "all"])
def test_pairs_lie_in_columns_or_rows(
    order: str, pairs: str, conversion: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    table = f'[array]\npairs = "{pairs}"\n{PAIRS[pairs]}\n[image]\n{ORDERS[order]}'
    target = own_target(tmp_path / "own.toml", "prime-rram-256", table)
    choices = {"target": str(target), "array": "24x20", "adc_on": conversion, "rows_active": 5}
    handoff = handoff_of(narrow_trunk, tmp_path, choices, ONE_LAYER)
    assert f"HEIGHT = {1 if pairs == 'columns' else 2};" in parameters_of(handoff)
    assert_no_value_differs(run_goal(handoff, "icarus"))


def parameters_of(handoff: Path) -> str:
    return (handoff / "sv" / "kind1" / "parameters.svh").read_text("utf-8")


def assert_no_value_differs(done: subprocess.CompletedProcess[str]) -> None:
    """Of a run that compares at every tap and ends without a word on its error output."""
    found = counts(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert tuple(found) == TAPS
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())


def test_verilator_agrees(handoff: Path) -> None:
    icarus, verilator = (run_goal(handoff, goal) for goal in ("icarus", "verilator"))
    assert counts(icarus.stdout) == counts(verilator.stdout)
    assert sum(differ for _, differ in counts(icarus.stdout).values()) == 0
    assert len(counts(icarus.stdout)) == 8
    assert icarus.returncode == verilator.returncode == 0


@pytest.mark.thorough("builds a bench a fault")
def test_every_fault_is_found_at_its_tap_in_both(handoff: Path) -> None:
    done = run_goal(handoff, "mutants", "VECTORS=300")
    assert done.returncode == 0, done.stdout + done.stderr
    faults = shown_faults(handoff)
    assert len(faults) >= 14
    for simulator in ("iverilog", "verilator"):
        assert f"{simulator}: kind1: the control passes" in done.stdout
        for _, tap, name in faults:
            taps = tap.split("|")
            assert any(f"{simulator}: kind1: {name}: found at {one}" in done.stdout for one in taps)


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier",
    quick=("sums.hex",),
)
@pytest.mark.parametrize(
    ("file", "tap"),
    [
        ("taps/text.fc2/r0/g0.digits.hex", "digits"),
        ("taps/text.fc2/r0.c0/g0.sums.hex", "sums"),
        ("taps/text.fc2/r0.c0/g0.codes.hex", "codes"),
        ("taps/text.fc2/r0.c0/g0.shift_add.hex", "shift_add"),
        ("taps/text.fc2/layer_sum.hex", "layer_sum"),
        ("taps/text.fc2/q0/requantised.hex", "requantised"),
        ("images/text.fc1/r0.c0/cells.hex", "sums"),
        ("directed/text.fc2/q0/requantiser_out.hex", "requantiser"),
        ("directed/text.fc2/converter.txt", "converter"),
    ],
)
def test_one_changed_line_fails(handoff: Path, tmp_path: Path, file: str, tap: str) -> None:
    done = run_goal(with_changed_line(handoff, tmp_path / "copy", file), "icarus")
    assert done.returncode != 0
    assert next(name for name, (_, differ) in counts(done.stdout).items() if differ) == tap


CUT = {
    "directed/text.fc1/converter.txt": r"directed/text.fc1/converter.txt has \d+ lines; expected ",
    "directed/text.fc1/counts.txt": r"directed/text.fc1/counts.txt has \d+ lines; expected ",
    "steps.txt": "steps.txt has no end",
}


@pytest.mark.thorough("a copy of a hand-off for a sentence")
@pytest.mark.parametrize("file", CUT)
def test_a_file_that_was_cut_is_told(file: str, handoff: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(handoff, tmp_path / "copy"))
    lines = (folder / file).read_text("utf-8").splitlines(keepends=True)
    (folder / file).write_text("".join(lines[:-1]), "utf-8")
    list_anew(folder)
    done = run_goal(folder, "icarus")
    assert re.search(f"FAIL: {CUT[file]}", done.stdout + done.stderr)
    assert done.returncode != 0


@pytest.mark.thorough("a copy of a hand-off for a sentence")
def test_steps_without_a_layer_are_told(handoff: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(handoff, tmp_path / "copy"))
    text = (folder / "steps.txt").read_text("utf-8")
    kept = [line for line in text.splitlines(keepends=True) if "text.fc1" not in line]
    (folder / "steps.txt").write_text("".join(kept), "utf-8")
    list_anew(folder)
    done = run_goal(folder, "icarus")
    wanted = len(text.splitlines())
    told = f"FAIL: steps.txt has {len(kept)} lines; expected {wanted}"
    assert told in done.stdout + done.stderr
    assert done.returncode != 0


@pytest.mark.thorough("builds a bench twice")
@pytest.mark.parametrize("file", ["sv/cim_column.sv", "my_column.sv"])
def test_a_source_that_changed_is_compiled_anew(file: str, handoff: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(handoff, tmp_path / "copy"))
    text = (copy / "sv" / "cim_column.sv").read_text("utf-8")
    (copy / file).write_text(text, "utf-8")
    macro = f"MACRO=sv/cim_array.sv {file}"
    assert run_goal(copy, "icarus", macro).returncode == 0
    right = "bit_line(planes, drive, negative)"
    assert text.count(right) == 1
    (copy / file).write_text(text.replace(right, f"1 + {right}"), "utf-8")
    list_anew(copy)
    done = run_goal(copy, "icarus", macro)
    assert done.returncode != 0
    assert next(name for name, (_, differ) in counts(done.stdout).items() if differ) == "sums"


@pytest.mark.thorough("builds a bench twice")
def test_what_a_source_includes_is_compiled_anew(handoff: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(handoff, tmp_path / "copy"))
    text = (copy / "sv" / "cim_column.sv").read_text("utf-8")
    (copy / "mine").mkdir()
    (copy / "mine" / "part.svh").write_text(text, "utf-8")
    (copy / "mine" / "column.sv").write_text('`include "mine/part.svh"\n', "utf-8")
    macro = "MACRO=sv/cim_array.sv mine/column.sv"
    assert run_goal(copy, "icarus", macro).returncode == 0
    (copy / "mine" / "part.svh").write_text("no Verilog here\n", "utf-8")
    done = run_goal(copy, "icarus", macro)
    assert done.returncode != 0
    assert "the bench does not compile with them" in done.stderr


@pytest.mark.thorough("the same sources are built by other tests")
def test_the_sources_are_clean(handoff: Path) -> None:
    names = ("tb_array", "cim_macro", "cim_output", "cim_adapter", "cim_array", "cim_column")
    sources = ["kind1/parameters.svh", *(f"{name}.sv" for name in names)]
    assert lint(handoff, "tb_array", *sources) == ""
    assert lint(handoff, "tb_array", "-I../random", "-DRANDOM=1", *sources) == ""
    icarus = [c_compiler("iverilog"), "-g2012", "-Wall", "-t", "null", "-s", "tb_array", *sources]
    done = subprocess.run(icarus, cwd=handoff / "sv", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_fault_replaces_what_occurs_once() -> None:
    fault = Fault("sum", "sums", "a.sv", "a + b", "a - b")
    other = Fault("other", "sums", "a.sv", "a + b", "b")
    expected = "x = (tb_array.fault == 2 ? b : (tb_array.fault == 1 ? a - b : (a + b)));"
    assert faulty("a.sv", "x = a + b;", [fault, other]) == expected
    for source in ("x = a;", "x = a + b; y = a + b;"):
        with pytest.raises(ValueError, match="occurs"):
            faulty("a.sv", source, [fault])


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({one.name for one in FAULTS}) == len(FAULTS) >= 39
    assert BENCH_PART.goals.keys() == {
        *("icarus", "verilator", "cocotb", "mutants", "synth", "all")
    }
