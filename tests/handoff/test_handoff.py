"""The hand-off: the same bytes each time, digests that hold, and a model in C that is compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from c_tools import STRICT, c_compiler, differing, make
from handoff_runs import list_anew

from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.handoff import PARTS
from cimtool.loading.embeddings import read_embeddings


@pytest.fixture(scope="module")
def handoff(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("handoff") / "here"
    request = Request(inputs=read_embeddings(small_trunk.eval))
    export_bundle(read_bundle(small_bundle), "handoff", folder, request)
    return folder


def test_it_tells_its_parts_and_the_layers_of_long_ones(small_bundle: Path, tmp_path: Path) -> None:
    said = list[str]()
    request = Request("text.*", noise=NoiseOptions(model="neurram", trials=2), say=said.append)
    export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "here", request)
    folders = [part.folder for part in PARTS if part.folder != "cam"]
    assert [line for line in said if line.startswith("writing ")] == [
        f"writing {name}/" for name in folders
    ]
    for line in (
        "taps: text.fc1, layer 1 of 4",
        "directed numbers: text.mu, layer 4 of 4",
        "die 2 of 2: written",
    ):
        assert line in said


def test_it_is_the_same_each_time_and_its_digests_hold(
    handoff: Path, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    request = Request(inputs=read_embeddings(small_trunk.eval))
    written = export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "again", request)
    described = json.loads((handoff / "handoff.json").read_text("utf-8"))
    assert described["manifest_sha256"] == sha256(small_bundle / "manifest.json")
    names = {file.relative_to(tmp_path / "again").as_posix() for file in written}
    assert names == {"handoff.json", *described["files"]}
    readme = (handoff / "README.md").read_text("utf-8")
    for name in names:
        assert (handoff / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
        assert name == "handoff.json" or sha256(handoff / name) == described["files"][name]
        assert name.count("/") != 1 or name.split("/")[-1] in readme


def test_its_readme_names_only_files_that_are_there(handoff: Path) -> None:
    readme = (handoff / "README.md").read_text("utf-8")
    assert "| `cim_column.sv` |" in readme
    assert not any(name in readme for name in ("cim_cam.sv", "cim_writer.sv", "write_bounds"))


@pytest.mark.thorough("its own flags optimise the model, which takes seconds")
def test_no_value_differs(handoff: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    compared, wrong = differing(folder, quick=False)
    assert compared > 10_000
    assert wrong == 0


@pytest.mark.thorough("the model once more by other compilers")
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("gcc", "-std=c99 -O1 -fsanitize=undefined -fno-sanitize-recover=all"),
        ("clang", "-std=c99 -O2 -fsanitize=undefined -fsanitize-trap=undefined"),
        ("tcc", "-std=c99"),
    ],
)
def test_other_compilers_agree_and_nothing_is_undefined(
    handoff: Path, tmp_path: Path, name: str, flags: str
) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    compiler = c_compiler(name)
    assert differing(folder, f"CC={compiler}", f"CFLAGS={flags}") == differing(folder)


@pytest.mark.parametrize("place", [0, 5_000, -1])
def test_a_changed_number_is_found(handoff: Path, tmp_path: Path, place: int) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    numbers = bytearray((folder / "c" / "expected.bin").read_bytes())
    numbers[8 * place] ^= 1
    (folder / "c" / "expected.bin").write_bytes(numbers)
    list_anew(folder)
    done = make(folder)
    assert done.returncode == 2
    assert "expected" in done.stderr


ENDS = ("text/codes", "text/mu", "video/s", "video/vd_self", "score/ed", "score/vd")


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier", quick=("sums", "requant")
)
@pytest.mark.parametrize("name", [*ENDS, "score/polynomial", "score/logit"])
@pytest.mark.parametrize("line", [0, -1])
def test_a_changed_tap_from_end_to_end_is_found(
    handoff: Path, tmp_path: Path, name: str, line: int
) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    file = folder / "taps" / f"{name}.hex"
    lines = file.read_text("ascii").splitlines()
    lines[line] = f"{int(lines[line], 16) ^ 1:016x}"
    file.write_text("\n".join(lines) + "\n", "ascii")
    list_anew(folder)
    done = make(folder)
    assert done.returncode == 2
    number = 1 if line == 0 else len(lines)
    assert f"check: taps/{name}.hex: line {number} is not what the model shows" in done.stderr


@pytest.mark.parametrize("change", ["shorter", "longer", "missing"])
def test_taps_of_another_length_are_found(handoff: Path, tmp_path: Path, change: str) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    file = folder / "taps" / "score" / "ed.hex"
    text = file.read_text("ascii")
    if change == "missing":
        file.unlink()
    else:
        file.write_text(text + text[:17] if change == "longer" else text[:-17], "ascii")
    list_anew(folder)
    done = make(folder)
    assert done.returncode == 2
    assert "check: taps/score/ed.hex: " in done.stderr


@pytest.mark.parametrize("change", [-8, 8])
def test_a_number_that_is_missing_or_left_over_is_found(
    handoff: Path, tmp_path: Path, change: int
) -> None:
    folder = shutil.copytree(handoff, tmp_path / "copy")
    numbers = (folder / "c" / "expected.bin").read_bytes()
    (folder / "c" / "expected.bin").write_bytes((numbers + bytes(8))[: len(numbers) + change])
    list_anew(folder)
    done = make(folder)
    assert done.returncode == 2
    assert "check: c/expected.bin: expected" in done.stderr


@pytest.mark.thorough("other compilers; gcc is in the first tier", quick=("gcc--O2",))
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3", "-Os"])
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_model_needs_nothing_beside_itself(
    handoff: Path, tmp_path: Path, name: str, level: str
) -> None:
    flags = ["-fno-tree-loop-distribute-patterns"] if name == "gcc" else []
    command = [c_compiler(name), *STRICT, level, *flags, "-ffreestanding", "-c", "-o", "model.o"]
    subprocess.run([*command, handoff / "c" / "model.c"], cwd=tmp_path, check=True)
    undefined = subprocess.run(
        ["nm", "-u", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert undefined.stdout == ""


def test_a_folder_of_something_else_is_not_replaced(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(CimError, match="there: exists and is not an earlier export"):
        export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "there")
    assert [file.name for file in tmp_path.iterdir()] == ["there"]


DESCRIPTIONS = {
    "a list": '{"files": ["mine"]}',
    "no name": '{"files": {"": "", "..": ""}}',
    "nothing": '{"files": {}}',
    "deep": "[" * 200_000,
    "digits": "9" * 5000,
}


@pytest.mark.parametrize("name", [*DESCRIPTIONS, "a pipe", "a device"])
@pytest.mark.parametrize("kind", ["handoff", "testvectors"])
def test_a_description_of_something_else_is_no_earlier_export(
    kind: str, name: str, small_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    file = folder / ("handoff.json" if kind == "handoff" else "layout.json")
    if name == "a pipe":
        os.mkfifo(file)
    elif name == "a device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text(DESCRIPTIONS[name], "utf-8")
        (folder / "mine").write_text("mine", "utf-8")
    with pytest.raises(CimError, match="there: exists and is not an earlier export"):
        export_bundle(read_bundle(small_bundle), kind, folder)
    assert [one.name for one in tmp_path.iterdir()] == ["there"]
