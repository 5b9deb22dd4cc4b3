"""FORMAT.md and layout.json: a reader from them alone finds every number, of every kind of array."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from handoff_runs import PLAIN, SHARED, with_changed_line
from jsonschema import Draft202012Validator

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.formats import AXES, WHERE
from cimtool.handoff.handoff import PARTS
from cimtool.handoff.layout import LayoutFile
from cimtool.handoff.steps import STEPS, WORDS
from cimtool.hardware.target import target_names

ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "examples" / "handoff" / "read_handoff.py"
TAPS = ("digits", "sums", "codes", "shift_add", "layer_sum", "requantised")

Counts = dict[str, tuple[int, int]]


@pytest.fixture
def read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], tuple[int, Counts]]:
    """The status of the example's reader for a folder, and what it compared at each tap."""

    def reading(folder: Path) -> tuple[int, Counts]:
        monkeypatch.setattr(sys, "argv", [str(READER), str(folder)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(READER), run_name="__main__")
        found = re.findall(r"^(\w+): (\d+) compared, (\d+) differ$", capsys.readouterr().out, re.M)
        return int(ended.value.code or 0), {tap: (int(n), int(d)) for tap, n, d in found}

    return reading


def assert_nothing_differs(status: int, counts: Counts) -> None:
    assert status == 0
    assert set(counts) >= {*TAPS, "weights", "requantiser_out"}
    assert all(compared and not differ for compared, differ in counts.values())


def test_the_reader_knows_nothing_of_this_library() -> None:
    assert "import cimtool" not in READER.read_text()
    assert "from cimtool" not in READER.read_text()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hand-off of the bundle that is shipped."""
    folder = tmp_path_factory.mktemp("reference") / "handoff"
    bundle = read_bundle(ROOT / "exports" / "reference-small@isaac-rram-128")
    export_bundle(bundle, "handoff", folder)
    return folder


def test_the_reference_bundle_is_read(
    read: Callable[[Path], tuple[int, Counts]], reference: Path
) -> None:
    assert_nothing_differs(*read(reference))


@pytest.mark.thorough(
    "an array of every kind; one is in the first tier", quick=("leak", "levels", "polarity")
)
@pytest.mark.parametrize("kind", SHARED)
def test_every_kind_of_array_is_read(
    kind: str,
    read: Callable[[Path], tuple[int, Counts]],
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
        files.projectors, files.poly, calibration=files.calibration, target=target,
        output=folder / "bundle", **choices,
    )  # fmt: skip
    export_bundle(bundle, "handoff", folder / "handoff", Request(layers="text.*"))
    return folder / "handoff"


@pytest.mark.parametrize(
    ("pairs", "rows", "columns", "digits"),
    [("columns", 256, 64, "binary"), ("rows", 128, 128, "hex")],
)
def test_cells_of_another_order_are_read(
    pairs: str, rows: int, columns: int, digits: str,
    read: Callable[[Path], tuple[int, Counts]], small_trunk: DemoFiles, tmp_path: Path,
) -> None:  # fmt: skip
    text = OWN_ORDER.format(pairs=pairs, rows=rows, columns=columns, digits=digits)
    (tmp_path / "own.toml").write_text(text)
    folder = handed_off(small_trunk, tmp_path, str(tmp_path / "own.toml"), array="24x20")
    assert_nothing_differs(*read(folder))


@pytest.mark.thorough("a bundle of each shipped target", quick=("dcim-28nm-isscc22",))
@pytest.mark.parametrize("target", target_names())
def test_every_target_is_read(
    target: str,
    read: Callable[[Path], tuple[int, Counts]],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    assert_nothing_differs(*read(handed_off(small_trunk, tmp_path, target)))
