"""Arrays of any latency, with shared converters, and those that break the handshakes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handoff_runs import QUICK, TAPS, counts, keep_directed, need_cocotb, run_goal
from programs import installed

from cimtool import api
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.target import target_names

ROOT = Path(__file__).resolve().parents[2]
TIMINGS = (("1", "1"), ("7", "1"), ("random", "1"), ("0", "8"), ("random", "8"))


def assert_no_value_differs(handoff: Path, *goal: str) -> None:
    done = run_goal(handoff, *goal, QUICK)
    found = counts(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert tuple(found) == TAPS
    assert all(compared > 100 and differ == 0 for compared, differ in found.values())


@pytest.mark.thorough("a bench runs for seconds; one that never answers is in the first tier")
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize(("latency", "multiplexed"), TIMINGS)
def test_it_may_take_any_time(
    latency: str, multiplexed: str, simulator: str, handoff: Path
) -> None:
    timing = f"LATENCY={latency}", f"MULTIPLEXED={multiplexed}"
    assert_no_value_differs(handoff, simulator, *timing)


def exported(target: str, files: DemoFiles, folder: Path, array: str | None = None) -> Path:
    """A layer's bench on the arrays of a target, or on smaller ones."""
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, output=folder / "bundle",
        drift="given", target=target, array=array,
    )  # fmt: skip
    export_bundle(bundle, "bench", folder / "here", Request(layers="text.fc2"))
    return folder / "here"


@pytest.mark.thorough("builds two benches for each target")
@pytest.mark.parametrize("target", target_names())
def test_converters_of_every_target_take_any_time(
    target: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Small arrays with few directed sums; a bench is built once, and takes the timing at run time.

    In both simulators 18 targets take some four minutes of processor time.
    """
    handoff = exported(target, narrow_trunk, tmp_path, "32x32")
    keep_directed(handoff, {"converter": 32, "counts": 64})
    for latency, multiplexed in (("0", "1"), *TIMINGS[:-1]):
        timing = f"LATENCY={latency}", f"MULTIPLEXED={multiplexed}"
        for simulator in ("icarus", "verilator"):
            assert_no_value_differs(handoff, simulator, *timing)


WIDE = (
    *("c2c-22nm-intel", "charge-16nm-princeton", "charge-65nm-princeton", "hermes-pcm-14nm"),
    *("metis-dcim-12nm", "neurram-rram-130nm", "prime-rram-256", "sf-rram-28nm", "sonos-40nm"),
)
"""Targets whose whole arrays take Icarus minutes."""


@pytest.mark.thorough("builds a bench for each target")
@pytest.mark.parametrize("target", [one for one in target_names() if one not in WIDE])
def test_whole_arrays_of_every_target(target: str, narrow_trunk: DemoFiles, tmp_path: Path) -> None:
    handoff = exported(target, narrow_trunk, tmp_path)
    assert_no_value_differs(handoff, "icarus", "LATENCY=random", "MULTIPLEXED=8")


WRONG = {
    "never answers": (
        "assign shown = busy ? left == '0 : taken && chosen == '0;",
        "assign shown = 1'b0;",
        "FAIL: text.fc1/r0.c0 g0, vector 0, cycle 0: no answer within 500 clocks (out_valid): "
        "0 of 32 lanes",
    ),
    "never takes digits": (
        "assign in_ready = !busy;",
        "assign in_ready = 1'b0;",
        "FAIL: text.fc1/r0.c0 g0, vector 0, cycle 0: digits are not taken within 500 clocks "
        "(in_ready)",
    ),
    "never takes cells": (
        "assign write_ready = 1'b1;",
        "assign write_ready = 1'b0;",
        "FAIL: text.fc1/r0.c0: word line 0 is not taken within 500 clocks (write_ready)",
    ),
    "answers unasked": (
        "out_valid = {CONVERTED{shown}};",
        "out_valid = {CONVERTED{!rst}};",
        "codes without an input (out_valid)",
    ),
    "ends the run": (
        "assign in_ready = !busy;",
        "assign in_ready = !busy; initial #2000 $finish;",
        "kind1: the run ended before the bench had compared all; expected no $finish in ",
    ),
    "a missing port": (
        "    output logic                          shows_sums,\n",
        "",
        "adapter.sv: cim_adapter has no port shows_sums; expected the ports of sv/cim_adapter.sv",
    ),
    "no Verilog": (
        "assign in_ready = !busy;",
        "assign in_ready = !busy",
        "the bench does not compile with them; expected a module cim_adapter with the ports of "
        "sv/cim_adapter.sv, and all modules in it",
    ),
    "a narrow port": (
        ".lo, .hi, .sums, .codes",
        ".lo, .hi, .sums, .codes(codes[3:0])",
        " has 256 bits; expected 4",
    ),
    "a narrow port of its own": (
        "output logic [CONVERTED*CODE_BITS-1:0] codes,",
        "output logic [CONVERTED*4-1:0] codes,",
        "has 128 bits; expected 256",
    ),
}  # fmt: skip


@pytest.mark.thorough(
    "more of the same; one stays in the first tier", quick=("icarus-never answers",)
)
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_what_does_not_keep_to_the_ports_is_told(
    simulator: str, case: str, handoff: Path, tmp_path: Path
) -> None:
    right, wrong, sentence = WRONG[case]
    source = (handoff / "sv" / "cim_adapter.sv").read_text("utf-8")
    assert source.count(right) == 1
    (tmp_path / "adapter.sv").write_text(source.replace(right, wrong), "utf-8")
    done = run_goal(handoff, simulator, f"ADAPTER={tmp_path / 'adapter.sv'}", "TIMEOUT=500")
    assert done.returncode != 0
    assert sentence in done.stdout + done.stderr
    assert "PASS" not in done.stdout


LOOPS = {
    "icarus": (
        "int k = 0; always @(posedge clk) while (taken && k >= 0) k = (k + 1) & 3;",
        "text.fc1/r0.c0 g0, vector 0: no further step within 2 s",
    ),
    "cocotb": (
        "int k = 0; initial while (k >= 0) k = (k + 1) & 3;",
        "before the first step: no further step within 2 s",
    ),
    "verilator": (
        "wire z; assign z = rst ? 1'b0 : !z; always @(posedge clk) if (z) $display(z);",
        "word line 0: signals do not settle",
    ),
}  # fmt: skip


@pytest.mark.thorough("a loop runs for seconds; a bench that never answers is in the first tier")
@pytest.mark.parametrize("goal", LOOPS)
def test_a_loop_without_delay_ends_the_run(goal: str, handoff: Path, tmp_path: Path) -> None:
    loop, told = LOOPS[goal]
    if goal == "cocotb":
        need_cocotb()
    source = (handoff / "sv" / "cim_adapter.sv").read_text("utf-8")
    adapter = tmp_path / "adapter.sv"
    adapter.write_text(source.replace("endmodule", f"    {loop}\nendmodule"), "utf-8")
    given = f"ADAPTER={adapter}", "TIMEOUT_SECONDS=2", f"PYTHON={sys.executable}"
    done = run_goal(handoff, goal, *given)
    (line,) = (one for one in done.stderr.splitlines() if told in one)
    assert f"; expected no loop without delay in {adapter} sv/cim_array.sv " in line
    assert (done.returncode, "PASS" in done.stdout) == (2, False)


def working_in(folder: Path) -> dict[int, str]:
    """The processes of which this is the working folder, by number, with their names."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (one / "cwd").readlink() == folder:
                found[int(one.name)] = (one / "comm").read_text("utf-8").strip()
    return found


@pytest.mark.thorough("builds a bench; a rare end of a run")
def test_an_interrupted_run_leaves_no_simulation(handoff: Path, tmp_path: Path) -> None:
    installed("iverilog", "CIMTOOL_REQUIRE_COMPILERS")
    source = (handoff / "sv" / "cim_adapter.sv").read_text("utf-8")
    adapter = tmp_path / "adapter.sv"
    endless = source.replace("endmodule", f"    {LOOPS['icarus'][0]}\nendmodule")
    adapter.write_text(endless, "utf-8")
    step = handoff / "build" / "iverilog_kind1.step"
    step.unlink(missing_ok=True)
    bench = subprocess.Popen(
        ["sh", "sv/bench.sh", "icarus"], cwd=handoff, env=os.environ | {"ADAPTER": f"{adapter}"},
    )  # fmt: skip
    while bench.poll() is None and not (step.is_file() and "vector 0" in step.read_text("utf-8")):
        time.sleep(0.1)
    assert "vvp" in working_in(handoff).values()
    bench.terminate()
    assert bench.wait(30) == 130
    time.sleep(1)
    left = working_in(handoff)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}


@pytest.mark.parametrize(
    ("timing", "told"), [("0", ""), ("7", ", LATENCY=7")], ids=["own", "reference"]
)
def test_a_run_says_which_sources_it_tested(
    timing: str, told: str, handoff: Path, tmp_path: Path
) -> None:
    handoff = Path(shutil.copytree(handoff, tmp_path / "few"))
    keep_directed(handoff, {"converter": 32, "counts": 64})
    given = [f"LATENCY={timing}"]
    under_test = "the reference macro, sv/cim_adapter.sv with sv/cim_array.sv sv/cim_column.sv"
    if not told:
        own = tmp_path / "adapter.sv"
        own.write_bytes((handoff / "sv" / "cim_adapter.sv").read_bytes())
        given = [f"ADAPTER={own}"]
        under_test = f"{own} with sv/cim_array.sv sv/cim_column.sv"
    done = run_goal(handoff, "icarus", *given)
    *_, tested, passed, _ = done.stdout.splitlines()
    assert passed == "PASS"
    assert tested == f"tested: {under_test}{told}" + (", MULTIPLEXED=1" if told else "")


@pytest.mark.thorough("builds the bench in both simulators")
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_a_macro_may_pad_its_own_ports(simulator: str, handoff: Path, tmp_path: Path) -> None:
    source = (handoff / "sv" / "cim_array.sv").read_text("utf-8")
    inside = "wire [7:0] padded; padder pad(.a(3), .b(padded));\nendmodule\n"
    padder = "module padder(input [7:0] a, output [7:0] b);\n    assign b = a;\nendmodule\n"
    assert source.endswith("endmodule\n")
    own = tmp_path / "cim_array.sv"
    own.write_text(source.removesuffix("endmodule\n") + inside + padder, "utf-8")
    done = run_goal(handoff, simulator, f"MACRO={own} {handoff / 'sv' / 'cim_column.sv'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nPASS\n" in done.stdout


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("LATENCY=256", "0 to 255, or random"),
        ("LATENCY=x", "0 to 255, or random"),
        ("MULTIPLEXED=0", "1 to 255"),
        ("MULTIPLEXED=x", "1 to 255"),
        ("MULTIPLEXED=1000", "1 to 255"),
        ("TIMEOUT=x", "2 to 999999999"),
        ("TIMEOUT=-1", "2 to 999999999"),
        ("TIMEOUT_SECONDS=0", "1 to 999999999"),
        ("VECTORS=1e3", "0 to 999999999"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, expected: str, handoff: Path) -> None:
    for goal in ("icarus", "random", "cocotb"):
        done = run_goal(handoff, goal, setting)
        told = f"{setting}; expected a whole number from {expected}"
        assert done.stderr.splitlines()[0] == f"sv/bench.sh: {told}"
        assert (done.returncode, "compared" in done.stdout) == (2, False)


def test_a_path_that_cannot_be_used_is_told(handoff: Path, tmp_path: Path) -> None:
    (tmp_path / "a b.sv").write_text("module a; endmodule\n", "utf-8")
    for setting in ("MACRO=", "ADAPTER="):
        done = run_goal(handoff, "icarus", setting)
        told = f"sv/bench.sh: {setting[:-1]} is empty; expected the files of its sources"
        assert done.stderr.splitlines()[0] == told
        assert (done.returncode, "compared" in done.stdout) == (2, False)
    for setting, told in (
        (f"ADAPTER={tmp_path / 'a b.sv'}", "has a blank; expected a path without blanks"),
        ("ADAPTER=none.sv", "no such file; expected an absolute path without blanks, or one from "),
        ("MACRO=none.sv", "no such file; expected an absolute path without blanks, or one from "),
    ):
        done = run_goal(handoff, "icarus", setting)
        name, _, path = setting.partition("=")
        assert done.stderr.splitlines()[0].startswith(f"sv/bench.sh: {name}: {path}: {told}")
        assert (done.returncode, "compared" in done.stdout) == (2, False)
