"""Runs of a hand-off's bench: small hand-offs of every kind of array, and what a run prints."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from c_tools import c_compiler

from cimtool import api
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.unchanged import LIST

TAPS = (
    *("digits", "sums", "codes", "shift_add"),
    *("layer_sum", "requantised", "requantiser", "converter"),
)
"""The taps of a run against `taps/` and `directed/`, in the order in which it prints them."""

KINDS: dict[str, dict[str, object]] = {
    "row groups": {"rows_active": 4},
    "differential": {"encoding": "differential", "dac_bits": 3},
    "bipolar inputs": {"encoding": "differential", "input_encoding": "bipolar"},
    "polarity": {"encoding": "differential", "adc_on": "polarity", "references": "column"},
    "analog shift-and-add": {"encoding": "differential", "shift_add": "analog"},
    "digital": {"encoding": "twos-complement", "adc_bits": "lossless"},
    "ternary": {"encoding": "ternary", "cell_bits": 1, "array": "12x36"},
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
"""Arrays of 12 rows and 8 weights of 8 bits; the last group of rows of a layer is not full."""

PLAIN = "plain"
SHARED: dict[str, dict[str, object]] = KINDS | {PLAIN: {"array": "24x32"}}
"""Hand-offs that several files of tests run: of each kind, and a plain one."""


def handoff_of(
    files: DemoFiles, folder: Path, choices: Mapping[str, object], layers: str = "text.*"
) -> Path:
    """A hand-off of one projector's layers, or some of them, on such arrays."""
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, output=folder / "bundle",
        drift="given", **{"target": "isaac-rram-128", "array": "12x32", "adc_bits": 4} | choices,
    )  # fmt: skip
    export_bundle(bundle, "handoff", folder / "here", Request(layers=layers))
    return folder / "here"


QUICK = "OPTIMIZE=-O1"
"""The variable of a goal whose models run quickly."""


def run_goal(folder: Path, *goal: str) -> subprocess.CompletedProcess[str]:
    """Run a goal of the bench, with its variables.

    Models are compiled quickly, not to be quick. `QUICK` pays where one is run several times: it
    takes two or three seconds longer to compile, and a fifth of the time to run.
    """
    c_compiler("iverilog")
    c_compiler("verilator")
    command = ["make", "-C", folder, "OPTIMIZE=-O0", *goal]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def list_anew(folder: Path) -> None:
    """List the files as they are, so that a goal runs with those that a test has changed."""
    listed, holders = folder / LIST, {"Makefile": 2, "handoff.json": 1}
    before = listed.read_bytes()
    names = [line.split("  ")[1] for line in before.decode().splitlines()]
    files = ((name, folder / name) for name in names)
    held = ((name, hashlib.sha256(f.read_bytes()).hexdigest()) for name, f in files if f.exists())
    after = "".join(f"{digest}  {name}\n" for name, digest in held).encode()
    listed.write_bytes(after)
    own, new = (hashlib.sha256(text).hexdigest() for text in (before, after))
    for file, times in holders.items():
        text = (folder / file).read_text("utf-8")
        assert text.count(own) == times
        (folder / file).write_text(text.replace(own, new), "utf-8")


def lint(folder: Path, top: str, *sources: str) -> str:
    """The warnings of Verilator's lint for sources in `sv/`."""
    tool = [c_compiler("verilator"), "--lint-only", "-Wall", "--timing", "waivers.vlt"]
    command = [*tool, "--top-module", top, *sources]
    done = subprocess.run(command, cwd=folder / "sv", capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def need_cocotb() -> None:
    """Without cocotb a test is skipped, or fails as for other tools."""
    if importlib.util.find_spec("cocotb_tools") is None:
        missing = pytest.fail if os.environ.get("CIMTOOL_REQUIRE_COMPILERS") else pytest.skip
        missing("there is no cocotb")


def run_cocotb(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the goal `cocotb`, where there is cocotb."""
    need_cocotb()
    return run_goal(folder, "cocotb", f"PYTHON={sys.executable}")


def with_changed_line(folder: Path, copy: Path, file: str) -> Path:
    """A copy of a hand-off with another last digit in one of its files."""
    shutil.copytree(folder, copy)
    text = (copy / file).read_text("utf-8").rstrip("\n")
    (copy / file).write_text(f"{text[:-1]}{'2' if text[-1] == '1' else '1'}\n", "utf-8")
    list_anew(copy)
    return copy


def keep_directed(folder: Path, most: Mapping[str, int]) -> None:
    """Keep some lines, spread over it, of each file of `directed/` that `most` names."""
    places = {"converter": 2, "counts": 3}
    steps = [line.split(" ") for line in (folder / "steps.txt").read_text("utf-8").splitlines()]
    for fields in steps:
        for name, limit in most.items() if fields[0] == "direct" else ():
            file = folder / "directed" / fields[1] / f"{name}.txt"
            if file.exists():
                lines = file.read_text("utf-8").splitlines(keepends=True)
                kept = lines[:: -(-len(lines) // limit)] if limit else []
                file.write_text("".join(kept), "utf-8")
                fields[places[name]] = str(len(kept))
    text = "".join(f"{' '.join(fields)}\n" for fields in steps)
    (folder / "steps.txt").write_text(text, "utf-8")
    list_anew(folder)


def shown_faults(folder: Path) -> list[list[str]]:
    """Number, tap and name of each fault that a kind of macro shows."""
    lines = (folder / "sv" / "faults.txt").read_text("utf-8").splitlines()
    faults = (line.split("\t") for line in lines)
    proved_or_none = re.compile(r"=|none")
    shown = [(one, [k for k in one[3].split(",") if not proved_or_none.match(k)]) for one in faults]
    return [[number, tap, name] for (number, tap, _, _, name), kinds in shown if kinds]


def counts(printed: str) -> dict[str, tuple[int, int]]:
    """The values that were compared and those that differ, at each tap of a run."""
    found = re.findall(r"^(\w+): (\d+) compared, (\d+) differ$", printed, re.MULTILINE)
    return {tap: (int(compared), int(differ)) for tap, compared, differ in found}
