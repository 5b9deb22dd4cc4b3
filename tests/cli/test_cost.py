"""`cimtool cost` and `cimtool targets check`: what they print and write, and every mistake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.base.plugins import targets_folder
from cimtool.costs.schedule_render import schedule_json
from cimtool.demo.data import DemoFiles
from cimtool.hardware.cam import cam_origins
from cimtool.hardware.target import target_names

Run = Callable[..., Any]
FILES = ("cost.json", "placement.svg", "schedule.svg", "instead.svg")


def test_cost_says_where_layers_go_and_that_totals_are_lower_bounds(
    cimtool: Run, small_bundle: Path, tmp_path: Path
) -> None:
    ran = cimtool("cost", small_bundle, "--gallery", 50, "-o", tmp_path / "out", "-v")
    assert (ran.status, ran.err) == (0, "")
    (row,) = [line.split() for line in ran.out.splitlines() if line.startswith(" text.fc1 ")]
    # 24 of 128 rows and all 32 columns of weights, in one array.
    assert row[1:6] == ["24", "x", "32", "1", "18.8%"]
    assert "chips: not given" in ran.out
    assert "area: " in ran.out
    assert "100% of operations" in ran.out
    assert "digital prices are for 32 nm at 0.9 V; the nominal supply is assumed" in ran.out
    assert "* a query is bound by " in ran.out
    assert "programming: " in ran.out
    assert "K = 10, stored" in ran.out
    assert "Each of the 100 distances of a pair needs its own sigmoid before the mean" in ran.out
    written = f"{tmp_path}/out/{', '.join(FILES)}"
    assert f"wrote {written}" in ran.out.splitlines()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {*FILES}


def test_cost_as_json_is_what_is_written(cimtool: Run, small_bundle: Path, tmp_path: Path) -> None:
    printed = cimtool("cost", small_bundle, "--gallery", 50, "-o", tmp_path, "--json").json
    written = json.loads((tmp_path / "cost.json").read_text())
    assert printed.pop("written") == [str(tmp_path / n) for n in FILES]
    assert printed == written
    energy = written["query"]["energy_pj"]
    assert energy["lower_bound"] is False
    assert energy["low"] < energy["value"] < energy["high"]
    parts = [one["energy_pj"]["value"] or 0 for one in written["query"]["parts"].values()]
    assert sum(parts) == pytest.approx(energy["value"])
    assert [one["items"] for one in written["bounds"]][:3] == [1, 10, 50]
    kinds = ["raw rows", "Monte Carlo", "digital", "CPU core", "GPU", "GPU in batches"]
    assert [one["kind"] for one in written["ways"]][:6] == kinds
    assert written["cheapest_by_size"][0]["items"] == 1000
    sampled = written["montecarlo"]
    assert sampled["stored"]["random_normals"] == 10 * 16
    assert sampled["redrawn"]["random_normals"] == 51 * 10 * 16
    assert sampled["stored"]["energy_pj"]["lower_bound"] is False
    assert written["layout"]["chips"] is None


def test_a_file_of_the_digital_unit_replaces_what_is_assumed(
    cimtool: Run, small_bundle: Path, tmp_path: Path
) -> None:
    file = tmp_path / "unit.toml"
    file.write_text(
        "[process]\nnode = 65\n[digital]\nclock = 100\nlanes = 8\n"
        '[[digital.prices]]\nkind = "additions"\nvalue = 0.5\nbits = 10\nsource = "here"\n'
        'status = "confirmed"\n'
    )
    arguments = ("cost", small_bundle, "--gallery", 50, "-o", tmp_path / "out", "--json")
    plain, told = (cimtool(*arguments, *more).json for more in ((), ("--digital", file)))
    work = sum(told["query"]["digital"][k] for k in ("multiplications", "additions", "shifts"))
    work += told["query"]["digital"]["limits"]
    time = told["query"]["parts"]["digital"]["time_ns"]
    # A given clock is as wide as published times were found to be, or as one source.
    assert time["value"] == pytest.approx(work / 8 * 10)
    assert time["low"] < time["value"] < time["high"] <= 2 * time["value"]
    energies = [one["query"]["parts"]["digital"]["energy_pj"]["value"] for one in (plain, told)]
    assert energies[0] < energies[1]
    assert "the digital unit does 8 operations per cycle at 100 MHz, given" in told["assumptions"]


@pytest.mark.thorough("schedules of two batches; costs/ has smaller ones")
def test_a_batch_is_scheduled(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    assert cimtool(*compiling(small_trunk, place, target="hermes-pcm-14nm")).status == 0
    arguments = ("cost", place, "--gallery", 50, "-o", tmp_path)
    ran = cimtool(*arguments, "--batch", 8, "-v")
    assert (ran.status, ran.err) == (0, "")
    assert " queries per second (" in ran.out
    assert " times as many as one after another; the " in ran.out
    assert "Schedule of a batch of 8" in ran.out
    assert "no schedule is shorter than" in ran.out
    assert (tmp_path / "schedule.svg").is_file()
    assert "text: 8 items in " in (tmp_path / "schedule.svg").read_text()
    alone_cost, batch_cost = (api.cost(place, gallery=50, batch=n) for n in (1, 8))
    one, many = schedule_json(alone_cost), schedule_json(batch_cost)
    for kind in ("text", "video", "query"):
        alone, batch, item = one[kind], many[kind], getattr(alone_cost, kind).to_json()
        # There is one latency of an item.
        latency = item["latency_ns"]
        assert batch["latency_ns"] == alone["latency_ns"] == latency
        assert alone["makespan_ns"]["value"] == pytest.approx(latency["value"])
        assert latency["value"] < batch["makespan_ns"]["value"] < 8 * latency["value"]
        assert batch["bound_ns"] <= batch["makespan_ns"]["value"]
        assert alone["energy_pj"] == item["energy_pj"]
        # Only the leakage of a shorter time is saved.
        leakage = item["parts"]["leakage"]["energy_pj"]["value"]
        times = batch["makespan_ns"]["value"] / (8 * latency["value"])
        saved = alone["energy_pj"]["value"] - batch["energy_pj"]["value"]
        assert saved == pytest.approx(leakage * (1 - times))
        assert (batch["batch"], batch["waves"]) == (8, 8)
        assert {part["part"] for part in batch["occupancy"]} >= {"digital unit"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[digital]\nclok = 1", 'unknown key digital.clok; did you mean "clock"?'),
        ("[process]\nnode = 3", "process.node = 3: must be a number from 7 to 180"),
        ("[array]\nrows = 3", "unknown key array"),
        (
            '[[digital.prices]]\nkind = "dram"\nvalue = 1\nstatus = "assumed"\nsource = " "',
            'digital.prices[0].source = " ": must be a text that says where the figures come from',
        ),
    ],
)
def test_a_wrong_file_of_the_digital_unit(
    cimtool: Run, small_bundle: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "unit.toml").write_text(text)
    ran = cimtool("cost", small_bundle, "--digital", tmp_path / "unit.toml")
    assert ran.status == 2
    assert ran.sentence.startswith(f"{tmp_path}/unit.toml: ")
    assert sentence in ran.sentence


def test_cost_leaves_its_files_beside_the_bundles_own(
    cimtool: Run, small_bundle: Path, tmp_path: Path, small_trunk: DemoFiles
) -> None:
    bundle = api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="hermes-pcm-14nm",
        output=tmp_path / "bundle",
    )
    for _ in range(2):
        ran = cimtool("cost", bundle.folder, "-v")
        assert ran.status == 0
    assert "1 chip of 64 arrays (0.125 filled); all weights stay where they are" in ran.out
    assert "query x" not in ran.out
    assert (bundle.folder / "placement.svg").is_file()
    assert not list(bundle.folder.glob(".partial-*"))


def test_the_first_lines_say_what_is_cheapest_and_the_table_fits_100_columns(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    arguments = ("cost", small_bundle, "--gallery", 10_000_000, "-o", tmp_path / "out", "-v")
    ran = cimtool(*arguments, "--data", small_trunk.eval)
    assert (ran.status, ran.err) == (0, "")
    _, cheapest, _, title, *lines = ran.out.splitlines()
    assert cheapest.startswith(
        "Whether compute-in-memory pays among 10,000,000 items is open: "
        '"raw int8 rows, GPU, batch 201" takes '
    )
    by_size = "Does it take less energy? From 1,000 items on "
    assert any(line.removeprefix("* ").startswith(by_size) for line in lines)
    assert title == "One query against 10,000,000 items"
    names = [
        "raw int8 rows, here", "raw int8 rows, CPU core", "raw int8 rows, GPU",
        "raw int8 rows, GPU, batch 201", "Monte Carlo, K=10", "chip, digital",
        "chip, in the memory", "chip, shortlist of 100",
    ]  # fmt: skip
    shown = [line for line in lines if line.startswith((" raw", " Monte", " chip"))]
    shown = shown[: len(names)]  # others are of the ways in the memory
    for name, line in zip(names, shown, strict=True):
        assert line.startswith(f" {name} ")
    assert all(len(line) <= 100 for line in shown)
    assert "next: " not in ran.out
    assert (tmp_path / "out" / "instead.svg").read_text().count('class="curve') == 8


@pytest.mark.thorough("the library's own test of a measured core is in the first tier")
def test_a_core_that_is_measured_is_said_to_be(
    cimtool: Run, small_bundle: Path, tmp_path: Path
) -> None:
    arguments = ("cost", small_bundle, "--gallery", 10_000_000, "-o", tmp_path / "out", "-v")
    measured = cimtool(*arguments, "--measure").out
    assert "raw int8 rows, CPU core: measured here on one core of " in measured
    assert (tmp_path / "out" / "instead.svg").read_text().count('class="curve') == 8


def test_the_report_of_another_bundle_ends_the_command(
    cimtool: Run, small_bundle: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(small_bundle, other)
    (other / "report.json").write_text('{"format_version": 8, "provenance": {}}')
    ran = cimtool("cost", other, "--gallery", 50)
    assert ran.status == 2
    assert ran.sentence == (
        f"{other}/report.json: is the report of another bundle than other; verify this one, or "
        "remove the file"
    )
    assert not (other / "cost.json").exists()


def test_a_score_in_the_memory_is_placed_and_counted(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place, held = tmp_path / "bundle", tmp_path / "held"
    compiled = compiling(small_trunk, place, target="isaac-rram-128", score_mapping="in-memory")
    assert cimtool(*compiled).status == 0
    assert cimtool("program", place, "--gallery", small_trunk.eval, "-o", held).status == 0
    found = cimtool("cost", held, "-o", tmp_path / "out", "--json").json
    layers = [one["layer"] for one in found["layers"] if one["layer"].startswith("score.")]
    assert layers
    assert found["gallery"] == 40
    # What two queries are multiplied with is stored once.
    assert {one["layer"]: one["shares"] for one in found["layers"] if one["shares"]} == {
        "score.mus.mu": "score.mu.mu"
    }
    stored = [one["arrays"] for one in found["layers"] if not one["shares"]]
    assert found["layout"]["tiles"] == sum(stored)
    assert found["query"]["macs"] > found["text"]["macs"]
    assert found["query"]["conversions"] > found["text"]["conversions"]
    digital = cimtool("cost", place, "--gallery", 40, "-o", tmp_path / "out", "--json").json
    counts = [one["query"]["digital"]["multiplications"] for one in (found, digital)]
    assert counts[0] < counts[1]
    wrong = cimtool("cost", held, "--gallery", 41)
    assert (wrong.status, wrong.sentence) == (
        2, "--gallery is 41; the bundle holds a gallery of 40 items"
    )  # fmt: skip


@pytest.mark.thorough("two galleries more; costs/ has smaller ones")
def test_of_a_hybrid_score_only_the_shortlist_is_scored_digitally(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    compiled = compiling(small_trunk, place, target="hermes-pcm-14nm", score_mapping="hybrid")
    assert cimtool(*compiled).status == 0
    found = []
    for length in (5, 20):
        held = tmp_path / f"held{length}"
        programmed = ("program", place, "--gallery", small_trunk.eval, "--shortlist", length)
        assert cimtool(*programmed, "-o", held).status == 0
        found.append(cimtool("cost", held, "--json").json)
    layers = [one["layer"] for one in found[0]["layers"]]
    assert [name for name in layers if not name.startswith(("text.", "video."))] == [
        "shortlist.mu.mu"
    ]
    few, many = (one["query"]["digital"]["multiplications"] for one in found)
    assert found[0]["gallery"] == found[1]["gallery"] == 40
    assert few < many
    assert found[0]["query"]["macs"] == found[1]["query"]["macs"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--operating-point", "fast"], 'operating point "fast": target isaac-rram-128 has no'),
        (["--gallery", "0"], "--gallery is 0; expected an integer of at least 1"),
        (["--batch", "0"], "--batch is 0; expected an integer of at least 1"),
        (["--batch", str(2**63)], "--batch is 9223372036854775808; expected at most 10^12"),
        (["--samples", "many"], "--samples is many; expected an integer of at least 1"),
        (["--gallery", str(10**12 + 1)], "--gallery is 1000000000001; expected at most 10^12"),
        (["--measure"], "--measure is of ways of a query; expected --gallery with it"),
        (["--data", "x.npz"], "--data is of ways of a query; expected --gallery with it"),
        (["--gallery", "9", "--qrels", "x"], "--qrels is x; expected --data with it"),
        (["--gallery", "9", "--data", "none.npz"], "none.npz"),
    ],
)
def test_mistakes_are_one_sentence(
    cimtool: Run, small_bundle: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    ran = cimtool("cost", small_bundle, "-o", tmp_path / "out", *arguments)
    assert ran.status == 2
    assert sentence in ran.sentence
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written(cimtool: Run, small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = cimtool("cost", small_bundle, "-o", tmp_path / "file")
    assert ran.status == 2
    assert ran.sentence.startswith(f"{tmp_path}/file: cannot be written (")


def test_a_file_is_no_bundle(cimtool: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = cimtool("cost", tmp_path / "file")
    assert ran.status == 2
    assert ran.sentence == f"{tmp_path}/file: is a file; expected the folder of a bundle"


def test_check_without_arguments_checks_every_shipped_target(cimtool: Run) -> None:
    found = cimtool("targets", "check", "--json").json
    assert sorted(found["valid"]) == sorted([*target_names(), *cam_origins()])
    assert len(found["compared"]["hermes-pcm-14nm"]) == 4
    text = cimtool("targets", "check", "hermes-pcm-14nm").out
    assert "throughput 63.1 TOPS at one-phase: 63.07 from 64 arrays of 256 x 256" in text


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("value = 133\n", "value = 150\n", "it is 55.92 TOPS, expected within 2%"),
        (
            'at = "one-phase"\nscope = "core"',
            'at = "one-phase"\nmode = "four-phase (high precision)"\nscope = "core"',
            "figures of different conditions are not combined",
        ),
        ("rows = 256\n", "rows = 256\nrows_active = 257\n", "array.rows_active = 257: must be at"),
        ("columns = 512\n", "columns = 1\n", "array.columns = 1: must be at least 2, the cells of"),
        ("[adc]\nbits = 8\n", "[adc]\n", "adc.bits is missing: must be an integer from 1 to 16"),
        ("[adc]\nbits = 8\n", "[adc]\nbits = 0\n", "adc.bits = 0: must be an integer from 1 to 16"),
    ],
)  # fmt: skip
def test_a_broken_target_is_one_sentence_and_status_2(
    cimtool: Run, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    text = (targets_folder() / "hermes-pcm-14nm.toml").read_text()
    assert old in text
    file = tmp_path / "broken.toml"
    file.write_text(text.replace(old, new, 1))
    ran = cimtool("targets", "check", file)
    assert ran.status == 2
    assert ran.sentence.startswith(f"{file}: ")
    assert sentence in ran.sentence
