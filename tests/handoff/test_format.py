"""FORMAT.md and layout.json: from them alone a reader finds every number of every array."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handoff_runs import SHARED
from jsonschema import Draft202012Validator

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.directed import LINES
from cimtool.handoff.formats import AXES, PLACES, NumberFile
from cimtool.handoff.handoff import PARTS
from cimtool.handoff.json_fields import (
    COVERAGE_FIELDS,
    DIES_FIELDS,
    HANDOFF_FIELDS,
    IMAGES_FIELDS,
    TAPS_FIELDS,
)
from cimtool.handoff.layout import layout_fields
from cimtool.handoff.steps import STEPS, step_line
from cimtool.hardware.target import target_names

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "handoff" / "read_handoff.py"
READER = ROOT / "tests" / "kits" / "handoff_reader.py"
"""A reader of every kind of array; the example reads those of the reference bundle."""
ELSEWHERE = ("write_verify", "search", "store", "match", "rank")
"""Words of `steps.txt` that most hand-offs do not have; their own tests look for them."""
TAPS = ("digits", "sums", "codes", "shift_add", "layer_sum", "requantised")

Counts = dict[str, tuple[int, int]]
Reading = Callable[..., tuple[int, Counts]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reading:
    """The status of a reader for a folder, and what it compared at each tap."""

    def reading(folder: Path, reader: Path = READER) -> tuple[int, Counts]:
        monkeypatch.setattr(sys, "argv", [str(reader), str(folder)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(reader), run_name="__main__")
        found = re.findall(r"^(\w+): (\d+) compared, (\d+) differ$", capsys.readouterr().out, re.M)
        return int(ended.value.code or 0), {tap: (int(n), int(d)) for tap, n, d in found}

    return reading


def assert_nothing_differs(status: int, counts: Counts) -> None:
    assert status == 0
    assert set(counts) >= {*TAPS, "weights", "requantiser_out"}
    assert all(compared and not differ for compared, differ in counts.values())


@pytest.mark.parametrize("reader", [EXAMPLE, READER], ids=["example", "kit"])
def test_the_readers_know_nothing_of_this_library(reader: Path) -> None:
    assert "import cimtool" not in reader.read_text()
    assert "from cimtool" not in reader.read_text()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hand-off of the bundle that is shipped."""
    folder = tmp_path_factory.mktemp("reference") / "handoff"
    bundle = read_bundle(ROOT / "exports" / "reference-small@isaac-rram-128")
    export_bundle(bundle, "handoff", folder)
    return folder


@pytest.mark.parametrize("reader", [EXAMPLE, READER], ids=["example", "kit"])
def test_the_reference_bundle_is_read(reader: Path, read: Reading, reference: Path) -> None:
    assert_nothing_differs(*read(reference, reader))


@pytest.mark.thorough("a copy of a hand-off for a sentence")
def test_the_example_refuses_other_arrays(
    handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    folder = handoff_of_kind("half-even", tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLE, folder], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("converter text.fc1 1 ")
    assert ": this reader knows arrays with {'polarities': 1, " in line


@pytest.mark.thorough("an array of every kind; one is in the first tier", quick=("levels",))
@pytest.mark.parametrize("kind", SHARED)
def test_every_kind_of_array_is_read(
    kind: str,
    read: Reading,
    handoff_of_kind: Callable[[str, Path], Path],
    tmp_path: Path,
) -> None:
    assert_nothing_differs(*read(handoff_of_kind(kind, tmp_path)))


OWN_ORDER = """name = "own"
title = "Own order"
base = "prime-rram-256"
figures = []
[array]
pairs = "{pairs}"
signed_rows = {rows}
signed_cols = {columns}
[image]
columns = "slice-major"
pair = "negative-first"
rows = "descending"
word_bits = 12
bit_order = "msb-first"
digits = "{digits}"
"""


def handed_off(files: DemoFiles, folder: Path, target: str, **choices: Any) -> Path:
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, drift="given", target=target,
        output=folder / "bundle", **choices,
    )  # fmt: skip
    export_bundle(bundle, "handoff", folder / "handoff", Request(layers="text.*"))
    return folder / "handoff"


@pytest.mark.thorough("a hand-off of each order; that of the reference bundle is in the first tier")
@pytest.mark.parametrize(
    ("pairs", "rows", "columns", "digits"),
    [("columns", 256, 64, "binary"), ("rows", 128, 128, "hex")],
)
def test_cells_of_another_order_are_read(
    pairs: str, rows: int, columns: int, digits: str,
    read: Reading, small_trunk: DemoFiles, tmp_path: Path,
) -> None:  # fmt: skip
    text = OWN_ORDER.format(pairs=pairs, rows=rows, columns=columns, digits=digits)
    (tmp_path / "own.toml").write_text(text)
    folder = handed_off(small_trunk, tmp_path, str(tmp_path / "own.toml"), array="24x20")
    assert_nothing_differs(*read(folder))


@pytest.mark.thorough("a bundle of each shipped target", quick=("dcim-28nm-isscc22",))
@pytest.mark.parametrize("target", target_names())
def test_every_target_is_read(
    target: str,
    read: Reading,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    assert_nothing_differs(*read(handed_off(small_trunk, tmp_path, target)))


MEASURED = """name = "own"
title = "A measured converter"
base = "isaac-rram-128"
figures = []
[adc]
bits = 3
kind = "measured"
transfer = [0.5, 1.6, 2.5, 3.4, 4.6, 5.5, 6.4]
"""

CHOICES: dict[str, dict[str, Any]] = {
    "reference column": {"encoding": "centred", "adc_bits": 4, "array": "20x33"},
    "unit column of cycles": {
        "encoding": "offset",
        "offset_sum": "unit-column",
        "references": "cycle",
        "adc_bits": 4,
        "array": "20x29",
    },
    "cells that leak": {"adc_bits": 4, "on_off_ratio": 30, "unused_rows": "driven"},
}


@pytest.mark.thorough("more arrays and converters; those of the reference bundle are in the first")
@pytest.mark.parametrize("kind", [*CHOICES, "measured converter"])
def test_columns_and_converters_of_other_kinds_are_read(
    kind: str,
    read: Reading,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    (tmp_path / "own.toml").write_text(MEASURED)
    target = "isaac-rram-128" if kind in CHOICES else str(tmp_path / "own.toml")
    folder = handed_off(small_trunk, tmp_path, target, **CHOICES.get(kind, {}))
    assert_nothing_differs(*read(folder))


@pytest.mark.thorough("a bundle and its gallery; the bench of a gallery is in this tier too")
def test_a_gallery_in_arrays_is_read(read: Reading, small_trunk: DemoFiles, tmp_path: Path) -> None:
    """Products that drive the cells of another have no images of their own."""
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="isaac-rram-128", score_mapping="in-memory", output=tmp_path / "empty",
    )  # fmt: skip
    programmed = api.program(tmp_path / "empty", small_trunk.eval, output=tmp_path / "full")
    export_bundle(programmed.bundle, "handoff", tmp_path / "handoff", Request(gallery=True))
    assert "read score.mus.mu/r0.c0" in (tmp_path / "handoff" / "steps.txt").read_text()
    assert not (tmp_path / "handoff" / "images" / "score.mus.mu").exists()
    assert_nothing_differs(*read(tmp_path / "handoff"))


@pytest.mark.thorough("a byte of every file", quick=("sums", "cells", "bias"))
@pytest.mark.parametrize(
    ("file", "tap"),
    [
        ("taps/text.fc2/r0/g0.inputs.hex", "digits"),
        ("taps/text.fc2/r0/g0.digits.hex", "digits"),
        ("taps/text.fc2/r0.c0/g0.sums.hex", "sums"),
        ("taps/text.fc2/r0.c0/g0.codes.hex", "codes"),
        ("taps/text.fc2/r0.c0/g0.shift_add.hex", "shift_add"),
        ("taps/text.fc2/layer_sum.hex", "layer_sum"),
        ("taps/text.fc2/q0/requantised.hex", "requantised"),
        ("directed/text.fc2/q0/requantiser_out.hex", "requantiser_out"),
        ("images/text.fc2/r0.c0/cells.hex", "weights"),
        ("images/text.fc2/r0.c0/flipped.hex", "weights"),
        ("constants/text.fc2/bias.hex", "layer_sum"),
        ("constants/text.fc2/q0/multiplier.hex", "requantised"),
    ],
)
def test_a_changed_byte_is_found(
    file: str,
    tap: str,
    read: Reading,
    reference: Path,
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(reference, tmp_path / "copy"))
    lines = (folder / file).read_text().splitlines()
    # The first digit of lane 0, in the last line that is not zero: a large change of a constant.
    at = max(n for n, line in enumerate(lines) if int(line[-16:], 16))
    place = -16 if "constants/" in file else -1
    changed = f"{int(lines[at][place], 16) ^ 1:x}"
    lines[at] = (
        lines[at][: len(lines[at]) + place] + changed + lines[at][len(lines[at]) + place + 1 :]
    )
    (folder / file).write_text("\n".join(lines) + "\n")
    for reader in (EXAMPLE, READER):
        status, counts = read(folder, reader)
        assert status == 1
        assert counts[tap][1] > 0


SCHEMA = json.loads((ROOT / "docs" / "handoff-layout.schema.json").read_text())


def schema_errors(values: Any) -> list[str]:
    return [error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(values)]


def test_the_layout_keeps_to_its_schema(reference: Path) -> None:
    layout = json.loads((reference / "layout.json").read_text())
    assert schema_errors(layout) == []
    assert schema_errors(layout | {"format_version": 2}) == ["$.format_version"]
    assert schema_errors(layout | {"more": 1}) == ["$"]
    del layout["files"]["sums"]["path"]
    assert schema_errors(layout) == ["$.files.sums"]


def test_the_layout_names_every_file_of_numbers(reference: Path) -> None:
    layout = json.loads((reference / "layout.json").read_text())
    assert layout["steps"] == STEPS
    assert layout["axes"] == AXES
    declared = {f"{part.folder}/{one.path}" for part in PARTS for one in part.formats.values()}
    paths = [one["path"] for one in layout["files"].values()]
    assert set(paths) == {one for one in declared if not one.startswith(("dies/", "cam/"))}
    paths += [one["path"] for one in layout["tables"].values()]
    paths += [layout["cells"]["path"], layout["cells"]["flags"]]
    parts = {
        "{layer}": r"[\w.]+", "{array}": r"[\w.]+/r\d+\.c\d+", "{band}": r"[\w.]+/r\d+",
        "{group}": r"g\d+", "{requantisation}": r"[\w.]+/q\d+",
    }  # fmt: skip
    patterns = [re.escape(path) for path in paths]
    for name, pattern in parts.items():
        patterns = [one.replace(re.escape(name), pattern) for one in patterns]
    ends = json.loads((reference / "taps" / "taps.json").read_text())["ends"]
    for file in reference.glob("*/*/**/*.*"):
        name = file.relative_to(reference).as_posix()
        if file.is_file() and not name.startswith(("c/", "sv/", "random/")):
            assert name.removeprefix("taps/") in ends or any(
                re.fullmatch(pattern, name) for pattern in patterns
            ), name


def test_a_file_that_does_not_fit_its_declaration_is_not_written(tmp_path: Path) -> None:
    file = NumberFile("{layer}/x.hex", "numbers", ("vector", "column"))
    with pytest.raises(ValueError, match=r"has axes \('vector', 'column'\); got \(3,\)"):
        file.write(tmp_path, np.zeros(3, np.int64), layer="text.mu")
    with pytest.raises(ValueError, match="a line sum has 1 fields; got 2"):
        step_line("sum", "text.mu", 3)
    assert list(tmp_path.iterdir()) == []


def keys_of(value: Any, told: dict[str, str], prefix: str = "") -> Iterator[str]:
    """The paths of a JSON file as far as its table of fields goes, with the names of capitals."""
    names = {one.removeprefix(prefix).split(".")[0] for one in told if one.startswith(prefix)}
    for key, inner in value.items():
        (any_name,) = [one for one in names if one.isupper()] or [key]
        name = prefix + (key if key in names else any_name)
        deeper = any(one.startswith(f"{name}.") for one in told)
        yield from keys_of(inner, told, f"{name}.") if deeper else [name]


def test_every_field_of_json_files_is_explained(small_bundle: Path, tmp_path: Path) -> None:
    request = Request("text.*", noise=NoiseOptions(model="neurram", trials=1))
    export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "here", request)
    page = (tmp_path / "here" / "FORMAT.md").read_text()
    for file, told in (
        ("handoff.json", HANDOFF_FIELDS),
        ("layout.json", layout_fields()),
        ("images/images.json", IMAGES_FIELDS),
        ("taps/taps.json", TAPS_FIELDS),
        ("dies/dies.json", DIES_FIELDS),
        ("sv/coverage.json", COVERAGE_FIELDS),
    ):
        values = json.loads((tmp_path / "here" / file).read_text())
        # A reason is there only where something is missing; this bundle has no CAM.
        others = {"cells.word_bits", "searches"}
        others |= {name for name in told if name.endswith(".why")}
        assert set(told) - others <= set(keys_of(values, told)) <= set(told), file
        assert all(f"| `{name}` | {what} |" in page for name, what in told.items())


def test_the_page_explains_every_file_and_field_with_lines_of_this_hand_off(
    small_bundle: Path, tmp_path: Path
) -> None:
    request = Request("text.*", noise=NoiseOptions(model="neurram", trials=1))
    export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "here", request)
    page = (tmp_path / "here" / "FORMAT.md").read_text()
    for part in (one for one in PARTS if one.folder != "cam"):
        assert all(f"{part.folder}/{one.told}" in page for one in part.formats.values())
    for word, fields in STEPS.items():
        if word in ELSEWHERE:
            continue
        assert f"### `{word}`" in page
        assert all(
            f"| `{name}` | " in page and f" | {what} |" in page for name, what in fields.items()
        )
    for one in LINES.values():
        assert f"### `directed/{one.path.format(**PLACES)}`" in page
        assert all(f"| `{name}` | {what} |" in page for name, what in one.fields.items())
        file, line = re.findall(
            rf"`(directed/\S+/{Path(one.path).name})`, last line: `(.*?)` is", page
        )[0]
        assert (tmp_path / "here" / file).read_text().splitlines()[-1] == line
        assert len(line.split()) == len(one.fields)
    examples = re.findall(r"`(\S+\.hex)`, line (\d+) \(.*?`([0-9a-f]+)` = (-?\d+)", page)
    assert len(examples) > 15
    for file, line, digits, value in examples:
        found = (tmp_path / "here" / file).read_text().splitlines()[int(line) - 1]
        assert found.endswith(digits)
        width = 4 * len(digits)
        assert int(digits, 16) - int(value) in (0, 1 << width)
    worked = re.findall(r"= (-?\d+), lane 0 of line (\d+) of `(\S+)`", page)
    worked += re.findall(r"it is (-?\d+), line (\d+) of `(\S+)`", page)
    assert len(worked) >= 3
    for value, line, file in worked:
        found = (tmp_path / "here" / file).read_text().splitlines()[int(line) - 1][-16:]
        assert int(found, 16) in (int(value), int(value) + (1 << 64))
