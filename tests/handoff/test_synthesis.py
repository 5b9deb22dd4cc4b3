"""Synthesis of a layer's periphery by Yosys, with a library of cells and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from handoff_runs import run_goal
from programs import installed

TABLE = 'index_1 ("0.1, 1"); index_2 ("0.01, 1"); values ("{0}, {0}", "{0}, {0}");'
TIMES = ("cell_rise", "cell_fall", "rise_transition", "fall_transition")


def gate(name: str, area: int, inputs: str, function: str, delay: float) -> str:
    """A cell in Liberty format: its delay [ns] is that of all loads and slopes."""
    pins = "".join(f"pin({one}) {{ direction : input; capacitance : 0.01; }}\n" for one in inputs)
    tables = "".join(f"{time}(of_load) {{ {TABLE.format(delay)} }}\n" for time in TIMES)
    timing = "".join(
        f'timing() {{ related_pin : "{one}"; timing_sense : negative_unate;\n{tables} }}\n'
        for one in inputs
    )
    output = f'pin(Y) {{ direction : output; function : "{function}";\n{timing} }}'
    return f"cell ({name}) {{ area : {area};\n{pins}{output} }}\n"


CELLS = (
    'library(few) { time_unit : "1ns"; capacitive_load_unit (1, pf);\n'
    "lu_table_template (of_load) { variable_1 : input_net_transition;\n"
    'variable_2 : total_output_net_capacitance; index_1 ("0.1, 1"); index_2 ("0.01, 1"); }\n'
    + gate("INV", 2, "A", "!A", 0.1)
    + gate("NAND", 4, "AB", "!(A B)", 0.2)
    + gate("NOR", 4, "AB", "!(A+B)", 0.2)
    + gate("NAND3", 4, "ABC", "!(A B C)", 0.2)
    + gate("AOI", 4, "ABC", "!((A B)+C)", 0.2)
    + 'cell (FLOP) { area : 20; ff(IQ, IQN) { clocked_on : "CLK"; next_state : "D"; }\n'
    "pin(CLK) { direction : input; capacitance : 0.01; clock : true; }\n"
    "pin(D) { direction : input; capacitance : 0.01; }\n"
    'pin(Q) { direction : output; function : "IQ"; } }\n}\n'
)


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
