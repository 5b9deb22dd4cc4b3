"""Faults that are said to change no number: it is shown for the reference bundle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from programs import installed

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporter import Request
from cimtool.bundle.exporters import export_bundle
from cimtool.handoff.fault_facts import layer_facts, unreachable_facts
from cimtool.handoff.faults import FAULTS, MACRO
from cimtool.handoff.layers import HandoffSource
from cimtool.handoff.requantiser import Requantisation, mistakes

REFERENCE = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"
BLOCK = 1 << 16


def tied(after: Requantisation, least: int, most: int) -> bool:
    """True if rounding half to even changes the result of any number from `least` to `most`."""
    for first in range(least, most + 1, BLOCK):
        x = np.arange(first, min(first + BLOCK, most + 1))[:, None]
        if mistakes(after, x)["TIES"].any():
            return True
    return False


def test_a_channel_that_may_not_tie_has_no_tie() -> None:
    """All numbers of channels whose multipliers have some zeros at the end."""
    rng = np.random.default_rng(2)
    multiplier = rng.integers(1 << 10, 1 << 14, 200) << rng.integers(0, 12, 200)
    shift, none = rng.integers(12, 28, 200), np.zeros((0, 200, 4), np.int64)
    after = Requantisation(
        "y", none, multiplier, shift, np.full(200, -(1 << 40)), np.full(200, 1 << 40)
    )
    least, most = np.full(200, -3000), np.full(200, 2000)
    every = np.arange(-3000, 2001)[:, None]
    halfway = (after.above_threshold(every) == 0).any(axis=0)
    np.testing.assert_array_equal(halfway, after.may_tie(least, most))
    assert 20 < halfway.sum() < 180


@pytest.mark.thorough("every sum of every channel of the reference bundle")
def test_no_sum_of_the_reference_bundle_is_a_tie() -> None:
    compared = 0
    for layer in HandoffSource(read_bundle(REFERENCE), Request()).layers:
        assert "TIES" in unreachable_facts(layer)
        for after in layer.requantisations.values():
            least, most = layer.reached(after)
            assert not tied(after, int(least.min()), int(most.max()))
            compared += len(least)
    assert compared == 144


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "here"
    export_bundle(read_bundle(REFERENCE), "bench", folder, Request(layers="text.fc?"))
    return folder


def netlist(sv: Path, folder: Path, right: str, wrong: str) -> str:
    """The circuit that Yosys makes of the periphery with an expression replaced."""
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    folder.mkdir()
    parameters = (sv / "kind1" / "parameters.svh").read_text("utf-8").splitlines()
    kept = [line for line in parameters if line not in ("package cim;", "endpackage")]
    (folder / "parameters.sv").write_text("\n".join(kept), "utf-8")
    source = (sv / MACRO).read_text("utf-8").replace(" import cim::*;", "")
    assert source.count(right) == 1
    (folder / MACRO).write_text(source.replace(right, wrong), "utf-8")
    passes = [
        f"read_verilog -sv -I{sv} parameters.sv {MACRO}", "hierarchy -top cim_macro",
        # Lines of the source are those of the fault.
        "setattr -unset src c:* w:* p:* m:*", "write_rtlil circuit.il",
    ]  # fmt: skip
    command = ["yosys", "-q", "-p", "; ".join(passes)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return (folder / "circuit.il").read_text("utf-8")


@pytest.mark.thorough("Yosys reads the periphery three times")
def test_slices_that_are_not_multiplied_are_the_same_circuit(
    reference: Path, tmp_path: Path
) -> None:
    """The fault is in a branch that is not built if no slice has a factor."""
    by_fact = {one.shows: one for one in FAULTS if one.file == MACRO}
    unmultiplied, apart = by_fact["MULTIPLIES"], by_fact["APART"]
    sv = reference / "sv"
    good = netlist(sv, tmp_path / "good", "running <= 1'b1", "running <= 1'b1")
    assert len(good) > 100_000
    assert netlist(sv, tmp_path / "same", unmultiplied.right, unmultiplied.wrong) == good
    assert netlist(sv, tmp_path / "other", apart.right, apart.wrong) != good


def test_faults_of_the_reference_bundle_are_found_or_proved(reference: Path) -> None:
    lines = (reference / "sv" / "faults.txt").read_text("utf-8").splitlines()
    places = {name: kinds for _, _, _, kinds, name in (line.split("\t") for line in lines)}
    assert len(places) == 43
    assert {name for name, kinds in places.items() if kinds != "kind1"} == {
        "slices are not multiplied",
        "requantisation rounds half to even",
    }
    assert set(places.values()) == {"kind1", "=kind1"}


def test_no_fact_holds_and_is_proved_not_to_hold() -> None:
    for layer in HandoffSource(read_bundle(REFERENCE), Request()).layers:
        assert not layer_facts(layer) & unreachable_facts(layer)
