"""Layers of several kinds in one hand-off: each on its own macro, and their sums in every run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from handoff_bench import Bench
from handoff_runs import (
    TAPS,
    counts,
    handoff_of,
    list_anew,
    run_cocotb,
    run_goal,
    with_changed_line,
)

from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.coverage import BELOW, PROVED
from cimtool.handoff.faults import CAM, FAULTS, RANK, WRITER
from cimtool.handoff.layers import Lanes, driven_layers
from cimtool.handoff.macro_kinds import macro_kinds

SETTINGS = """
[layers."text.fc2"]
weight_bits = 4
adc_bits = 5

[layers."text.logvar"]
adc_bits = "lossless"
"""


@pytest.fixture(scope="module")
def handoff(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three kinds: weights of 8 bits, of 4 bits, and without converters."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "bits.toml").write_text(SETTINGS, "utf-8")
    choices = {"array": "24x32", "settings": folder / "bits.toml"}
    return handoff_of(small_trunk, folder, choices)


@pytest.fixture(scope="module")
def icarus(handoff: Path) -> subprocess.CompletedProcess[str]:
    """The run of its bench in Icarus."""
    return run_goal(handoff, "icarus")


def test_layers_of_a_kind_share_what_a_macro_has_once(handoff: Path) -> None:
    layers = driven_layers(read_bundle(handoff.parent / "bundle"), "text.*", None)
    kinds = macro_kinds(layers)
    assert [[one.name for one in kind.layers] for kind in kinds] == [
        ["text.fc1", "text.mu"],
        ["text.fc2"],
        ["text.logvar"],
    ]
    found = [kind.parameters(Lanes.of(layers)) for kind in kinds]
    assert [one["KIND"] for one in found] == [1, 2, 3]
    assert [one["SLICES"] for one in found] == [4, 2, 4]
    assert [one["CONVERTER"] for one in found] == [1, 1, 0]
    steps = (handoff / "steps.txt").read_text("utf-8")
    named = re.findall(r"^layer (\S+) (\d+) ", steps, re.MULTILINE)
    assert named == [("text.fc1", "1"), ("text.fc2", "2"), ("text.logvar", "3"), ("text.mu", "1")]


def test_carries_that_no_vector_reaches_have_a_reason(handoff: Path) -> None:
    found = json.loads((handoff / "sv" / "coverage.json").read_text("utf-8"))
    assert found.keys() == {"text.fc1", "text.fc2", "text.logvar", "text.mu"}
    carries = {name: one["carries"] for name, one in found.items()}
    # The sums of lossless layers are products, whose ends are reached.
    assert carries["text.logvar"]["not_found"] == 0
    for one in carries.values():
        assert one["why"] == (BELOW if one["not_found"] else PROVED)
        assert one["reached"] + one["proved_unreachable"] + one["not_found"] == one["bits"] - 1


def by_kind(printed: str) -> dict[str, dict[str, tuple[int, int]]]:
    """The counts that a run printed of each kind."""
    kinds = sorted(set(re.findall(r"^(kind\d+): ", printed, re.MULTILINE)))
    return {
        kind: counts("\n".join(re.findall(rf"^{kind}: (.*)$", printed, re.MULTILINE)))
        for kind in kinds
    }


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_every_simulator_sums_over_the_kinds(
    handoff: Path, icarus: subprocess.CompletedProcess[str]
) -> None:
    verilator = run_goal(handoff, "verilator")
    assert (icarus.returncode, icarus.stderr, verilator.returncode) == (0, "", 0)
    found, of_kinds = counts(icarus.stdout), by_kind(icarus.stdout)
    assert found == counts(verilator.stdout)
    assert of_kinds == by_kind(verilator.stdout)
    assert tuple(found) == TAPS
    assert list(of_kinds) == ["kind1", "kind2", "kind3"]
    assert all(differ == 0 for _, differ in found.values())
    for tap, (compared, _) in found.items():
        parts = [one[tap][0] for one in of_kinds.values()]
        assert compared == sum(parts)
        assert all(part > 100 for part in parts) or (tap, parts[2]) == ("converter", 0)


def test_a_bench_that_reads_files_alone_agrees(handoff: Path) -> None:
    bench = Bench(handoff)
    bench.run()
    assert not +bench.differing
    assert bench.compared["digits"] > 1000


@pytest.mark.thorough("one kind in cocotb stands for the others")
def test_the_column_of_each_kind_agrees_in_cocotb(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    # The bench has further sums, those of counts.txt.
    for file in (folder / "directed").glob("*/counts.txt"):
        file.write_text("", "utf-8")
    steps = (folder / "steps.txt").read_text("utf-8")
    none = re.sub(r"^(direct \S+ \d+) \d+$", r"\1 0", steps, flags=re.MULTILINE)
    assert none != steps
    (folder / "steps.txt").write_text(none, "utf-8")
    list_anew(folder)
    done = run_cocotb(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    bench = counts(run_goal(folder, "icarus").stdout)
    assert counts(done.stdout) == {"converter": bench["converter"]}
    assert by_kind(done.stdout)["kind3"] == {}


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_random_inputs_agree_in_each_kind(handoff: Path) -> None:
    done = run_goal(handoff, "random", "VECTORS=100")
    assert (done.returncode, done.stderr) == (0, "")
    found, of_kinds = counts(done.stdout), by_kind(done.stdout)
    assert list(of_kinds) == ["kind1", "kind2", "kind3"]
    for tap, (compared, differ) in found.items():
        assert differ == 0
        assert compared == sum(one[tap][0] for one in of_kinds.values()) > 1000


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_a_fault_is_found_in_each_kind_where_it_is_applicable(handoff: Path) -> None:
    done = run_goal(handoff, "mutants", "VECTORS=300")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (handoff / "sv" / "faults.txt").read_text("utf-8").splitlines()
    faults = [line.split("\t") for line in lines]
    of_layers = [one.name for one in FAULTS if one.file not in (CAM, RANK, WRITER)]
    assert [name for *_, name in faults] == of_layers
    shown = {name: where for *_, where, name in faults}
    assert shown["one flipped cell"] == "kind1,kind2,kind3"
    assert shown["half-even in place of half-up"] == "kind1"
    for simulator in ("iverilog", "verilator"):
        for kind in ("kind1", "kind2", "kind3"):
            assert f"{simulator}: {kind}: the control passes\n" in done.stdout
            for _, tap, _, where, name in faults:
                kinds = where.split(",")
                told = [f"found at {one}" for one in tap.split("|")]
                if kind not in kinds:
                    proved = f"={kind}" in kinds
                    told = ["proved to change no number" if proved else "no vector shows it"]
                assert any(f"{simulator}: {kind}: {name}: {one}" in done.stdout for one in told)


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
@pytest.mark.parametrize(
    ("file", "tap", "kind"),
    [
        ("taps/text.fc2/r0.c0/g0.codes.hex", "codes", "kind2"),
        ("images/text.fc2/r0.c0/cells.hex", "sums", "kind2"),
        ("directed/text.fc2/converter.txt", "converter", "kind2"),
        ("taps/text.logvar/layer_sum.hex", "layer_sum", "kind3"),
    ],
)
def test_one_changed_line_fails_in_its_kind(
    handoff: Path, tmp_path: Path, file: str, tap: str, kind: str
) -> None:
    done = run_goal(with_changed_line(handoff, tmp_path / "copy", file), "icarus")
    assert done.returncode != 0
    found = by_kind(done.stdout)
    wrong = {name: [one for one, (_, n) in taps.items() if n] for name, taps in found.items()}
    assert wrong.pop(kind)[0] == tap
    assert not any(wrong.values())
    assert sum(differ for _, differ in counts(done.stdout).values()) > 0
