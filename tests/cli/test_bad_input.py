"""Everything a user may get wrong: one clear sentence, status 2, nothing left behind."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool.demo.data import DemoFiles

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def refused(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    tmp_path: Path,
    small_trunk: DemoFiles,
) -> Callable[..., str]:
    """Compile with changed files or options; returns the sentence, after checking the rest."""

    def run(files: DemoFiles = small_trunk, **options: object) -> str:
        place = tmp_path / "made" / "bundle"
        ran = cimtool(*compiling(files, place, **options))
        assert (ran.status, ran.out) == (2, "")
        assert not place.parent.exists(), "something was left"
        sentence: str = ran.sentence
        return sentence

    return run


def changed_weights(files: DemoFiles, folder: Path, change: Change) -> DemoFiles:
    """The same model with its state dict changed."""
    state = torch.load(files.projectors, weights_only=True)
    change(state)
    path = folder / "changed.pth"
    torch.save(state, path)
    return replace(files, projectors=path)


def changed_rows(files: DemoFiles, folder: Path, change: Change) -> DemoFiles:
    """The same model with its calibration data changed."""
    with np.load(files.calibration) as held:
        arrays = {name: held[name] for name in held.files}
    change(arrays)
    path = folder / "changed.npz"
    np.savez(path, **arrays)
    return replace(files, calibration=path)


def changed_poly(files: DemoFiles, folder: Path, change: Change) -> DemoFiles:
    """The same model with its polynomial changed."""
    values = json.loads(files.poly.read_text())
    change(values)
    path = folder / "changed.json"
    path.write_text(json.dumps(values))
    return replace(files, poly=path)


class Payload:
    """Pickles as a call that would create a file."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_code_in_a_pickle_is_not_executed(
    refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    marker = tmp_path / "executed"
    files = changed_weights(
        small_trunk, tmp_path, lambda state: state.update(extra=Payload(marker))
    )
    sentence = refused(files)
    assert not marker.exists()
    assert sentence.startswith(f"{files.projectors}: holds Python code (")
    assert "never executed" in sentence
    torch.load(files.projectors, weights_only=False)
    assert marker.exists(), "the payload does nothing even where it is executed"


def test_a_truncated_checkpoint(
    refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    whole = small_trunk.projectors.read_bytes()
    path = tmp_path / "cut.pth"
    for kept in (0, 100, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:kept])
        sentence = refused(replace(small_trunk, projectors=path))
        assert sentence.startswith(f"{path}: is truncated, corrupt, or not a file")


def spoiled(key: str, value: float) -> Change:
    def change(values: dict[str, Any]) -> None:
        values[key] = values[key].copy() if isinstance(values[key], np.ndarray) else values[key]
        values[key][3, 2] = value

    return change


WEIGHTS = "text_proj.mu.weight"
BAD_WEIGHTS: dict[str, tuple[Change, list[str]]] = {
    "a missing key": (lambda s: s.pop(WEIGHTS), ["text_proj", "mu"]),
    "a missing modality": (
        lambda s: [s.pop(key) for key in list(s) if key.startswith("video_proj.")],
        ["video"],
    ),
    "a shape that does not fit": (
        lambda s: s.update({WEIGHTS: s[WEIGHTS][:, :-1].clone()}),
        [WEIGHTS, "31", "32"],
    ),
    "NaN": (spoiled(WEIGHTS, float("nan")), [WEIGHTS, "nan"]),
    "infinity": (spoiled(WEIGHTS, float("inf")), [WEIGHTS, "inf"]),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights(
    case: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    change, expected = BAD_WEIGHTS[case]
    files = changed_weights(small_trunk, tmp_path, change)
    sentence = refused(files)
    assert sentence.startswith(f"{files.projectors}: ")
    for part in expected:
        assert part in sentence


BAD_ROWS: dict[str, tuple[Change, list[str]]] = {
    "NaN": (spoiled("text", float("nan")), ["row 3 of text holds nan"]),
    "infinity": (spoiled("video", float("-inf")), ["row 3 of video holds -inf"]),
    "the wrong width": (
        lambda rows: rows.update(text=rows["text"][:, :20]),
        ["text rows have 20 numbers", "expects 24"],
    ),
    "no rows": (
        lambda rows: rows.update(text=rows["text"][:0], video=rows["video"][:0]),
        ["text has no rows"],
    ),
    "one row": (
        lambda rows: rows.update(video=rows["video"][:1], text_to_video=[0] * len(rows["text"])),
        ["video has 1 row, which gives no range; expected at least 32 calibration rows"],
    ),
    "one row nine times": (
        lambda rows: rows.update(text=rows["text"][[4] * 9], video=rows["video"][:9]),
        ["all 9 text calibration rows are equal, so they give no range"],
    ),
    "a missing modality": (lambda rows: rows.pop("video"), ["video", "is missing"]),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_calibration_data(
    case: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    change, expected = BAD_ROWS[case]
    files = changed_rows(small_trunk, tmp_path, change)
    sentence = refused(files)
    assert sentence.startswith(f"{files.calibration}: ")
    for part in expected:
        assert part in sentence


def test_few_calibration_rows_are_a_warning(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    def cut(rows: dict[str, Any]) -> None:
        rows.update(text=rows["text"][:9], video=rows["video"][:9])

    files = changed_rows(small_trunk, tmp_path, cut)
    notes = cimtool(*compiling(files, tmp_path / "b"), "--json").json["notes"]
    assert (
        f"warning: {files.calibration}: only 9 text calibration rows, so about 2 in 10 new rows "
        "lie outside the range of a value; expected at least 32 rows"
    ) in notes


def test_calibration_rows_that_repeat_count_once(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    def repeat(rows: dict[str, Any]) -> None:
        rows.update(text=rows["text"][np.arange(40) // 4], video=rows["video"][:40])

    files = changed_rows(small_trunk, tmp_path, repeat)
    notes = cimtool(*compiling(files, tmp_path / "b"), "--json").json["notes"]
    assert (
        f"warning: {files.calibration}: only 10 different text calibration rows (1, 2, 3, 5, 6, "
        "... repeat earlier ones), so about 2 in 11 new rows lie outside the range of a value; "
        "expected at least 32 different rows"
    ) in notes


def scaled(key: str, factor: float) -> Change:
    def change(values: dict[str, Any]) -> None:
        values[key] = values[key] * np.float32(factor)

    return change


def shifted(key: str, offset: float) -> Change:
    def change(values: dict[str, Any]) -> None:
        values[key] = values[key] + offset

    return change


BEYOND_FLOAT32 = (
    r".*calibration\.npz: score: the logit reaches \d\.\d+e\+\d+ in steps of .*; "
    "expected float32 numbers"
)
HUGE_WEIGHTS: dict[str, Change] = {
    "means": scaled(WEIGHTS, 1e6),
    "variances": shifted("video_proj.logvar.bias", 20.0),
}


@pytest.mark.parametrize("case", HUGE_WEIGHTS)
def test_a_logit_beyond_float32(
    case: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = changed_weights(small_trunk, tmp_path, HUGE_WEIGHTS[case])
    assert re.fullmatch(BEYOND_FLOAT32 + ".*", refused(files))


def test_coefficients_beyond_float32(
    refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    def change(values: dict[str, Any]) -> None:
        values["coeff"] = [c * 1e90 for c in values["coeff"]]

    assert re.fullmatch(BEYOND_FLOAT32 + ".*", refused(changed_poly(small_trunk, tmp_path, change)))


def test_rows_whose_steps_are_below_float32(
    refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = changed_rows(small_trunk, tmp_path, scaled("video", 1e-44))
    sentence = refused(files)
    assert sentence.startswith(f"{files.calibration}: video reaches ")
    assert "expected float32 numbers, steps of at least 1.18e-38" in sentence


LARGER = {
    30: "text.s: logvar spans .* too wide for exp in 24 multiply-adds; expected a span below",
    300: "the polynomial's terms are beyond float64 on these rows",
    1000: r"text\.s.* is not finite on these rows, whose text numbers reach \d",
}


@pytest.mark.parametrize("factor", LARGER)
def test_rows_of_another_scale_than_trained(
    factor: int, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    def larger(values: dict[str, Any]) -> None:
        for key in ("text", "video"):
            values[key] = values[key] * np.float32(factor)

    files = changed_rows(small_trunk, tmp_path, larger)
    sentence = refused(files)
    assert re.match(rf"{re.escape(str(files.calibration))}: {LARGER[factor]}", sentence)
    assert re.search("expected .*rows of the scale that ", sentence)


def test_a_polynomial_with_the_wrong_number_of_coefficients(
    refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = changed_poly(small_trunk, tmp_path, lambda values: values["coeff"].append(1.0))
    sentence = refused(files)
    assert sentence.startswith(f"{files.poly}: ")
    assert "coeff has 15 numbers; degree 4 has 14" in sentence
    assert "the constant is not one of them" in sentence


def test_no_polynomial_names_the_command_that_makes_one(
    refused: Callable[..., str], small_trunk: DemoFiles
) -> None:
    sentence = refused(poly=None)
    assert sentence.startswith(f"{small_trunk.projectors}: holds no polynomial")
    assert "`cimtool teacher` and then `cimtool fit`" in sentence
    assert "--head csd (b - a ed, which needs --a and --b) or --head cosine" in sentence


def test_a_constant_polynomial_is_a_warning(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    files = changed_poly(small_trunk, tmp_path, lambda values: values.update(coeff=[0.0] * 14))
    ran = cimtool(*compiling(files, tmp_path / "bundle"))
    assert (ran.status, ran.err) == (0, "")
    assert "warning: the polynomial is constant over the calibration data" in ran.out
    ran = cimtool("verify", tmp_path / "bundle", "--data", files.eval)
    assert ran.status == 0
    assert "warning: the polynomial is constant" in ran.out


def test_an_unknown_target_names_the_nearest(refused: Callable[..., str]) -> None:
    sentence = refused(target="isac-rram-128")
    assert '"isac-rram-128" is not known' in sentence
    assert 'did you mean "isaac-rram-128"?' in sentence


def test_a_line_break_in_a_name_leaves_one_sentence(
    cimtool: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "broken.toml"
    file.write_text('name = "a"\ntitle = "b"\nbase = "two\\nlines"\n')
    ran = cimtool("targets", "check", file)
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence.startswith(f'{file}: base "two lines" is not known: ')


def test_a_target_file_with_an_unknown_key(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "ideal"\nname = "mine"\ntitle = "Mine"\n[array]\ncel_bits = 2\n')
    sentence = refused(target=file)
    assert sentence.startswith(f"{file}: unknown key array.cel_bits; did you mean")


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [
        ("0.5, 1.5", ["transfer has 2 thresholds", "adc bits = 2 needs 3"]),
        ("0.5, 2.5, 1.5", ["transfer falls from 2.5 to 1.5 at threshold 2"]),
        ("0.5, 1.5, inf", ["adc.transfer", "a number from"]),
    ],
)
def test_a_transfer_table_that_is_none(
    thresholds: str, expected: list[str], refused: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "ideal"\nname = "mine"\ntitle = "Mine"\n'
        f"[adc]\nbits = 2\ntransfer = [{thresholds}]\n"
    )
    sentence = refused(target=file)
    for part in (str(file), *expected):
        assert part in sentence


def test_sums_that_could_overflow_name_the_node(refused: Callable[..., str]) -> None:
    sentence = refused(weight_bits=16, activation_bits=16, accumulator_bits=32)
    assert sentence.startswith("text.")
    assert "accumulator has 32" in sentence


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"weight_bits": 99}, ["--weight-bits is 99", "an integer from"]),
        ({"weight_bits": "eight"}, ['--weight-bits is "eight"', "an integer from"]),
        ({"adc_bits": "none"}, ['--adc-bits is "none"', '"lossless"']),
        ({"array": "128"}, ["--array is 128", "ROWSxCOLUMNS"]),
        ({"encoding": "ofset"}, ['--encoding is "ofset"', '"offset"']),
        ({"target": "colonnade-65nm", "adc_bits": 8}, ["adc_bits = 8", "no converter"]),
        ({"a": "nan"}, ["--a is nan", "finite"]),
        ({"b": "much"}, ["'much'", "'--b'"]),
        ({"settings": "no-such.toml"}, ["no-such.toml: there is no such file"]),
        ({"map": "no-such.toml"}, ["no-such.toml: there is no such file"]),
        ({"projectors": "no-such.pth"}, ["no-such.pth: there is no such file"]),
        ({"calibration": "no-such.npz"}, ["no-such.npz: there is no such file"]),
        ({"target": None}, ["'--target'"]),
        ({"target": "isaac-rram-128", "rows_active": 129}, ["rows_active = 129", "at most 128"]),
        ({"rows_active": 0}, ["--rows-active is 0", "at least 1"]),
        ({"adc_bits": 0}, ["--adc-bits is 0", "an integer from 1 to 16"]),
        ({"adc_bits": 17}, ["--adc-bits is 17", "an integer from 1 to 16"]),
        ({"on_off_ratio": 1}, ["--on-off-ratio is 1", "a number above 1"]),
        ({"on_off_ratio": 0.5}, ["--on-off-ratio is 0.5", "a number above 1"]),
        ({"on_off_ratio": "inf"}, ["--on-off-ratio is Infinity", "a finite number above 1"]),
        ({"adc_on": "pair"}, ['--adc-on is "pair"', '"difference"', '"polarity"']),
        ({"shift_add": "analogue"}, ['--shift-add is "analogue"', '"analog"']),
        ({"offset_sum": "unit"}, ['--offset-sum is "unit"', '"unit-column"']),
        ({"unused_rows": "on"}, ['--unused-rows is "on"', '"driven"']),
        (
            {"offset_sum": "unit-column", "on_off_ratio": 10},
            ["on_off_ratio = 10", "unit column", 'offset_sum = "digital"'],
        ),
        ({"target": "colonnade-65nm", "on_off_ratio": 10}, ["on_off_ratio = 10", "digitally"]),
    ],
    ids=str,
)
def test_bad_options(
    options: dict[str, object], expected: list[str], refused: Callable[..., str]
) -> None:
    sentence = refused(**options)
    for part in expected:
        assert part in sentence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weight_bit = 6\n", ["unknown key weight_bit", 'did you mean "weight_bits"?']),
        ("weight_bits = 1\n", ["weight_bits = 1", "an integer from"]),
        ("weight_bits = \n", ["not valid TOML"]),
        ('[layers."txt.*"]\nweight_bits = 6\n', ['layers."txt.*" matches no layer', "text.mu"]),
    ],
)
def test_a_bad_settings_file(
    text: str, expected: list[str], refused: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    sentence = refused(settings=file)
    for part in expected:
        assert part in sentence


def test_an_output_that_cannot_be_written(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file" / "bundle", Path("/proc/no-such-place/bundle")):
        ran = cimtool(*compiling(small_trunk, place))
        assert (ran.status, ran.out) == (2, "")
        assert ran.sentence.startswith(f"{place}: cannot be written (")
    assert (tmp_path / "file").read_text() == "not a folder"


def test_an_output_that_is_something_else_is_not_replaced(
    cimtool: Callable[..., Any],
    compiling: Callable[..., list[object]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("years of work")
    for place in (folder, file):
        ran = cimtool(*compiling(small_trunk, place))
        assert (ran.status, ran.out) == (2, "")
        assert ran.sentence.startswith(f"{place}: exists and is not a bundle")
    assert (folder / "thesis.txt").read_text() == file.read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


FILES = (
    "program.json",
    "constants.safetensors",
    "stages.json",
    "stages.safetensors",
    "text.onnx",
    "video.onnx",
    "score.onnx",
    "float.onnx",
)


@pytest.fixture
def changed_bundle(small_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle, tmp_path / "changed"))


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_a_bundle_with_one_bit_changed_is_refused(
    name: str,
    cimtool: Callable[..., Any],
    changed_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    flip_a_bit(changed_bundle / name)
    ran = cimtool(
        "simulate", changed_bundle, "--inputs", small_trunk.eval, "-o", tmp_path / "s.npz"
    )
    assert ran.status == 2
    assert ran.sentence.startswith(f"{changed_bundle / name}: changed since it was compiled")
    assert not (tmp_path / "s.npz").exists()


def test_every_command_refuses_a_changed_bundle(
    cimtool: Callable[..., Any],
    changed_bundle: Path,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    flip_a_bit(changed_bundle / "text.onnx")
    place = tmp_path / "place"
    data = small_trunk.eval
    for arguments in (
        ["verify", changed_bundle, "--data", data, "--report", place],
        ["compare", small_bundle, changed_bundle, "--data", data],
        ["export", changed_bundle, "--format", "onnx", "-o", place],
        ["export", changed_bundle, "--format", "handoff", "-o", place],
    ):
        ran = cimtool(*arguments)
        assert (ran.status, ran.out) == (2, ""), arguments
        assert "changed since it was compiled" in ran.sentence
    assert not place.exists()


def test_a_bundle_that_lost_a_file_or_is_none(
    cimtool: Callable[..., Any], changed_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    (changed_bundle / "score.onnx").unlink()
    ran = cimtool("verify", changed_bundle, "--data", small_trunk.eval)
    assert ran.status == 2
    assert ran.sentence.startswith(f"{changed_bundle / 'score.onnx'}: is missing")
    ran = cimtool("verify", tmp_path, "--data", small_trunk.eval)
    assert ran.status == 2
    assert ran.sentence.startswith(f"{tmp_path}: is not a bundle (it has no manifest.json)")
    (tmp_path / "model.pth").write_bytes(b"")
    ran = cimtool("evaluate", tmp_path, "--data", small_trunk.eval)
    assert ran.status == 2
    assert ran.sentence.startswith(
        f"{tmp_path}: is not a bundle but a folder of training; expected {tmp_path / 'model.pth'}"
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (["logit_rms=1"], ['"logit_rms" is not known', 'did you mean "logit_rmse"?']),
        (["logit_rmse"], ["METRIC=VALUE"]),
        (["logit_rmse=small"], ['"small" is not a finite number']),
        (["r1_loss=1", "r1_loss=2"], ["given twice"]),
    ],
)
def test_bad_limits(
    limits: list[str],
    expected: list[str],
    cimtool: Callable[..., Any],
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    given = [part for limit in limits for part in ("--max-drift", limit)]
    report = tmp_path / "report"
    ran = cimtool("verify", small_bundle, "--data", small_trunk.eval, "--report", report, *given)
    assert (ran.status, ran.out) == (2, "")
    for part in expected:
        assert part in ran.sentence
    assert not report.exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--top", 0], ["--top is 0", "1 to 40"]),
        (["--top", 41], ["--top is 41", "1 to 40"]),
        (["-o", "scores.csv"], ["scores.csv: the output is an .npz file"]),
        (["-o", "/proc/no-such-place/s.npz"], ["/proc/no-such-place/s.npz: cannot be written"]),
    ],
    ids=str,
)
def test_bad_simulate_options(
    options: list[object],
    expected: list[str],
    cimtool: Callable[..., Any],
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cimtool("simulate", small_bundle, "--inputs", small_trunk.eval, *options)
    assert (ran.status, ran.out) == (2, "")
    for part in expected:
        assert part in ran.sentence
    assert list(tmp_path.iterdir()) == []


def test_inputs_of_the_wrong_width_and_too_many(
    cimtool: Callable[..., Any],
    small_bundle: Path,
    small_two_branch: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = small_two_branch.eval
    ran = cimtool("simulate", small_bundle, "--inputs", data)
    assert ran.status == 2
    assert ran.sentence == f"{data}: text rows have 16 numbers; projectors expects 24"
    ran = cimtool("simulate", small_bundle, *["--inputs", data] * 3)
    assert ran.status == 2
    assert "--inputs is given 3 times; expected once or twice" in ran.sentence
    assert list(tmp_path.iterdir()) == []


def test_one_bundle_is_nothing_to_compare(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles
) -> None:
    ran = cimtool("compare", small_bundle, "--data", small_trunk.eval)
    assert ran.status == 2
    assert "expected at least two" in ran.sentence


def test_bad_exports(cimtool: Callable[..., Any], small_bundle: Path, tmp_path: Path) -> None:
    ran = cimtool("export", small_bundle, "--format", "onx", "-o", tmp_path / "new")
    assert ran.status == 2
    assert 'did you mean "onnx"?' in ran.sentence
    (tmp_path / "kept.txt").write_text("mine")
    for place in (tmp_path, small_bundle, tmp_path / "kept.txt"):
        for format_name in ("onnx", "handoff"):
            ran = cimtool("export", small_bundle, "--format", format_name, "-o", place)
            assert ran.status == 2
            assert ran.sentence.startswith(f"{place}: exists and is not an earlier export")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize(
    ("format_name", "options", "expected"),
    [
        ("onnx", ["--layers", "text.mu"], ['--format is "onnx"', '"testvectors"']),
        ("testvectors", ["--layers", "txt.mu"], ['--layers "txt.mu"', 'did you mean "text.mu"?']),
        ("testvectors", ["--inputs", "no-such.npz"], ["no-such.npz: there is no such file"]),
        ("testvector", [], ['did you mean "testvectors"?']),
        ("handoff", ["--layers", "txt.mu"], ['--layers "txt.mu"', 'did you mean "text.mu"?']),
        ("handoff", ["--inputs", "no-such.npz"], ["no-such.npz: there is no such file"]),
        ("handoff", ["--noise"], ["--noise"]),
    ],
)
def test_bad_layers_and_rows_of_exports(
    format_name: str,
    options: list[str],
    expected: list[str],
    cimtool: Callable[..., Any],
    small_bundle: Path,
    tmp_path: Path,
) -> None:
    place = tmp_path / "new"
    ran = cimtool("export", small_bundle, "--format", format_name, "-o", place, *options)
    assert ran.status == 2
    for part in expected:
        assert part in ran.sentence
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_told_before_an_export(
    cimtool: Callable[..., Any], small_bundle: Path
) -> None:
    ran = cimtool("export", small_bundle, "--format", "handoff", "-o", "/proc/handoff")
    assert ran.status == 2
    assert re.fullmatch(
        r"/proc/handoff: takes [\d,]{6,} bytes or more, and the disk of /proc has 0 free; nothing "
        "was written",
        ran.sentence,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"head": "cosin"},
            '--head "cosin" is not known: cosine, csd, csd-ranking, euclidean, inclusion, ',
        ),
        ({"head": "cosine"}, '--poly is given, but head "cosine" has no polynomial; expected none'),
        ({"head": "csd", "poly": None}, 'does not give a and b, which head "csd" needs'),
        ({"head": "probcosine", "poly": None, "b": 0.1}, 'gives b without a for head "probcosine"'),
        ({"head": "csd-ranking", "poly": None, "a": 0.1}, "--a is given, but the score of head"),
        ({"head": "euclidean", "poly": None, "a": 0.1}, '--a is given, but the score of head "eu'),
    ],
)
def test_a_head_that_does_not_fit(
    refused: Callable[..., str], options: dict[str, object], said: str
) -> None:
    assert said in refused(**options)


@pytest.mark.parametrize("option", ["--data", "--report"])
def test_an_empty_path_is_refused_by_name(
    option: str, cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles
) -> None:
    given = {"--data": small_trunk.eval, "--report": "r"} | {option: ""}
    ran = cimtool("verify", small_bundle, *(part for pair in given.items() for part in pair))
    assert (ran.status, ran.out) == (2, "")
    assert f"Invalid value for '{option}': is empty; expected a file or folder" in ran.sentence
