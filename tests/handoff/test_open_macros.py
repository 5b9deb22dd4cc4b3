"""Adapters for public macros: with stubs of their ports, and with macros that were fetched.

The macros are not part of this repository. examples/handoff/README.md says how to fetch them; then

    CIMTOOL_OPEN_MACROS=FOLDER python -m pytest tests/handoff/test_open_macros.py

runs all of them from the folder in which their repositories lie.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from c_tools import c_compiler
from handoff_runs import TAPS, counts, run_goal

from cimtool import api
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "handoff"
TINYMOA, TT07, QRACC = "tinymoa", "tt07", "qracc"


@dataclass(frozen=True)
class OpenMacro:
    """A public macro: its sources below the folder of repositories, and a stub of its ports."""

    sources: tuple[str, ...]
    stub: str
    simulators: tuple[str, ...] = ("icarus", "verilator")
    layer: str = "text.mu"


DCIM = "TinyMOA-IHP26a/src/TinyMOA/src/dcim"
MACROS = {
    TINYMOA: OpenMacro(
        (f"{DCIM}/dcim.v", f"{DCIM}/compressor.v"),
        """module tinymoa_dcim(
            input clk, nrst, mmio_write, mmio_read, input [31:0] mmio_wdata, mem_rdata,
            input [5:0] mmio_addr, output mmio_ready, mem_write, mem_read,
            output [31:0] mmio_rdata, mem_wdata, output [9:0] mem_addr, output [2:0] dbg_state);
        endmodule""",
    ),
    TT07: OpenMacro(
        ("tt07-8bit-vector-compute-in-SRAM/src/tt07-8bit-vector-compute-in-SRAM.v",),
        """module tt_um_8bit_vector_compute_in_SRAM(
            input [7:0] ui_in, uio_in, output [7:0] uo_out, uio_out, uio_oe,
            input ena, clk, rst_n);
        endmodule""",
    ),
    QRACC: OpenMacro(
        ("QrAccelerator/rtl/ts_qracc.sv",),
        """module ts_qracc #(parameter numRows = 8, numCols = 8, numAdcBits = 4) (
            input [3:0] adc_ref_range_shifts,
            input [numRows-1:0] PSM_VDR_SEL, PSM_VDR_SELB, PSM_VSS_SEL, PSM_VSS_SELB, PSM_VRST_SEL,
            input [numRows-1:0] PSM_VRST_SELB, NSM_VDR_SEL, NSM_VDR_SELB, NSM_VSS_SEL, NSM_VSS_SELB,
            input [numRows-1:0] NSM_VRST_SEL, NSM_VRST_SELB, WL, input PCH, WRITE, SAEN, CLK,
            input [numCols-1:0] WR_DATA, CSEL, output [numCols-1:0] SA_OUT,
            output [((1 << numAdcBits)-1)*numCols-1:0] ADC_OUT,
            input NF, NFB, M2A, M2AB, R2A, R2AB);
        endmodule""",
        ("verilator",),  # Icarus 11 does not take an index that is no constant in an always_comb
        "text.fc1",  # its codes begin at -8: layers with signed inputs
    ),
}


def handoff_of(name: str, files: DemoFiles, folder: Path) -> Path:
    """A layer on arrays of the macro's size."""
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, output=folder / "bundle",
        drift="given", target=EXAMPLES / name / "target.toml",
    )  # fmt: skip
    export_bundle(bundle, "bench", folder / "here", Request(layers=MACROS[name].layer))
    return folder / "here"


@pytest.mark.thorough("compiles a bundle for each macro", quick=(TT07,))
@pytest.mark.parametrize("name", MACROS)
def test_an_adapter_fits_the_ports_on_both_sides(
    name: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    handoff = handoff_of(name, narrow_trunk, tmp_path)
    (tmp_path / "stub.sv").write_text(MACROS[name].stub + "\n", "utf-8")
    waived = ("UNDRIVEN", "UNUSEDSIGNAL", "UNUSEDPARAM", "DECLFILENAME", "IMPORTSTAR")
    command = [
        c_compiler("verilator"), "--lint-only", "-Wall", *(f"-Wno-{rule}" for rule in waived),
        f"-I{handoff}/sv", f"-I{handoff}/sv/kind1", "--top-module", "cim_adapter",
        handoff / "sv" / "kind1" / "parameters.svh", EXAMPLES / name / "adapter.sv",
        tmp_path / "stub.sv",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


RUNS = [(name, goal) for name, macro in MACROS.items() for goal in macro.simulators]


@pytest.mark.thorough("runs macros that are fetched from elsewhere")
@pytest.mark.parametrize(("name", "goal"), RUNS)
def test_a_public_macro_agrees_at_every_tap(
    name: str, goal: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    repositories = os.environ.get("CIMTOOL_OPEN_MACROS")
    if not repositories:
        pytest.skip("CIMTOOL_OPEN_MACROS names no folder with the macros' repositories")
    handoff = handoff_of(name, narrow_trunk, tmp_path)
    sources = " ".join(f"{Path(repositories).resolve() / one}" for one in MACROS[name].sources)
    adapter = EXAMPLES / name / "adapter.sv"
    done = run_goal(handoff, goal, f"MACRO={sources}", f"ADAPTER={adapter}")
    found = counts(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tuple(found) == TAPS
    assert (found.pop("sums") == (0, 0)) == (name == QRACC)
    assert all(compared > 20 and differ == 0 for compared, differ in found.values())
