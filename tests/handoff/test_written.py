"""Hand-off folders read back: whole ones, changed ones, and hostile ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.inspect import format_facts, inspect
from cimtool.handoff.images import write_images
from cimtool.handoff.written import HANDOFF
from cimtool.hardware.image_file import CELLS, FLIPPED, IMAGES
from cimtool.hardware.placement import crossbar_layers

ARRAY = "text.fc2/r0.c0"


@pytest.fixture(scope="module")
def whole(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of a small bundle with their list."""
    folder, bundle = tmp_path_factory.mktemp("handoff"), read_bundle(small_bundle)
    (folder / "images").mkdir()
    layers = {n: op for g in bundle.program.graphs for n, op in crossbar_layers(g).items()}
    write_images(bundle, layers, folder / "images")
    listed(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of `whole` to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def listed(folder: Path) -> None:
    """Write the list of all files of a folder, as they are."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != HANDOFF)
    digests = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
    values = {"format_version": 1, "bundle": "small", "files": digests}
    (folder / HANDOFF).write_text(json.dumps(values))


def flipped_letter(file: Path, line: int, place: int) -> None:
    """Change one bit of a hexadecimal digit."""
    lines = file.read_text().splitlines()
    own = lines[line]
    lines[line] = own[:place] + f"{int(own[place], 16) ^ 1:x}" + own[place + 1 :]
    file.write_text("\n".join(lines) + "\n")


def test_a_whole_folder_is_summed_up(whole: Path) -> None:
    facts = inspect(whole)
    assert facts["kind"] == "hand-off"
    assert facts["array"] == "128 x 128 cells"
    assert facts["layers"]["text.fc2"] == "32 x 32 weights read back (arrays: 1)"
    assert len(facts["layers"]) == 8
    assert "  bundle: small" in format_facts(facts)


@pytest.mark.parametrize("relisted", [False, True])
def test_a_changed_cell_is_located(folder: Path, relisted: bool) -> None:
    """Whoever writes the list anew too, is found by the sums."""
    flipped_letter(folder / "images" / ARRAY / "cells.hex", 5, 63 - 8)
    if relisted:
        listed(folder)
    sentence = r"cells\.hex: array r0\.c0 of text\.fc2 does not match its checksums, first in row 5"
    with pytest.raises(CimError, match=sentence + r" and column 16; expected"):
        inspect(folder)


def test_the_command_says_so_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped_letter(folder / "images" / ARRAY / "cells.hex", 31, 63)
    assert cli.run(["inspect", str(folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "row 31 and column 0" in shown.err
    assert shown.err.count("\n") == 1


def test_a_changed_flag_makes_other_weights(folder: Path) -> None:
    flipped_letter(folder / "images" / ARRAY / "flipped.hex", 0, 31)
    with pytest.raises(CimError, match=r"flipped\.hex: changed since it was exported"):
        inspect(folder)
    listed(folder)
    with pytest.raises(CimError, match=r"text\.fc2: weights read back differ from the bundle's"):
        inspect(folder)


def test_swapped_cells_of_equal_sums_are_found(folder: Path) -> None:
    """Two word lines that change places have other sums; two arrays with the same, other names."""
    file = folder / "images" / ARRAY / "cells.hex"
    lines = file.read_text().splitlines()
    lines[0], lines[1] = lines[1], lines[0]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(CimError, match=r"does not match its checksums, first in row 0; expected"):
        inspect(folder)


def missing(folder: Path) -> None:
    (folder / "images" / ARRAY / "cells.hex").unlink()


def shortened(folder: Path) -> None:
    file = folder / "images" / ARRAY / "cells.hex"
    file.write_bytes(file.read_bytes()[:-1])
    listed(folder)


def with_a_letter(folder: Path) -> None:
    file = folder / "images" / ARRAY / "cells.hex"
    file.write_text("x" + file.read_text()[1:])


def a_link(folder: Path) -> None:
    file = folder / "images" / ARRAY / "flipped.hex"
    other = file.with_name("other")
    file.rename(other)
    file.symlink_to(other)


def not_json(folder: Path) -> None:
    (folder / HANDOFF).write_text("[" * 100_000)


def a_list(folder: Path) -> None:
    (folder / HANDOFF).write_text("[]")


def without_images(folder: Path) -> None:
    shutil.rmtree(folder / "images")
    listed(folder)


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A change of what `images.json` says, listed as if it were exported so."""

    def apply(folder: Path) -> None:
        file = folder / "images" / IMAGES
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))
        listed(folder)

    apply.__name__ = change.__name__
    return apply


@edited
def a_path(values: dict[str, Any]) -> None:
    values["layers"]["../text.fc2"] = values["layers"]["text.fc2"]


@edited
def huge(values: dict[str, Any]) -> None:
    values["array_rows"] = values["array_columns"] = 1 << 24


@edited
def huge_layer(values: dict[str, Any]) -> None:
    values["layers"]["text.fc2"] |= {"rows": 1 << 24, "columns": 1 << 24}


@edited
def other_groups(values: dict[str, Any]) -> None:
    values["layers"]["text.fc2"]["row_groups"] = [[1, 32]]


@edited
def no_arrays(values: dict[str, Any]) -> None:
    values["layers"]["text.fc2"]["arrays"] = []


@edited
def few_sums(values: dict[str, Any]) -> None:
    values["layers"]["text.fc2"]["arrays"][0]["row_sums"].pop()


@edited
def wide_weights(values: dict[str, Any]) -> None:
    values["layers"]["text.fc2"] |= {"array_columns": 33}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (missing, r"cells\.hex: is missing from the hand-off"),
        (shortened, r"cells\.hex: has [\d,]+ bytes; expected [\d,]+, 128 lines of 128 cells of 2"),
        (with_a_letter, r"cells\.hex: line 1 holds no words of 256 bits"),
        (a_link, r"flipped\.hex: is missing from the hand-off"),
        (not_json, r"handoff\.json: is not JSON"),
        (a_list, r"handoff\.json: holds no table"),
        (without_images, r"images/images\.json: is not listed in handoff\.json"),
        (a_path, r"images/\.\./text\.fc2/r0\.c0/flipped\.hex: is not listed in handoff\.json"),
        (huge, r"images\.json: layers\.text\.fc1 has arrays, sums or row groups"),
        (huge_layer, r"layers\.text\.fc2 has arrays, sums or row groups"),
        (other_groups, r"layers\.text\.fc2 has arrays, sums or row groups"),
        (no_arrays, r"layers\.text\.fc2 has arrays, sums or row groups"),
        (few_sums, r"layers\.text\.fc2 has arrays, sums or row groups"),
        (wide_weights, r"layers\.text\.fc2 has arrays, sums or row groups"),
    ],
)
def test_what_is_no_hand_off_is_said_in_a_sentence(
    folder: Path, change: Callable[[Path], None], sentence: str
) -> None:
    change(folder)
    with pytest.raises(CimError, match=sentence):
        inspect(folder)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"format_version": 2}, "format_version = 2: must be 1"),
        ({"files": {"x": "00"}}, 'files = "00": must be a table of SHA-256 by path'),
        ({"files": {"../x": "0" * 64}}, r"files names '\.\./x', which is not in the folder"),
        ({"files": {"/etc/passwd": "0" * 64}}, "which is not in the folder"),
        ({"files": {"": "0" * 64}}, "which is not in the folder"),
        ({"files": {"9" * 5000: "0" * 64}}, "which is not in the folder"),
        ({"files": {"a/" * 3000 + "a": "0" * 64}}, "which is not in the folder"),
    ],
)
def test_a_list_of_other_places_is_refused(
    folder: Path, values: dict[str, Any], sentence: str
) -> None:
    whole = json.loads((folder / HANDOFF).read_text())
    files = {"files": whole["files"] | values.get("files", {})}
    (folder / HANDOFF).write_text(json.dumps(whole | values | files))
    with pytest.raises(CimError, match=sentence):
        inspect(folder)


def test_every_image_is_listed(folder: Path) -> None:
    for name in (CELLS, FLIPPED):
        listed(folder)
        whole = json.loads((folder / HANDOFF).read_text())
        del whole["files"][f"images/{ARRAY}/{name}.hex"]
        (folder / HANDOFF).write_text(json.dumps(whole))
        with pytest.raises(CimError, match=rf"{name}\.hex: is not listed"):
            inspect(folder)
