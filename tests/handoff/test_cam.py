"""Hand-offs of a gallery in a content-addressable memory: its files, its bench, its faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from c_tools import c_compiler, make
from handoff_bench import Bench
from handoff_runs import counts, lint, run_goal, shown_faults, with_changed_line

from cimtool import api
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.cam import CAM
from cimtool.handoff.searches import DrivenSearch, driven_search
from cimtool.hardware.cell_distance import DONT_CARE

TAPS = ("cam_distances", "cam_codes", "cam_sums", "cam_estimates", "cam_shortlist")
READER = Path(__file__).parents[1] / "kits" / "handoff_reader.py"
SHIPPED = Path(__file__).parents[2] / "targets" / "cam"
CAMS = {
    "ternary": ("fefet2-tcam-45nm", {"words": 16, "cells": 3, "step": 2, "levels": 2}),
    "squared": ("fefet-mcam", {"words": 8, "cells": 5, "step": 7, "levels": 6}),
    "l1": ("rram-l1-sapiens", {"words": 64, "cells": 64}),
}
"""Memories in which an item takes several words, and more than one array is full; one as it is."""


def handed_off(files: DemoFiles, folder: Path, kind: str) -> Path:
    """A hand-off of a layer, and of the items of a CAM."""
    shipped, changes = CAMS[kind]
    text = (SHIPPED / f"{shipped}.toml").read_text("utf-8")
    for key, value in changes.items():
        text = re.sub(rf"(?m)^{key} = \d+$", f"{key} = {value}", text)
    (folder / "cam.toml").write_text(text, "utf-8")
    api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        array="24x32", adc_bits=4, score_mapping="hybrid", output=folder / "empty",
    )  # fmt: skip
    full = folder / "full"
    api.program_cam(folder / "empty", files.eval, folder / "cam.toml", shortlist=7, output=full)
    wanted = Request(layers="text.mu", gallery=True)
    export_bundle(read_bundle(full), "handoff", folder / "here", wanted)
    return folder / "here"


@pytest.fixture(scope="module")
def handoff(narrow_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handed_off(narrow_trunk, tmp_path_factory.mktemp("ternary"), "ternary")


@pytest.fixture(scope="module")
def search(handoff: Path) -> DrivenSearch:
    found = driven_search(read_bundle(handoff.parent / "full"), None)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bundle(handoff: Path) -> Bundle:
    return read_bundle(handoff.parent / "full")


def test_items_take_several_words_and_some_cells_hold_x(search: DrivenSearch) -> None:
    assert len(search.op.words) == 3
    assert len({row for row, _, _ in search.arrays()}) == 3
    assert (search.op.stored == DONT_CARE).any()
    assert search.cells(2, slice(32, 40))[8:].tolist() == [[0, 0, 0]] * 8


def test_queries_reach_every_code_of_the_first_array(search: DrivenSearch) -> None:
    codes = search.op.converted(search.distances(0, slice(0, search.height)))
    assert set(codes.ravel().tolist()) == set(range(search.top + 1))


def test_estimates_are_those_of_the_bundle(search: DrivenSearch, bundle: Bundle) -> None:
    graph = bundle.program.shortlist
    assert graph is not None
    taps = np.asarray(search.estimates)
    assert (search.op.run(search.queries) == search.sums).all()
    assert (search.sums * search.factors + search.offsets == taps).all()
    nearest = np.take_along_axis(taps, search.shortlist, 1)
    assert (np.diff(nearest, axis=1) >= 0).all()


def test_files_alone_rebuild_every_tap(handoff: Path) -> None:
    bench = Bench(handoff)
    bench.run()
    assert sum(bench.differing.values()) == 0
    assert bench.compared["cam shortlist"] > 100
    done = subprocess.run(
        [sys.executable, READER, handoff], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(re.search(rf"^{tap}: \d+ compared, 0 differ$", done.stdout, re.M) for tap in TAPS)


def test_the_page_explains_every_file_with_a_line_of_it(handoff: Path) -> None:
    assert "cim_cam.sv" in (handoff / "README.md").read_text("utf-8")
    page = (handoff / "FORMAT.md").read_text("utf-8")
    assert all(f"### `cam/{file.told}`" in page for file in CAM.values())
    assert "No layer of this hand-off has it" not in page.partition("### `cam/")[2].split("###")[0]
    assert all(f"### `{word}`" in page for word in ("search", "store", "match", "rank"))
    for name in ("SEARCH", "`store shortlist.search r0.c0 0 16`", "**Shortlist**", "cam/cam.json"):
        assert name in page
    found = re.findall(r"`(cam/\S+\.hex)`, line (\d+) \([^)]*\)(?: of \d+ digits: `|: `)", page)
    assert len(found) == len(CAM)
    assert all(len((handoff / file).read_text().splitlines()) >= int(n) for file, n in found)


def test_the_golden_model_finds_the_same_distances(handoff: Path) -> None:
    done = make(handoff)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^shortlist\.search +\d+ compared +0 differ$", done.stdout, re.M)


def test_the_search_agrees_in_icarus_beside_the_layers(handoff: Path) -> None:
    done = run_goal(handoff, "icarus")
    assert (done.returncode, done.stderr) == (0, "")
    found = counts(done.stdout)
    assert set(TAPS) < set(found)
    assert all(compared > 50 and differ == 0 for compared, differ in found.values())


def test_each_fault_is_found_at_its_tap(handoff: Path, tmp_path: Path) -> None:
    shown = [one for one in shown_faults(handoff) if one[1] in TAPS]
    assert len(shown) >= 7
    sv = handoff / "sv"
    sources = [sv / "cam/parameters.svh", sv / "tb_cam.sv"]
    sources += [sv / "faulty" / name for name in ("cim_cam.sv", "cim_rank.sv")]
    bench = str(tmp_path / "bench")
    command = [c_compiler("iverilog"), "-g2012", f"-I{sv}", "-s", "tb_cam", "-o", bench]
    subprocess.run([*command, *sources], check=True)
    for number, tap, _ in shown:
        run = ["vvp", "-n", bench, f"+HANDOFF={handoff}", f"+FAULT={number}"]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert f"fault {number}: found at {tap}\n" in done.stdout


def test_a_memory_that_never_answers_is_named(handoff: Path, tmp_path: Path) -> None:
    text = (handoff / "sv" / "cim_cam.sv").read_text("utf-8")
    assert "out_valid <= in_valid && !rst;" in text
    mine = tmp_path / "mine.sv"
    mine.write_text(text.replace("in_valid && !rst;", "1'b0;"), "utf-8")
    done = run_goal(handoff, "icarus", f"CAM={mine}", "TIMEOUT=20")
    assert done.returncode != 0
    assert (
        "FAIL: shortlist.search/r0.c0, query 0: no answer within 20 clocks (out_valid)"
        in done.stdout
    )


def test_a_changed_code_is_seen(handoff: Path, tmp_path: Path) -> None:
    file = "cam/shortlist.search/r0.c0/codes.hex"
    bench = Bench(with_changed_line(handoff, tmp_path / "copy", file))
    bench.run()
    assert bench.differing["cam codes"] == 1


def test_parts_have_the_files_that_the_layout_lists(bundle: Bundle, tmp_path: Path) -> None:
    for kind in ("images", "taps"):
        export_bundle(bundle, kind, tmp_path / kind, Request(layers="text.mu", gallery=True))
        layout = json.loads((tmp_path / kind / "layout.json").read_text("utf-8"))
        (listed,) = layout["searches"].values()
        assert set(listed["files"]) == set(CAM) <= set(layout["files"])
        assert (tmp_path / kind / "cam/shortlist.search/r2.c2/cells.hex").is_file()
    export_bundle(bundle, "images", tmp_path / "plain")
    assert not (tmp_path / "plain" / "cam").exists()


@pytest.mark.thorough("builds benches of random inputs")
@pytest.mark.parametrize("kind", CAMS)
def test_drawn_queries_agree(kind: str, narrow_trunk: DemoFiles, tmp_path: Path) -> None:
    folder = handed_off(narrow_trunk, tmp_path, kind)
    once, more = (run_goal(folder, "random", f"VECTORS={count}") for count in (20, 200))
    for done in (once, more):
        assert (done.returncode, done.stderr) == (0, "")
    found, again = counts(once.stdout), counts(more.stdout)
    assert all(found[tap][0] > 50 and found[tap][1] == 0 for tap in TAPS)
    assert all(again[tap][0] > found[tap][0] and again[tap][1] == 0 for tap in TAPS)
    # A cell that is another one in the memory alone differs from the first tap on.
    text = (folder / "sv" / "cim_cam.sv").read_text("utf-8")
    right = "held[(write_word)] <= write_data;"
    assert text.count(right) == 1
    wrong = text.replace(right, "held[(write_word)] <= write_data ^ (write_word == 0 ? 1 : 0);")
    (tmp_path / "wrong.sv").write_text(wrong, "utf-8")
    done = run_goal(folder, "random", "VECTORS=20", f"CAM={tmp_path / 'wrong.sv'}")
    assert counts(done.stdout)["cam_distances"][1] > 0
    assert done.returncode != 0


@pytest.mark.thorough("more memories, and a second simulator")
@pytest.mark.parametrize("kind", CAMS)
def test_every_memory_agrees_in_both_simulators(
    kind: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    folder = handed_off(narrow_trunk, tmp_path, kind)
    sources = ("cam/parameters.svh", "tb_cam.sv", "cim_rank.sv", "cim_cam.sv")
    assert lint(folder, "tb_cam", *sources) == ""
    for goal in ("icarus", "verilator"):
        done = run_goal(folder, goal)
        assert (done.returncode, done.stderr) == (0, "")
        found = counts(done.stdout)
        assert all(found[tap][0] > 50 and found[tap][1] == 0 for tap in TAPS)
