"""Free texts of a bundle, and names of files, that are markup or steer a terminal.

Every file that commands write of them shows the texts and obeys none.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from forging import changed
from markdown_it import MarkdownIt

from cimtool import api
from cimtool.base.escapes import is_shown
from cimtool.bundle.bundle import MANIFEST
from cimtool.cli import run
from cimtool.demo.data import DemoFiles

TEXT = "\\*bold* <script>alert(1)</script> */ ]]> \x1b[2J\u202e \"'`[x](javascript:1)|\n# x"
FILE = "<script>alert(1) \x1b[2J\u202e \"'` [x](javascript:1)"


def with_texts(manifest: dict[str, Any]) -> None:
    """Put the text wherever a manifest holds one that is free."""
    target, model = manifest["target"], manifest["model"]
    for key in ("title", "technology"):
        target[key] = TEXT
    for key in ("unconfirmed", "unmodelled"):
        target[key] = [TEXT]
    for figure in target["figures"]:
        figure["source"] = TEXT
    for point in target.get("operating_points", ()):
        point["precision"] = TEXT
    model["warnings"] = [TEXT]
    manifest["notes"] = [f"warning: {TEXT}", TEXT]
    manifest["cimtool_version"] = TEXT
    manifest["inputs"] = [{"file": TEXT, "sha256": TEXT} for _ in manifest["inputs"]]


class Tags(HTMLParser):
    """The tags of a page, attributes of scripts aside."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        assert not any((value or "").startswith("javascript") for _, value in attrs)


def check(file: Path) -> None:
    """No character of a file steers, and no text of it is markup."""
    text = file.read_text("utf-8")
    odd = [one for one in text if not is_shown(one)]
    assert not odd, (file.name, odd[:3])
    if file.suffix in (".svg", ".xml"):
        ElementTree.fromstring(text.encode())
    if file.suffix == ".html":
        assert Tags(text).found.count("script") == 1
    if file.suffix == ".md":
        page = MarkdownIt("commonmark").enable("table").render(text)
        assert not {"script", "a", "em"} & {*Tags(page).found}


def written(folder: Path) -> Iterator[Path]:
    """The texts below a folder."""
    endings = (".md", ".html", ".svg", ".xml", ".json", ".toml", ".txt", ".c", ".h", ".csv")
    return (file for file in folder.rglob("*") if file.suffix in endings)


@pytest.fixture(scope="module")
def hostile(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(small_bundle, tmp_path_factory.mktemp("bundles") / FILE))
    changed(folder, MANIFEST, with_texts, signed=True)
    return folder


def test_reports_show_them(hostile: Path, small_trunk: DemoFiles, tmp_path: Path) -> None:
    data = shutil.copy(small_trunk.eval, tmp_path / f"{FILE}.npz")
    options = ["--data", str(data), "--report", str(tmp_path / "out")]
    junit = ["--junit", str(tmp_path / "out/junit.xml")]
    assert run(["verify", str(hostile), *options, *junit]) == 0
    files = sorted(written(tmp_path / "out"))
    assert {one.name for one in files} == {"report.json", "report.md", "report.html", "junit.xml"}
    for file in files:
        check(file)


@pytest.mark.thorough("reports show them by the same tables")
def test_costs_show_them(hostile: Path, tmp_path: Path) -> None:
    assert run(["cost", str(hostile), "--gallery", "1000", "-o", str(tmp_path)]) == 0
    files = sorted(written(tmp_path))
    assert {one.name for one in files} == {
        "cost.json",
        "placement.svg",
        "schedule.svg",
        "instead.svg",
    }
    for file in files:
        check(file)


@pytest.mark.parametrize("form", ["handoff", "testvectors", "conductances"])
def test_exports_show_them(form: str, hostile: Path, tmp_path: Path) -> None:
    options = ["--format", form, "--layers", "text.mu", "-o", str(tmp_path / "out")]
    assert run(["export", str(hostile), *options]) == 0
    for file in written(tmp_path / "out"):
        check(file)
    if form == "conductances":
        assert tomllib.loads((tmp_path / "out/chip.toml").read_text("utf-8"))["bundle"] == FILE


def test_a_sweep_of_files_of_such_names_shows_them(small_trunk: DemoFiles, tmp_path: Path) -> None:
    files = {
        key: shutil.copy(getattr(small_trunk, key), tmp_path / f"{key} {FILE}{suffix}")
        for key, suffix in (("projectors", ".pth"), ("calibration", ".npz"), ("eval", ".npz"))
    }
    api.sweep(
        files["projectors"],
        small_trunk.poly,
        calibration=files["calibration"],
        data=files["eval"],
        target="ideal",
        grid={"weight_bits": [4]},
        output=tmp_path / "out",
    )
    found = sorted(written(tmp_path / "out"))
    assert {"pareto.html", "sweep.json"} <= {one.name for one in found}
    for file in found:
        check(file)
