"""Exports of parts of a hand-off, and what an export says of its size before it is written."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from c_tools import differing

from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Exporter, Request, export_bundle
from cimtool.bundle.inspect import inspect
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import read_embeddings

SMALL = 20_000
"""Bytes of a folder that are not told, at most."""

FOLDERS = {
    "c": {"c"},
    "images": {"images", "constants"},
    "taps": {"constants", "taps", "directed"},
    "bench": {"images", "constants", "taps", "directed", "c", "sv", "random"},
}


@pytest.fixture(scope="module")
def whole(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "here"
    export_bundle(read_bundle(small_bundle), "handoff", folder)
    return folder


@pytest.mark.thorough("every part; two are in the first tier", quick=("c]", "taps"))
@pytest.mark.parametrize("kind", FOLDERS)
def test_parts_have_the_files_of_a_whole_hand_off(
    kind: str, whole: Path, small_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "part"
    export_bundle(read_bundle(small_bundle), kind, folder)
    assert {one.name for one in folder.iterdir() if one.is_dir()} == FOLDERS[kind]
    about = {"handoff.json", "README.md", "FORMAT.md", "layout.json", "Makefile", "files.sha256"}
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        if file.is_file() and str(name) not in about:
            assert file.read_bytes() == (whole / name).read_bytes()
    described = json.loads((folder / "handoff.json").read_text())
    assert set(described["parts"]) == FOLDERS[kind]
    assert all(sha256(folder / name) == digest for name, digest in described["files"].items())
    numbers = kind != "c"
    assert [(folder / name).exists() for name in ("FORMAT.md", "layout.json", "steps.txt")] == (
        [numbers] * 3
    )
    assert (folder / "Makefile").exists() == (kind in ("c", "bench"))
    assert inspect(folder)["files"] == len(described["files"])
    if kind == "images":
        assert inspect(folder)["layers"] == inspect(whole)["layers"]
    file = next(one for one in sorted(folder.rglob("*")) if one.is_file() and one.parent != folder)
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(CimError, match=r"changed since it was exported|has .* bytes; expected"):
        inspect(folder)


@pytest.mark.thorough("compiles the model once more")
def test_the_model_alone_is_checked_as_in_a_hand_off(small_bundle: Path, tmp_path: Path) -> None:
    export_bundle(read_bundle(small_bundle), "c", tmp_path / "c")
    compared, wrong = differing(tmp_path / "c")
    assert compared > 10_000
    assert wrong == 0
    assert sum(one.is_file() for one in (tmp_path / "c").rglob("*")) < 20


def test_a_part_takes_the_place_of_a_part(small_bundle: Path, tmp_path: Path) -> None:
    bundle = read_bundle(small_bundle)
    export_bundle(bundle, "images", tmp_path / "here")
    export_bundle(bundle, "c", tmp_path / "here")
    assert (tmp_path / "here" / "c").is_dir()
    assert (tmp_path / "here.previous" / "images").is_dir()


@pytest.mark.thorough("every format", quick=("images",))
@pytest.mark.parametrize("kind", ["handoff", *FOLDERS])
def test_its_size_is_told_before_it_is_written(
    kind: str, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    rows, said = read_embeddings(small_trunk.eval), list[str]()
    takes = Exporter.named(kind, "format").takes
    noise = NoiseOptions(model="neurram", trials=2) if "noise" in takes else None
    inputs = rows if "inputs" in takes else None
    request = Request(inputs=inputs, noise=noise, say=said.append)
    bundle, folder = read_bundle(small_bundle), tmp_path / "here"
    told = Exporter.named(kind, "format").expected_bytes(bundle, request)
    files = export_bundle(bundle, kind, folder, request)
    assert said[0].startswith("takes about ")
    assert all(name in said[0] for name in told)
    found = Counter[str]()
    for file in files:
        found[f"{file.relative_to(folder).parts[0]}/"] += file.stat().st_size
    for name, size in told.items():
        exact = {"constants/": 0.0, "taps/": 0.0, "images/": 0.1, "sv/": 0.1, "c/": 0.1}
        assert found[name] == pytest.approx(size, rel=exact.get(name, 1.0), abs=SMALL)


@pytest.mark.parametrize("kind", ["handoff", *FOLDERS])
def test_too_many_bytes_are_refused_in_one_sentence(
    kind: str, small_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(small_bundle), "--format", kind, "-o", str(tmp_path / "out")]
    assert cli.run([*arguments, "--max-size", "20K"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f'cimtool: error: --format "{kind}" takes about ')
    assert "more than --max-size of 20.5 kB; expected fewer --layers" in line
    assert list(tmp_path.iterdir()) == []


def test_a_limit_below_a_kilobyte_is_told_in_bytes(
    small_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(small_bundle), "--format", "c", "-o", str(tmp_path / "out")]
    for size, told in (("1", "1 byte"), ("999", "999 bytes")):
        assert cli.run([*arguments, "--max-size", size]) == 2
        assert f"more than --max-size of {told}; expected" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["", "none", "-1", "0", "2GB", "1e9", "9" * 30])
def test_a_limit_that_is_no_size_is_refused(
    size: str, small_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(small_bundle), "--format", "c", "-o", str(tmp_path / "out")]
    assert cli.run([*arguments, f"--max-size={size}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f'cimtool: error: --max-size is "{size}"; expected bytes, such as 500000000, 500M or 4G'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "option", "field"),
    [
        ("c", ["--layers", "text.mu"], "--layers"),
        ("images", ["--noise"], "--noise"),
        ("bench", ["--noise"], "--noise"),
    ],
)
def test_an_option_of_another_part_is_refused(
    kind: str, option: list[str], field: str, small_bundle: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    arguments = ["export", str(small_bundle), "--format", kind, "-o", str(tmp_path / "out")]
    assert cli.run([*arguments, *option]) == 2
    assert f'--format is "{kind}", which does not take {field}' in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_changed_copy_of_a_part_is_no_earlier_export(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    (folder / "mine.txt").write_text("mine")
    bundle = read_bundle(Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128")
    with pytest.raises(CimError, match="is not an earlier export"):
        export_bundle(bundle, "images", folder)
