"""Random inputs to the bench: 0 values differ from the golden model, and faults are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from handoff_runs import QUICK, counts, handoff_of, list_anew, run_goal, shown_faults
from programs import installed
from ranges_apart import with_ranges_apart

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.demo.data import DemoFiles

REFERENCE = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"
TAPS = ["digits", "sums", "codes", "shift_add", "layer_sum", "requantised"]


@pytest.mark.thorough("builds benches of random inputs")
@pytest.mark.parametrize("kind", ["levels", "leak", "digital", "analog shift-and-add"])
def test_no_value_differs(
    kind: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    done = run_goal(handoff_of_kind(kind, tmp_path), "random", QUICK, "VECTORS=100")
    found = counts(done.stdout)
    assert list(found) == TAPS
    assert all(compared > 1000 and differ == 0 for compared, differ in found.values())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_a_thousand_vectors_of_the_reference_bundle(tmp_path: Path) -> None:
    export_bundle(read_bundle(REFERENCE), "handoff", tmp_path / "here")
    found = counts(run_goal(tmp_path / "here", "random", "OPTIMIZE=-O2").stdout)
    assert list(found) == TAPS
    assert all(compared >= 100_000 and differ == 0 for compared, differ in found.values())


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_channels_whose_ranges_do_not_overlap(narrow_trunk: DemoFiles, tmp_path: Path) -> None:
    files = with_ranges_apart(narrow_trunk, tmp_path)
    folder = handoff_of(files, tmp_path, {"array": "24x32"})
    for done in (run_goal(folder, "random", "VECTORS=50"), run_goal(folder, "verilator")):
        found = counts(done.stdout)
        assert list(found)[:6] == TAPS
        assert all(compared > 100 and differ == 0 for compared, differ in found.values()), found
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough("builds benches of random inputs")
def test_faults_are_found(handoff: Path) -> None:
    shown = [one for one in shown_faults(handoff) if one[1] in TAPS[:4]]
    assert sum(name.startswith("an input of") for *_, name in shown) == 2
    assert len(shown) >= 10
    for number, tap, _ in shown:
        done = run_goal(handoff, "random", QUICK, "VECTORS=400", f"FAULT={number}")
        assert f"fault {number}: found at {tap}\n" in done.stdout
        assert done.returncode != 0


@pytest.mark.thorough("builds benches of random inputs")
def test_one_changed_cell_of_the_model_differs(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    header = (folder / "random" / "layers.h").read_text("utf-8")
    (place,) = re.findall(r"^ +TEXT_FC1_CELLS = (\d+),$", header, re.MULTILINE)
    content = bytearray((folder / "random" / "layers.bin").read_bytes())
    content[int(place)] ^= 1
    (folder / "random" / "layers.bin").write_bytes(content)
    list_anew(folder)
    done = run_goal(folder, "random", QUICK, "VECTORS=300")
    found = counts(done.stdout)
    assert {tap: differ > 0 for tap, (_, differ) in found.items()} == {
        "digits": False,
        "sums": True,
        "codes": True,
        "shift_add": True,
        "layer_sum": True,
        "requantised": False,
    }
    assert done.returncode != 0
    # The first 256 vectors are the same with every seed.
    again, other = (
        run_goal(folder, "random", QUICK, "VECTORS=300", f"SEED={seed}") for seed in (1, 2)
    )
    assert counts(again.stdout) == found != counts(other.stdout)


@pytest.mark.thorough("builds benches of random inputs")
def test_nothing_compared_fails(handoff: Path) -> None:
    done = run_goal(handoff, "random", "VECTORS=0")
    assert "nothing was compared at digits" in done.stdout + done.stderr
    assert done.returncode != 0


def test_without_verilator_there_is_one_sentence(handoff: Path, tmp_path: Path) -> None:
    for name in ("sh", "gcc", "mkdir", "cat", "make", "sha256sum", "grep"):
        (tmp_path / name).symlink_to(installed(name, "CIMTOOL_REQUIRE_COMPILERS"))
    done = subprocess.run(
        ["make", "-s", "-C", handoff, "random"], env={"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[0] == "sv/bench.sh: verilator is not installed"
    assert done.returncode != 0
