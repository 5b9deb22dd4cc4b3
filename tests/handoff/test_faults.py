"""Faults are said to show in a kind of macro where they do: each is then found at its tap."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_tools import c_compiler
from handoff_runs import KINDS, handoff_of, shown_faults

from cimtool.demo.data import DemoFiles

CASES = {
    "one cycle": (
        KINDS["analog shift-and-add"],
        {"cycles most significant first", "a cycle drives all higher bits too"},
    ),
    "a reference of each cycle": (KINDS["a reference of each cycle"], set()),
    "bits in cells of their own": (
        {
            "encoding": "twos-complement", "adc_bits": "lossless", "cell_bits": 1,
            "array": "12x64",
        },
        {
            "slices are one bit apart",
            "all bits of a cell have the same weight",
            "half-even in place of half-up",
        },
    ),
}  # fmt: skip


@pytest.mark.thorough("builds a bench for each fault")
@pytest.mark.parametrize("case", CASES)
def test_a_fault_that_is_said_to_show_is_found_at_its_tap(
    case: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    choices, hidden = CASES[case]
    handoff = handoff_of(narrow_trunk, tmp_path, choices)
    shown = shown_faults(handoff)
    assert len(shown) >= 8
    assert not hidden & {name for *_, name in shown}
    sv = handoff / "sv"
    faulty = sorted((sv / "faulty").glob("*.sv"))
    sources = [sv / "kind1" / "parameters.svh", sv / "tb_array.sv", *faulty]
    include = [f"-I{sv}/faulty", f"-I{sv}"]
    command = [c_compiler("iverilog"), "-g2012", *include, "-s", "tb_array", "-o", "bench"]
    subprocess.run([*command, *sources], cwd=tmp_path, check=True)
    for number, tap, name in shown:
        if name.startswith("an input of"):
            continue  # by random inputs
        run = ["vvp", "-n", "bench", f"+HANDOFF={handoff}", f"+FAULT={number}"]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert any(f"fault {number}: found at {one}\n" in done.stdout for one in tap.split("|"))
