"""Synthesis of a layer's periphery by Yosys, with a library of cells and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from handoff_runs import run_goal
from programs import installed

CELLS = """library(two) {
  time_unit : "1ns";
  capacitive_load_unit (1, pf);
  cell (INV) { area : 2;
    pin(A) { direction : input; capacitance : 0.01; }
    pin(Y) { direction : output; function : "A'"; timing() { related_pin : "A";
      cell_rise(scalar) { values ("0.1"); } cell_fall(scalar) { values ("0.1"); }
      rise_transition(scalar) { values ("0.1"); } fall_transition(scalar) { values ("0.1"); } } } }
  cell (NAND) { area : 4;
    pin(A) { direction : input; capacitance : 0.01; }
    pin(B) { direction : input; capacitance : 0.01; }
    pin(Y) { direction : output; function : "(A B)'";
      timing() { related_pin : "A B"; timing_sense : negative_unate;
      cell_rise(scalar) { values ("0.2"); } cell_fall(scalar) { values ("0.2"); }
      rise_transition(scalar) { values ("0.1"); } fall_transition(scalar) { values ("0.1"); } } } }
  cell (FLOP) { area : 20;
    ff(IQ, IQN) { clocked_on : "CLK"; next_state : "D"; }
    pin(CLK) { direction : input; capacitance : 0.01; clock : true; }
    pin(D) { direction : input; capacitance : 0.01; }
    pin(Q) { direction : output; function : "IQ"; } }
}
"""


@pytest.mark.thorough("Yosys maps some thousands of gates")
def test_cells_area_and_path_of_a_layer(handoff: Path, tmp_path: Path) -> None:
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    generic = run_goal(handoff, "synth", "LAYER=text.fc2")
    assert (generic.returncode, generic.stderr) == (0, "")
    gates = r"(\w+): (\d+) gates, (\d+) of them flip-flops, longest path (\d+) gates"
    found = {one[0]: [int(n) for n in one[1:]] for one in re.findall(gates, generic.stdout)}
    assert tuple(found) == ("cim_layer", "cim_layer_output")
    parameters = (handoff / "sv" / "kind1" / "parameters.svh").read_text("utf-8")
    width = {name: int(n) for name, n in re.findall(r"(\w+) = (\d+);", parameters)}
    assert "text.fc2 (kind1), generic gates" in generic.stdout
    # What a read keeps: inputs, codes and sums; and a requantised value.
    kept = width["ROWS"] * width["INPUT_BITS"] + width["WEIGHTS"] * width["ACC_BITS"]
    assert found["cim_layer"][1] > kept // 2
    assert found["cim_layer_output"][1] == width["OUT_BITS"]
    assert all(total > flops > 0 and path > 10 for total, flops, path in found.values())

    (tmp_path / "cells.lib").write_text(CELLS, "utf-8")
    mapped = run_goal(handoff, "synth", "LAYER=text.fc2", f"LIBERTY={tmp_path / 'cells.lib'}")
    assert (mapped.returncode, mapped.stderr) == (0, "")
    cells = r"(\w+): (\d+) cells, (\d+) of them flip-flops, area (\d+), longest path (\d+) ps"
    for name, *numbers in re.findall(cells, mapped.stdout):
        total, flops, area, path = map(int, numbers)
        assert flops == found.pop(name)[1]
        assert 2 * (total - flops) < area - 20 * flops < 4 * (total - flops)
        assert path > 1000
    assert not found


@pytest.mark.thorough("a hand-off for a sentence")
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("LAYER=text.fc9", "LAYER: text.fc9: no such layer; expected one of text.fc1, text.fc2, "),
        ("LIBERTY=none.lib", "LIBERTY: none.lib: no such file; expected an absolute path, or one "),
    ],
)
def test_a_mistake_is_told(setting: str, sentence: str, handoff: Path) -> None:
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    done = run_goal(handoff, "synth", setting)
    assert done.returncode != 0
    assert f"sv/synth.sh: {sentence}" in done.stderr
    assert done.stdout.count(" cells, ") + done.stdout.count(" gates, ") == 0
