"""No goal of a hand-off runs if one of its files was changed, cut or lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from handoff_runs import PLAIN
from programs import installed

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.bundle.inspect import inspect


def make(folder: Path, *goal: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [installed("make", "CIMTOOL_REQUIRE_COMPILERS"), "-s", "-C", str(folder), *goal]
    env = os.environ | ({} if path is None else {"PATH": path})
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path) -> Path:
    return handoff_of_kind(PLAIN, tmp_path)


@pytest.mark.thorough(
    "each kind of file; some are in the first tier", quick=("cells", "tb_array", "files.sha256")
)
@pytest.mark.parametrize(
    "file",
    [
        *("images/text.fc1/r0.c0/cells.hex", "constants/text.fc2/bias.hex", "steps.txt"),
        *("taps/text.mu/r0.c0/g0.codes.hex", "directed/text.fc1/converter.txt", "sv/tb_array.sv"),
        *("sv/kind1/parameters.svh", "c/weights.bin", "random/layers.bin", "files.sha256"),
    ],
)
def test_a_file_that_is_cut_or_lost_is_named(file: str, folder: Path) -> None:
    assert make(folder, "unchanged").returncode == 0
    whole = (folder / file).read_bytes()
    for content in (whole[: whole.rindex(b"\n", 0, -1) + 1] or whole[:-1], whole + b"\n", None):
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        for goal in ("icarus", "verilator", "random", "cocotb", "mutants", "check", "all", "synth"):
            done = make(folder, goal)
            assert done.returncode == 2
            assert done.stdout == ""
            assert done.stderr.splitlines()[0] == (
                f"{file}: changed since it was exported, or is missing (SHA-256 in files.sha256); "
                "export again"
            )
    (folder / file).write_bytes(whole)
    assert make(folder, "unchanged").returncode == 0


@pytest.mark.parametrize("content", [None, '{"format_version": 1}\n'], ids=["lost", "changed"])
def test_no_goal_runs_without_the_description(content: str | None, folder: Path) -> None:
    file = folder / "handoff.json"
    whole = file.read_bytes()
    file.unlink() if content is None else file.write_text(content)
    for goal in ("icarus", "verilator", "random", "cocotb", "mutants", "check", "all", "synth"):
        done = make(folder, goal)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[0] == (
            "handoff.json: changed since it was exported, or is missing (it has the SHA-256 of "
            "files.sha256); export again"
        )
    file.write_bytes(whole)
    assert make(folder, "unchanged").returncode == 0


def test_faults_of_ones_own_may_be_added(folder: Path) -> None:
    with (folder / "sv" / "faults.txt").open("a") as file:
        file.write("99\tcodes\tmy_macro.sv\tkind1\tmine\n")
    assert make(folder, "unchanged").returncode == 0


def test_mutants_without_a_fault_are_refused(folder: Path) -> None:
    file, told = folder / "sv" / "faults.txt", "sv/faults.txt: has no faults, or is missing"
    for change in (lambda: file.write_text(""), file.unlink):
        change()
        done = make(folder, "mutants")
        assert done.returncode == 2
        assert done.stderr.splitlines()[0] == f"sv/bench.sh: {told}; export again"


def test_a_fault_that_is_not_listed_is_refused(folder: Path) -> None:
    done = make(folder, "random", "FAULT=999")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "sv/bench.sh: FAULT=999; expected a number of sv/faults.txt, or 0 for none"
    )


def test_a_fault_in_a_source_that_was_replaced_is_refused(folder: Path) -> None:
    listed = (folder / "sv" / "faults.txt").read_text().splitlines()
    number = next(line.split("\t")[0] for line in listed if "\tcim_column.sv\t" in line)
    done = make(
        folder, "random", f"FAULT={number}", "MACRO=sv/cim_array.sv sv/faulty/cim_column.sv"
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"sv/bench.sh: FAULT={number} is in cim_column.sv, for which MACRO and ADAPTER stand; "
        "expected a fault of another file of sv/faults.txt"
    )


def test_every_file_is_in_the_list(folder: Path) -> None:
    listed = {line[66:] for line in (folder / "files.sha256").read_text().splitlines()}
    held = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    assert held - listed == {"files.sha256", "Makefile", "handoff.json", "sv/faults.txt"}
    assert len(listed) > 100


def test_another_program_may_compute_the_sums(folder: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "sed", "head", "mkdir", "grep"):
        (programs / name).symlink_to(installed(name, "CIMTOOL_REQUIRE_COMPILERS"))
    done = make(folder, "unchanged", path=str(programs))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        'sha256sum is not installed; SHA256="shasum -a 256" names another program'
    )
    other = installed("sha256sum", "CIMTOOL_REQUIRE_COMPILERS")
    (programs / "shasum").write_text(f'#!/bin/sh\nshift 2\nexec {other} "$@"\n')
    (programs / "shasum").chmod(0o755)
    done = make(folder, "unchanged", "SHA256=shasum -a 256", path=str(programs))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_in_which_a_bench_ran_is_exported_again(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert make(tmp_path / "copy", "unchanged").returncode == 0
    assert (tmp_path / "copy" / "build").is_dir()
    small = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"
    export_bundle(read_bundle(small), "c", tmp_path / "copy")
    assert inspect(tmp_path / "copy")["parts"] == ["c"]
    assert not (tmp_path / "copy" / "build").exists()
