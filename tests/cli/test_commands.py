"""The commands on good input: what they write, what they print, as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.cli.commands.compile import command
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session
from cimtool.hardware.settings import Overrides, setting_keys

Run = Callable[..., Any]


def test_every_setting_has_an_option() -> None:
    keys = setting_keys()
    assert {*keys, "layers"} == set(Overrides.model_fields)
    options = {one.name: one for one in command.params if isinstance(one, click.Option)}
    assert {name: options[name].help for name in keys} == {n: key.help for n, key in keys.items()}
    metavars = {name: options[name].metavar for name in ("adc_bits", "array", "encoding")}
    assert metavars == {"adc_bits": "N|lossless", "array": "ROWSxCOLS", "encoding": "NAME"}
    assert options["equalise"].secondary_opts == ["--no-equalise"]


def test_compile_says_what_it_wrote_and_what_to_do_next(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "new" / "bundle"
    ran = cimtool(*compiling(small_trunk, place, target="isaac-rram-128", array="16x16"), "-v")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith(" text.fc1 ")]
    # 24 rows in groups of 16; 32 columns of 4 cells a weight, so 4 weights across.
    assert row[1:4] == ["24", "x", "32"]
    assert row[8:12] == ["2", "4", "8", "16"]
    assert any(line.startswith("* text.s: exp on [") and "worst error" in line for line in lines)
    assert lines[-2:] == [f"wrote {place}", f"next: cimtool verify {place} --data NPZ"]
    assert read_bundle(place).settings.rows == 16


def test_without_stages_the_next_command_is_one_that_the_bundle_takes(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    ran = cimtool(*compiling(small_trunk, tmp_path / "slim"), "--no-stages")
    next_ = ran.out.splitlines()[-1]
    assert next_ == f"next: cimtool simulate {tmp_path / 'slim'} --inputs NPZ"
    taken = next_.removeprefix("next: cimtool ").replace("NPZ", str(small_trunk.eval)).split()
    assert cimtool(*taken, "-o", tmp_path / "scores.npz").status == 0


def test_compile_as_json_is_one_object(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    found = cimtool(*compiling(small_trunk, place, weight_bits=6), "--json").json
    assert found["bundle"] == str(place)
    assert found["settings"]["weight_bits"] == 6
    assert {layer["layer"]: (layer["rows"], layer["columns"]) for layer in found["layers"]} == {
        f"{modality}.{name}": shape
        for modality in ("text", "video")
        for name, shape in (
            ("fc1", (24, 32)), ("fc2", (32, 32)), ("mu", (32, 16)), ("logvar", (32, 16))
        )
    }  # fmt: skip
    assert found["files"] == read_bundle(place).manifest["files"]


def test_a_dry_run_says_the_same_and_writes_nothing(
    cimtool: Run,
    compiling: Run,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = compiling(small_trunk, tmp_path / "bundle", target="isaac-rram-128")
    dry = cimtool(*arguments, "--dry-run", "-v")
    dry_json = cimtool(*arguments, "--dry-run", "--json").json
    assert list(tmp_path.iterdir()) == []
    whole = cimtool(*arguments, "-v")
    table = whole.out.partition("wrote ")[0]
    assert dry.out == table + "dry run: nothing was written\n"
    assert (dry_json["bundle"], dry_json["files"], dry_json["dry_run"]) == (None, {}, True)


def test_compile_without_output_goes_to_exports(
    cimtool: Run,
    compiling: Run,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = compiling(small_trunk, None)
    assert cimtool(*arguments).status == 0
    assert read_bundle(Path("exports/projectors@ideal")).name == "projectors@ideal"
    # Again: what was there is moved aside.
    assert cimtool(*arguments).status == 0
    assert read_bundle(Path("exports/projectors@ideal.previous"))


def test_flags_override_the_settings_file_and_it_the_target(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('weight_bits = 7\nadc_bits = 6\n[layers."*.mu"]\nweight_bits = 5\n')
    options = {"target": "isaac-rram-128", "settings": file, "adc_bits": "lossless"}
    found = cimtool(
        *compiling(small_trunk, tmp_path / "bundle", **options), "--no-equalise", "--json"
    ).json
    settings = found["settings"]
    assert (settings["weight_bits"], settings["adc_bits"], settings["equalise"]) == (7, None, False)
    bits = {layer["layer"]: layer["weight_bits"] for layer in found["layers"]}
    assert (bits["text.mu"], bits["video.mu"], bits["text.fc1"]) == (5, 5, 7)


def test_compile_keeps_the_hashes_of_all_its_inputs(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    assert cimtool(*compiling(small_trunk, tmp_path / "bundle")).status == 0
    inputs = read_bundle(tmp_path / "bundle").manifest["inputs"]
    assert [one["file"] for one in inputs] == ["projectors.pth", "poly.json", "calibration.npz"]
    assert len({one["sha256"] for one in inputs}) == 3


def test_simulate_writes_what_the_library_and_onnx_runtime_compute(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "deep" / "scores.npz"
    ran = cimtool("simulate", small_bundle, "--inputs", small_trunk.eval, "-o", file)
    next_ = f"next: cimtool verify {small_bundle} --data NPZ"
    said = f"wrote {file}: scores [40, 40]\n{next_}\n"
    assert (ran.status, ran.out, ran.err) == (0, said, "")
    with np.load(file) as held:
        assert held.files == ["scores"]
        scores = held["scores"]
    assert (scores.dtype, scores.shape) == (np.float32, (40, 40))
    matcher = api.load(small_bundle)
    np.testing.assert_array_equal(scores, matcher.scores(small_trunk.eval))
    with np.load(small_trunk.eval) as data:
        text, video = (
            Session(small_bundle / f"{m}.onnx").encode(data[m]) for m in ("text", "video")
        )
    np.testing.assert_array_equal(scores, Session(small_bundle / "score.onnx").score(text, video))


def test_simulate_twice_gives_the_same_bytes_and_leaves_nothing_else(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    for name in ("one.npz", "two.npz"):
        cimtool("simulate", small_bundle, "--inputs", small_trunk.eval, "-o", tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "two.npz"]


def test_simulate_top_keeps_the_best_of_each_text(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "top.npz"
    arguments = ["simulate", small_bundle, "--inputs", small_trunk.eval, "-o", file]
    found = cimtool(*arguments, "--top", 3, "--json").json
    assert found["arrays"] == {"top_index": [40, 3], "top_score": [40, 3]}
    scores = api.load(small_bundle).scores(small_trunk.eval)
    with np.load(file) as held:
        assert held.files == ["top_index", "top_score"]
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :3]
        np.testing.assert_array_equal(held["top_index"], expected)
        best = np.sort(scores, axis=1)[:, ::-1][:, :3]
        np.testing.assert_array_equal(held["top_score"], best)


def test_simulate_takes_a_pair_of_files(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as data:
        for name in ("text", "video"):
            np.save(tmp_path / f"{name}.npy", data[name])
    pair = ["--inputs", tmp_path / "text.npy", "--inputs", tmp_path / "video.npy"]
    for name, inputs in (("one", ["--inputs", small_trunk.eval]), ("pair", pair)):
        assert (
            cimtool("simulate", small_bundle, *inputs, "-o", tmp_path / f"{name}.npz").status == 0
        )
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "pair.npz").read_bytes()


def test_verify_prints_details_with_verbose_and_names_them_without(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    data = ("--data", small_trunk.eval, "--samples", 4)
    words = ("verify", small_bundle, *data, "--report", report)
    short, ran = cimtool(*words).out, cimtool(*words, "-v")
    assert (ran.status, ran.err) == (0, "")
    assert "converters fitted" in ran.out
    assert "values differ between the simulator and ONNX Runtime" in ran.out
    names = ["report.html", "report.json", "report.md"]
    assert sorted(path.name for path in report.iterdir()) == names
    hint = next(line for line in short.splitlines() if line.startswith("--verbose has the rest: "))
    assert " sections, " in hint
    files = f"wrote {report}/report.json, report.md, report.html"
    next_ = f"next: cimtool cost {small_bundle} --gallery N"
    assert short.splitlines()[-2:] == ran.out.splitlines()[-2:] == [files, next_]
    assert "--verbose" not in ran.out
    assert "Every slice in numbers" in ran.out
    assert "Every slice in numbers" not in short


def test_verify_as_json_is_the_report_and_where_it_is(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    arguments = ["verify", small_bundle, "--data", small_trunk.eval, "--report", tmp_path]
    found = cimtool(*arguments, "--samples", 4, "--json").json
    written = found.pop("written")
    assert [Path(file).name for file in written] == ["report.json", "report.md", "report.html"]
    assert found == json.loads((tmp_path / "report.json").read_text())
    assert (found["passed"], found["scatter"]["samples"]) == (True, 4)
    assert all(count["differing"] == 0 for count in found["bits"])


@pytest.mark.thorough("a report of one sample")
def test_one_sample_a_side_has_no_standard_error(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    arguments = ["verify", small_bundle, "--data", small_trunk.eval, "--report", tmp_path]
    ran = cimtool(*arguments, "--samples", 1)
    assert (ran.status, ran.err) == (0, "")
    assert "Monte Carlo with K=1" in ran.out
    scatter = json.loads((tmp_path / "report.json").read_text())["scatter"]
    assert scatter["standard_error"] is None
    assert scatter["rmse"] > 0
    said = (tmp_path / "report.md").read_text()
    assert "standard error" not in said
    assert not re.search(r"\bnan\b", said)
    none = cimtool(*arguments, "--samples", 0)
    assert none.status == 2
    assert "--samples is 0; expected an integer of at least 1" in none.err
    one = cimtool(*arguments, "--samples", 1, "--reference", "mc")
    assert one.status == 2
    assert "--samples is 1; expected at least 2 with --reference mc, for a standard" in one.err


@pytest.mark.thorough("verification/test_run.py has the same without the command")
def test_a_drift_over_its_limit_is_status_1_after_the_whole_report(
    cimtool: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    arguments = ["verify", small_bundle, "--data", small_trunk.eval, "--report", tmp_path]
    kept = cimtool(*arguments, "--max-drift", "logit_rmse=1000", "--max-drift", "r1_loss=1")
    assert (kept.status, kept.err) == (0, "")
    over = cimtool(*arguments, "--max-drift", "logit_rmse=1e-9")
    assert over.status == 1
    assert over.sentence.startswith("logit_rmse is ")
    assert over.sentence.endswith("the limit is 1e-09")
    assert "converters fitted" in over.out
    assert f"wrote {tmp_path / 'report.json'}, " in over.out
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["passed"] is False
    as_json = cimtool(*arguments, "--max-drift", "logit_rmse=1e-9", "--json")
    assert as_json.status == 1
    assert json.loads(as_json.out)["failures"] == found["failures"]
    assert json.loads(as_json.out)["written"][0] == str(tmp_path / "report.json")


@pytest.mark.thorough("compare is in the snapshots")
def test_compare_puts_bundles_side_by_side(
    cimtool: Run, compiling: Run, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    other = tmp_path / "exact"
    assert cimtool(*compiling(small_trunk, other)).status == 0
    arguments = ["compare", small_bundle, other, "--data", small_trunk.eval]
    ran = cimtool(*arguments)
    assert (ran.status, ran.err) == (0, "")
    assert "small@isaac-rram-128" in ran.out
    assert "exact" in ran.out
    found = cimtool(*arguments, "--json").json
    assert found["bundles"] == ["small@isaac-rram-128", "exact"]
    assert found["differing"]["target"] == ["isaac-rram-128", "ideal"]


def test_export_copies_the_onnx_files_and_again_over_its_own(
    cimtool: Run, small_bundle: Path, tmp_path: Path
) -> None:
    place = tmp_path / "onnx"
    for _ in range(2):
        ran = cimtool("export", small_bundle, "--format", "onnx", "-o", place)
        assert (ran.status, ran.err) == (0, "")
        names = ["float.onnx", "score.onnx", "text.onnx", "video.onnx"]
        assert sorted(path.name for path in place.iterdir()) == names
        for name in names:
            assert (place / name).read_bytes() == (small_bundle / name).read_bytes()
            assert f"wrote {place / name}" in ran.out


@pytest.mark.thorough("layouts have tests of their own")
def test_a_two_branch_checkpoint_walks_the_whole_way(
    cimtool: Run, compiling: Run, small_two_branch: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    ran = cimtool(*compiling(small_two_branch, place, target="isaac-rram-128"))
    assert ran.status == 0
    assert "a and b are not known" in " ".join(read_bundle(place).manifest["notes"])
    ran = cimtool("verify", place, "--data", small_two_branch.eval)
    assert (ran.status, ran.err) == (0, "")
    known = cimtool(*compiling(small_two_branch, place, a=0.1, b=0.0))
    assert "a and b are not known" not in known.out
    card = read_bundle(place).model
    assert (card.a, card.b) == (0.1, 0.0)


def test_export_writes_test_vectors_and_says_their_size(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "vectors"
    given = ["--layers", "text.*", "--inputs", small_trunk.eval]
    ran = cimtool("export", small_bundle, "--format", "testvectors", "-o", place, *given)
    assert (ran.status, ran.err) == (0, "")
    size = sum(file.stat().st_size for file in place.iterdir()) / 1e6
    assert ran.out == f"wrote {place}: {len(list(place.iterdir()))} files, {size:.1f} MB\n"
    layout = json.loads((place / "layout.json").read_text())
    assert list(layout["layers"]) == ["text.fc1", "text.fc2", "text.logvar", "text.mu"]
    assert "real row 1" in layout["stimuli"]["text.mu"]


def test_what_stood_in_the_place_is_said_to_be_aside(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    assert "stood there" not in cimtool(*compiling(small_trunk, place)).out
    ran = cimtool(*compiling(small_trunk, place))
    assert (
        f"the earlier bundle was moved to {place}.previous; no other earlier one is kept" in ran.out
    )
    assert cimtool(*compiling(small_trunk, place), "--json").json["previous"] == f"{place}.previous"


def test_a_bundle_of_a_run_is_called_as_its_folder(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("trained").mkdir()
    for name in ("trained/model.pth", "model.pth"):
        Path(name).write_bytes(small_trunk.projectors.read_bytes())
        assert cimtool(*compiling(small_trunk, None, projectors=name)).status == 0
    assert sorted(one.name for one in Path("exports").iterdir()) == ["model@ideal", "trained@ideal"]


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_place_without_a_name_takes_no_bundle(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, place: str
) -> None:
    ran = cimtool(*compiling(small_trunk, place))
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence.startswith(f"{place}: is not a name for a bundle; expected a new folder")
