"""A package beside cimtool adds one of each kind, and a broken one beside it breaks nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin"
WALK = ROOT / "tests" / "kits" / "plugin_walk.py"
BROKEN = (
    'cimtool: warning: broken-arrays 2.0: plug-in "broken" (broken) is left out: '
    "ValueError: no such array\n"
)


def install(site: Path, name: str, version: str, points: dict[str, str]) -> None:
    """Write the metadata that an installer leaves of a package with these entry points."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{point} = {module}" for point, module in points.items()]
    (folder / "entry_points.txt").write_text("\n".join(("[cimtool.plugins]", *lines, "")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages: the example, and one that registers a code and breaks."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN / "acme", folder / "acme")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    points = project["entry-points"]["cimtool.plugins"]
    install(folder, project["name"], project["version"], points)
    (folder / "broken.py").write_text(
        "from cimtool.hardware.input_codes import InputCode\n"
        "class Half(InputCode, name='half'): pass\n"
        "raise ValueError('no such array')\n"
    )
    install(folder, "broken-arrays", "2.0", {"broken": "broken"})
    return folder


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, env=environment, timeout=500, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def walked(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("walk")
    done = python(site, str(WALK), str(folder))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "walk.json").read_text("utf-8"))
    return found | {"folder": folder}


@pytest.mark.parametrize(
    "command", ["help", "list", "show", "check", "compile", "simulate", "verify", "cost", "export"]
)
def test_every_command_works_and_names_the_broken_plug_in_once(
    walked: dict[str, Any], command: str
) -> None:
    assert walked[command]["status"] == 0, walked[command]["err"]
    assert walked[command]["err"].count("broken-arrays") == walked[command]["err"].count(BROKEN)
    assert walked[command]["err"].count(BROKEN) == 1


def test_the_help_lists_the_heads_of_plug_ins(walked: dict[str, Any]) -> None:
    assert "--head [cosine|csd|euclidean|pcme-poly|gaussian-kernel]" in walked["help"]["out"]


def test_targets_say_where_they_come_from(walked: dict[str, Any]) -> None:
    rows = {row["name"]: row["origin"] for row in json.loads(walked["list"]["out"])["targets"]}
    assert rows["acme-ternary"] == rows["acme-ladder"] == "acme-arrays 0.1"
    assert set(rows.values()) == {"acme-arrays 0.1", "cimtool"}
    assert json.loads(walked["show"]["out"])["origin"] == "acme-arrays 0.1"


def test_the_ternary_array_agrees_to_the_bit_and_takes_noise(walked: dict[str, Any]) -> None:
    report = json.loads(walked["verify"]["out"])
    compared = {row["implementation"] for row in report["bits"]}
    assert {"ONNX Runtime", "the NumPy reference"} <= compared
    assert {row["differing"] for row in report["bits"]} == {0}
    assert all(row["compared"] > 0 for row in report["bits"])
    assert report["noisy"]


def test_it_has_a_cost_and_the_digits_of_its_cells(walked: dict[str, Any]) -> None:
    cost = json.loads((walked["folder"] / "bundle" / "cost.json").read_text("utf-8"))
    assert "acme-ternary" in json.dumps(cost)
    lines = (walked["folder"] / "cells" / "cells.txt").read_text("utf-8").splitlines()
    assert {word for line in lines for word in line.split()[4:]} == {"-1", "0", "1"}


def test_all_walkers_of_random_layers_agree(walked: dict[str, Any]) -> None:
    assert all(moved > 10 for moved in walked["layers"].values()), "converters that round"


def test_a_wrong_name_or_value_is_one_sentence_that_knows_plug_ins(walked: dict[str, Any]) -> None:
    def sentence(command: str) -> str:
        assert walked[command]["status"] == 2
        found: str = walked[command]["err"].replace(BROKEN, "")
        assert len(found.splitlines()) == 1
        return found

    assert '"ternary"' in sentence("misspelt")
    assert "half" not in sentence("misspelt")
    assert "adc_bits = 8: a logarithmic converter has 2 to 4" in sentence("refused")
    assert 'did you mean "acme-cells"?' in sentence("unknown format")


def test_what_names_no_plug_in_imports_none(site: Path) -> None:
    done = python(site, "-m", "cimtool", "targets", "show", "ideal")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("from cimtool\n")


@pytest.mark.parametrize(
    ("file", "taken"),
    [
        ("isaac-rram-128.toml", 'target "isaac-rram-128" has the name of one of cimtool'),
        ("noise/neurram.toml", 'noise model "neurram" has the name of one of cimtool'),
        ("acme-ternary.toml", 'target "acme-ternary" has the name of one of acme-arrays 0.1'),
    ],
)
def test_a_name_that_is_taken_leaves_the_plug_in_out(
    site: Path, tmp_path: Path, file: str, taken: str
) -> None:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    targets = tmp_path / "rival-targets"
    for name in (file, "rival.toml"):
        (targets / name).parent.mkdir(parents=True, exist_ok=True)
        (targets / name).write_text('base = "ideal"\nname = "rival"\ntitle = "A rival"\n')
    (tmp_path / "rival.py").write_text(f"TARGETS = {str(targets)!r}\n")
    install(tmp_path, "rival-arrays", "1.0", {"rival": "rival"})
    done = python(tmp_path, "-m", "cimtool", "targets", "list")
    assert done.returncode == 0, done.stderr
    assert done.stderr == BROKEN + (
        'cimtool: warning: rival-arrays 1.0: plug-in "rival" (rival) is left out: '
        f"ValueError: {taken}\n"
    )
    origins = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "rival" not in origins
    assert "acme-arrays 0.1" in origins["acme-ternary"]


ROWS = re.findall(
    r"^\| (.+?) \| .+? \| (.*?) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
)[1:]


@pytest.mark.parametrize(("folders", "touched"), ROWS)
def test_the_table_of_folders_names_what_there_is(folders: str, touched: str) -> None:
    above = ROOT
    for name in re.findall(r"`([^`]+)`", folders):
        above = ROOT if name.startswith(("cimtool/", "targets")) else ROOT / "cimtool"
        assert (above / name).exists(), name
    first = re.findall(r"`([^`]+)`", folders)[0]
    for name in re.findall(r"`([^`]+)`", touched):
        places = (ROOT / first / name, ROOT / "cimtool" / name)
        if "/" in name or "." in name:
            assert any(place.exists() for place in places), name
        else:
            assert name in (ROOT / first / "__init__.py").read_text("utf-8"), name


def test_the_page_quotes_the_example() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    source = "\n".join(file.read_text("utf-8") for file in (PLUGIN / "acme").glob("*.py"))
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line for line in lines if line not in source.splitlines()] == []
