"""A macro that was not built for the bench: its values, and faults in it and around it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from handoff_runs import KINDS, QUICK, counts, handoff_of, keep_directed, run_goal

from cimtool.demo.data import DemoFiles
from cimtool.handoff.faults import FAULTS, Fault, faulty

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "handoff" / "serial"
SOURCE = FOLDER / "serial_macro.sv"
ADAPTER = f"ADAPTER={FOLDER / 'adapter.sv'}"


@pytest.mark.thorough("builds a bench for each kind of array")
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("leak", "levels", "reference column")]
)
def test_it_agrees_on_what_it_shows(
    kind: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    done = run_goal(handoff_of_kind(kind, tmp_path), "icarus", f"MACRO={SOURCE}", ADAPTER)
    found = counts(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert found.pop("sums") == (0, 0)
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())


DRIVEN, COUNT, TERM = (
    "held[32'(digit)*ROWS +: ROWS]", "(third + fourth)", "SUM_BITS'(count)"
)  # fmt: skip
CODE, ENDS = "$signed(above | last)", "phase == CONVERT && bit_of == '0 && !beginning"
MISTAKES = {
    "a quarter of the rows is not counted": (COUNT, "third"),
    "a word line does not drive": (DRIVEN, f"({DRIVEN} & ~ROWS'(2))"),
    "a cell is stuck": ("bits[p]", "bits[p] & ~(row == 1 && p == 0)"),
    "a count is wrong at 3": (TERM, f"{TERM} + SUM_BITS'(count == 3)"),
    "a count is wrong at 13": (TERM, f"{TERM} + SUM_BITS'(count == 13)"),
    "carries are lost": ("(saved[SUM_BITS-2:0] ^ carries[SUM_BITS-2:0])", "(SUM_BITS-1)'(0)"),
    "places come a clock early": ("(weight_1)", "weight_0"),
    "sums are not cleared": ("read && ready", "1'b0"),
    "sums are taken too early": ("drained == 2'd2", "drained == 2'd0"),
    "a converter takes the sum of the column beside": ("sums[at]", "sums[at == 0 ? 1 : at - 1]"),
    "a threshold belongs to the code below": ("level >= threshold", "level > threshold"),
    "the highest code is never reached": ("trial <= codes", "trial < codes"),
    **{
        f"codes are wrong at {code}": (CODE, f"({CODE} ^ CODE_BITS'({CODE} == {code}))")
        for code in (1, 5, 14)
    },
    "valid comes before the lowest bit": (ENDS, "phase == CONVERT && bit_of == CODE_BITS'(1)"),
}


BY_RANDOM_INPUTS = (
    "a quarter of the rows is not counted",
    "a threshold belongs to the code below",
    "the highest code is never reached",
)


@pytest.mark.thorough("builds a bench with the faults in each simulator")
def test_faults_in_it_and_around_it_are_found(tiny_trunk: DemoFiles, tmp_path: Path) -> None:
    """`make mutants` runs those of the macro too if sv/faults.txt lists them."""
    handoff = handoff_of(tiny_trunk, tmp_path, {"array": "24x32"}, "text.fc[12]")
    keep_directed(handoff, {"converter": 64, "counts": 32})
    own = [
        Fault(name, "codes|converter", SOURCE.name, right, wrong)
        for name, (right, wrong) in MISTAKES.items()
    ]
    source = faulty(SOURCE.name, SOURCE.read_text("utf-8"), [*FAULTS, *own])
    # In the hand-off's folder, where benches are compiled once.
    (handoff / SOURCE.name).write_text(source, "utf-8")
    under_test = f"MACRO={SOURCE.name}", "ADAPTER=adapter.sv", "VECTORS=300", QUICK
    shutil.copy(FOLDER / "adapter.sv", handoff)
    with (handoff / "sv" / "faults.txt").open("a", encoding="utf-8") as listed:
        for number, one in enumerate(own, len(FAULTS) + 1):
            listed.write(f"{number}\t{one.tap}\t{one.file}\tkind1\t{one.name}\n")
    done = run_goal(handoff, "mutants", *under_test)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for simulator in ("iverilog", "verilator"):
        assert f"{simulator}: kind1: the control passes" in lines
        found = [one for one in lines if one.startswith(simulator) and "found at" in one]
        assert len(found) >= 39
        for name in MISTAKES:
            assert any(f": {name}: found at co" in one for one in found)
    for number, one in enumerate(own, len(FAULTS) + 1):
        if one.name in BY_RANDOM_INPUTS:
            done = run_goal(handoff, "random", *under_test, f"FAULT={number}")
            assert f"fault {number}: found at codes\n" in done.stdout
            assert done.returncode != 0
