"""The bench in SystemVerilog: 0 values differ in both simulators, and its faults are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from c_tools import c_compiler

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.emit.exporters import Request, export_bundle
from cimtool.emit.handoff.bench import BENCH_PART
from cimtool.emit.handoff.faults import FAULTS, Fault, faulty
from cimtool.training.demo_data import DemoFiles

KINDS: dict[str, dict[str, object]] = {
    "row groups": {"rows_active": 4},
    "differential": {"encoding": "differential", "dac_bits": 3},
    "bipolar inputs": {"encoding": "differential", "input_encoding": "bipolar"},
    "polarity": {"encoding": "differential", "adc_on": "polarity", "references": "column"},
    "analog shift-and-add": {"encoding": "differential", "shift_add": "analog"},
    "digital": {"encoding": "twos-complement", "adc_bits": "lossless"},
    "half-even": {"rounding": "half-even"},
    "floor": {"rounding": "floor", "dac_bits": 2},
    "a reference of each cycle": {"references": "cycle"},
    "levels": {"adc_bits": 3, "references": "levels"},
    "reference column": {"encoding": "centred", "references": "column", "array": "12x33"},
    "unit column": {"encoding": "offset", "offset_sum": "unit-column", "array": "12x33"},
    "leak": {
        "adc_bits": 6, "on_off_ratio": 30, "unused_rows": "driven", "input_encoding": "offset",
    },
}  # fmt: skip
"""Arrays of 12 rows and 8 weights of 8 bits; all but the last two groups of rows are full."""


def handoff_of(files: DemoFiles, folder: Path, choices: Mapping[str, object]) -> Path:
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        output=folder / "bundle", **{"array": "12x32", "adc_bits": 4} | choices,
    )  # fmt: skip
    export_bundle(bundle, "handoff", folder / "here", Request(layers="text.*"))
    return folder / "here"


def make(folder: Path, goal: str) -> subprocess.CompletedProcess[str]:
    c_compiler("iverilog")
    c_compiler("verilator")
    return subprocess.run(["make", "-C", folder, goal], capture_output=True, text=True, check=False)


def counts(printed: str) -> dict[str, tuple[int, int]]:
    found = re.findall(r"^(\w+): (\d+) compared, (\d+) differ$", printed, re.MULTILINE)
    return {tap: (int(compared), int(differ)) for tap, compared, differ in found}


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_differs_in_icarus(kind: str, small_trunk: DemoFiles, tmp_path: Path) -> None:
    done = make(handoff_of(small_trunk, tmp_path, KINDS[kind]), "icarus")
    found = counts(done.stdout)
    assert list(found) == [
        "digits",
        "sums",
        "codes",
        "shift_add",
        "layer_sum",
        "requantised",
        "requantiser",
    ]
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def handoff(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handoff_of(small_trunk, tmp_path_factory.mktemp("bench"), {"array": "24x32"})


def test_verilator_agrees(handoff: Path) -> None:
    icarus, verilator = (make(handoff, goal) for goal in ("icarus", "verilator"))
    assert counts(icarus.stdout) == counts(verilator.stdout)
    assert sum(differ for _, differ in counts(icarus.stdout).values()) == 0
    assert len(counts(icarus.stdout)) == 7
    assert icarus.returncode == verilator.returncode == 0


def test_every_fault_is_found_at_its_tap_in_both(handoff: Path) -> None:
    done = make(handoff, "mutants")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (handoff / "sv" / "faults.txt").read_text("utf-8").splitlines()
    assert len(lines) >= 14
    for simulator in ("iverilog", "verilator"):
        assert f"{simulator}: the control passes" in done.stdout
        for _, tap, name in (line.split("\t") for line in lines):
            assert f"{simulator}: {name}: found at {tap}\n" in done.stdout


@pytest.mark.parametrize(
    ("file", "tap"),
    [
        ("taps/text.fc2/r0/g0.digits.hex", "digits"),
        ("taps/text.fc2/r0.c0/g0.sums.hex", "sums"),
        ("taps/text.fc2/r0.c0/g0.codes.hex", "codes"),
        ("taps/text.fc2/r0.c0/g0.shift_add.hex", "shift_add"),
        ("taps/text.fc2/layer_sum.hex", "layer_sum"),
        ("taps/text.fc2/requantised.hex", "requantised"),
        ("images/text.fc2/r0.c0/cells.hex", "sums"),
        ("directed/text.fc2/requantiser_out.hex", "requantiser"),
    ],
)
def test_one_changed_line_fails(handoff: Path, tmp_path: Path, file: str, tap: str) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    lines = (folder / file).read_text("utf-8").splitlines()
    last = lines[-1]
    lines[-1] = last[:-1] + ("1" if last[-1] != "1" else "2")
    (folder / file).write_text("\n".join(lines) + "\n", "utf-8")
    done = make(folder, "icarus")
    assert done.returncode != 0
    assert next(name for name, (_, differ) in counts(done.stdout).items() if differ) == tap


def test_the_sources_are_clean(handoff: Path) -> None:
    sources = [f"{name}.sv" for name in ("tb_macro", "cim_macro", "cim_column", "cim_output")]
    for command in (
        [c_compiler("verilator"), "--lint-only", "--timing", "-Wall", "waivers.vlt"],
        [c_compiler("iverilog"), "-g2012", "-Wall", "-t", "null"],
    ):
        top = ["--top-module" if "--timing" in command else "-s", "tb_macro"]
        done = subprocess.run(
            [*command, *top, *sources], cwd=handoff / "sv", capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_layers_of_several_kinds_are_refused_by_name(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="neurram-rram-130nm", output=tmp_path / "bundle",
    )  # fmt: skip
    export_bundle(read_bundle(bundle.folder), "handoff", tmp_path / "here")
    written = {file.name for file in (tmp_path / "here" / "sv").iterdir()}
    assert written == {"NOT_COVERED", "bench.sh"}
    done = make(tmp_path / "here", "icarus")
    assert done.returncode != 0
    assert "pairs of cells lie in two rows; the macro has them in two columns" in done.stderr


def test_a_fault_replaces_what_occurs_once() -> None:
    fault = Fault("sum", "sums", "a.sv", "a + b", "a - b")
    other = Fault("other", "sums", "a.sv", "a + b", "b")
    expected = "x = (tb_macro.fault == 2 ? b : (tb_macro.fault == 1 ? a - b : (a + b)));"
    assert faulty("a.sv", "x = a + b;", [fault, other]) == expected
    for source in ("x = a;", "x = a + b; y = a + b;"):
        with pytest.raises(ValueError, match="occurs"):
            faulty("a.sv", source, [fault])


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({one.name for one in FAULTS}) == len(FAULTS) >= 14
    assert BENCH_PART.goals.keys() == {"icarus", "verilator", "mutants"}
