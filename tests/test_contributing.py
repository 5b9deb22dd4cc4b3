"""The table of CONTRIBUTING: adding one of a kind touches what it says, and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import pytest
from click.testing import CliRunner

from cimtool.base import plugins
from cimtool.base.named import Named
from cimtool.cli import COMMANDS, cli, group
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.target import load_target, target_names

ROOT = Path(__file__).resolve().parents[1]
ROWS = re.findall(
    r"^\| (.+?) \| .+? \| (.*?) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
)[1:]


@pytest.mark.parametrize(("folders", "touched"), ROWS)
def test_the_table_of_folders_names_what_there_is(folders: str, touched: str) -> None:
    above = ROOT
    for name in re.findall(r"`([^`]+)`", folders):
        above = ROOT if name.startswith(("cimtool/", "targets")) else ROOT / "cimtool"
        assert (above / name).exists(), name
    first = ROOT / re.findall(r"`([^`]+)`", folders)[0]
    named = re.findall(r"`([^`]+)`", touched)
    read = [first / "__init__.py"]
    for name in named:
        if "/" in name or "." in name:
            above = (first, first.parent, ROOT / "cimtool")
            places = [folder / name for folder in above if (folder / name).exists()]
            assert places, name
            read += places
    texts = [file.read_text("utf-8") for file in read if file.is_file()]
    for name in named:
        if name.isidentifier():
            assert any(re.search(rf"\b{name}\b", text) for text in texts), name


def test_the_table_says_what_each_kind_of_plug_in_is_within_cimtool() -> None:
    touched = " ".join(cell for _, cell in ROWS)
    kinds = (
        *("WeightCode", "InputCode", "Converter", "mechanism of noise", "head", "layout"),
        *("operation", "exporter", "target", "backend", "key", "command", "pass", "figure"),
        *("metric", "section of the report"),
    )
    assert [kind for kind in kinds if not re.search(rf"\ban? `?{kind}\b", touched)] == []


# A file of one class for each folder of which the table says that one file in it is enough.
FILES = {
    "cimtool/ir/heads/": "from cimtool.ir.heads.points import Cosine as Base",
    "cimtool/hardware/noise/mechanisms/": (
        "from cimtool.hardware.noise.mechanisms.devices import Programming as Base"
    ),
    "cimtool/loading/layouts/": "from cimtool.loading.layouts.trunk import Trunk as Base",
    "cimtool/bundle/exporters/": "from cimtool.bundle.exporters.onnx import Onnx as Base",
    "cimtool/training/models/": "from cimtool.training.models.trunk import TrunkModel as Base",
    "cimtool/training/losses/": "from cimtool.training.losses.info_nce import ClipLoss as Base",
}
CLASSES = {
    "weight_codes.py": ("Offset", "encoding"),
    "input_codes.py": ("TwosComplementInput", "input_encoding"),
    "converters.py": ("Formula", "adc_kind"),
}
CLASS = "\n\nclass Added({}, name='added'):\n    pass\n"


@pytest.fixture
def family() -> Iterator[Callable[[type[Named]], dict[str, type[Named]]]]:
    """The classes of a family by name, without those that the test adds once it is over."""
    before: dict[type[Named], dict[str, type[Named]]] = {}

    def known(base: type[Named]) -> dict[str, type[Named]]:
        before.setdefault(base, dict(base.family))
        return base.family

    yield known
    for base, classes in before.items():
        for name in set(base.family) - set(classes):
            del base.family[name]


def add_file(package: ModuleType, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a package anew as if a file lay in its folder."""
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(file.parent)])
    monkeypatch.setitem(sys.modules, f"{package.__name__}.{file.stem}", None)
    del sys.modules[f"{package.__name__}.{file.stem}"]
    importlib.invalidate_caches()
    exec(Path(str(package.__file__)).read_text("utf-8"), dict(vars(package)))


def test_the_table_has_all_folders_of_one_file_each() -> None:
    folders = {
        re.findall(r"`([^`]+)`", folder)[0] + name
        for folder, touched in ROWS
        for name in re.findall(r"one file in `([^`]+/)`", touched)
    }
    assert folders == set(FILES)


@pytest.mark.parametrize("folder", FILES)
def test_one_file_is_enough(
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: Callable[[type[Named]], dict[str, type[Named]]],
) -> None:
    package = importlib.import_module(folder.strip("/").replace("/", "."))
    base = next(
        one for one in vars(package).values() if isinstance(one, type) and Named in one.__bases__
    )
    assert "added" not in family(base)
    (tmp_path / "addition.py").write_text(FILES[folder] + CLASS.format("Base"))
    add_file(package, tmp_path / "addition.py", monkeypatch)
    assert base.named("added", "name").__module__ == f"{package.__name__}.addition"
    if "noise" in folder:
        noise = Noise.model_validate({"source": "a test", "g_max": 1.0, "added": {"sigma": (0.1,)}})
        assert [one.name for one in noise.mechanisms] == ["added"]


@pytest.mark.parametrize("file", CLASSES)
def test_one_class_is_enough(
    file: str, family: Callable[[type[Named]], dict[str, type[Named]]]
) -> None:
    row = next(touched for folder, touched in ROWS if "`cimtool/hardware/`" in folder)
    assert f"`{file}`" in row
    module = importlib.import_module(f"cimtool.hardware.{file.removesuffix('.py')}")
    name, key = CLASSES[file]
    family(next(one for one in getattr(module, name).__mro__ if Named in one.__bases__))
    exec(CLASS.format(name), vars(module))
    settings = Configuration.of("isaac-rram-128", None, {key: "added"}).settings
    assert getattr(settings, key) == "added"
    del module.Added


def test_a_command_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "added" / "commands" / "addition.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        '"""Add one."""\n\nimport click\nfrom cimtool.cli.group import Command\n'
        "from cimtool.report.document import Document\n\n"
        "@click.command(cls=Command)\n@click.pass_obj\n"
        "def command(out):\n    out.result(Document('it is added'))\n"
    )
    monkeypatch.setattr(group, "PACKAGE", tmp_path)
    (added,) = group.command_files(()).items()
    monkeypatch.syspath_prepend(str(tmp_path.parent))
    monkeypatch.setitem(COMMANDS, *added)
    assert isinstance(cli, click.Group)
    assert "Add one." in CliRunner().invoke(cli, ["--help"]).output
    assert CliRunner().invoke(cli, ["addition"]).output == "it is added\n"
    del sys.modules[f"{tmp_path.name}.added.commands.addition"]


METRIC = """ADDED = RankingMetric(
    "added", "added metric", "added", "what it says", share=True, of_hits=lambda hits: 0.25
)
"""
SECTION = '''"""A section that the test adds."""

from cimtool.report.document import Section, Sentence
from cimtool.verification.sections import ComparedFigure, ReportSection


class Added(ReportSection, name="added"):
    figures = (ComparedFigure("texts counted", "", ("texts",)),)

    @classmethod
    def measure(cls, measured):
        return len(measured.data.text)

    @classmethod
    def values(cls, found):
        return {"texts": found}

    @classmethod
    def blocks(cls, found, bundle):
        return (Section("How many texts?", (Sentence(f"{found} of {bundle}"),), "added", 2),)
'''


@pytest.mark.thorough("the whole core anew, with an addition of each kind")
def test_a_metric_is_one_value_and_a_section_two_files_and_costs_may_be_missing(
    tmp_path: Path,
) -> None:
    """In a copy of the package without costs, and without galleries, which are priced by them."""
    package = Path(shutil.copytree(ROOT / "cimtool", tmp_path / "cimtool"))
    shutil.copytree(ROOT / "targets", tmp_path / "targets")
    for room in ("costs", "galleries"):
        shutil.rmtree(package / room)
    measures = package / "reference" / "measures.py"
    known = measures.read_text()
    listed = known.replace("    *RANKS, ", "    *RANKS, ADDED, ")
    assert listed != known
    measures.write_text(listed.replace("RANKINGS: ", f"{METRIC}RANKINGS: ", 1))
    (package / "added").mkdir()
    (package / "added" / "__init__.py").touch()
    (package / "added" / "section.py").write_text(SECTION)
    (package / "added" / "plugin.py").write_text("from cimtool.added.section import Added\n")
    rows = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", text=rows, video=rows)
    bundle, written = ROOT / "exports" / "reference-small@isaac-rram-128", tmp_path / "report"

    def cimtool(*words: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cimtool", *map(str, words)],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=300,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
        return done.stdout

    words = ("verify", bundle, "--data", "rows.npz", "--samples", 2, "--report", written, "-v")
    assert "How many texts? 20 of reference-small" in cimtool(*words, "--max-drift", "added_loss=1")
    found = json.loads((written / "report.json").read_text())
    assert found["sections"] == {"added": {"texts": 20}}
    assert found["rows"][-1]["metrics"]["added_text_to_video"] == 0.25
    assert found["rows"][-1]["intervals"]["added_text_to_video"] == {"low": 0.25, "high": 0.25}
    assert [one["metric"] for one in found["limits"]] == ["added_loss"]
    for file, said in (("report.md", "| t>v added metric |"), ("report.html", "what it says")):
        text = (written / file).read_text()
        assert said in text
        assert "How many texts?" in text
    baseline = Path(shutil.copy(written / "report.json", tmp_path / "earlier.json"))
    told = cimtool(*words, "--baseline", baseline, "--tolerance", "added_loss=0")
    assert all(said in told for said in ("added metric text to video", "texts counted"))
    assert "mean_rank, added, map" in " ".join(cimtool("verify", "--help").split())


def test_a_target_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "targets", tmp_path / "targets")
    text = (tmp_path / "targets" / "ideal.toml").read_text("utf-8")
    (tmp_path / "targets" / "added.toml").write_text(text.replace('"ideal"', '"added"'))
    monkeypatch.setattr(plugins, "targets_folder", lambda: tmp_path / "targets")
    assert set(target_names()) - {file.stem for file in (ROOT / "targets").glob("*.toml")} == {
        "added"
    }
    assert load_target("added").name == "added"


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--anything", 2)])
def test_the_script_of_continuous_integration_takes_no_arguments(
    tmp_path: Path, argument: str, status: int
) -> None:
    """Copied alone, it could run no step."""
    script = tmp_path / ".ci/run"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci/run", script)
    done = subprocess.run(
        ["bash", script, argument], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith("usage: .ci/run\n")
    assert "==" not in done.stdout
