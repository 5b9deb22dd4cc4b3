"""A package beside cimtool adds one of each kind, and a broken one beside it breaks nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_tools import differing

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin"
WALK = ROOT / "tests" / "kits" / "plugin_walk.py"
BROKEN = (
    'cimtool: warning: broken-arrays 2.0: plug-in "broken" (broken) is left out: '
    "ValueError: no such array\n"
    'cimtool: warning: gone-arrays 3.0: plug-in "gone" (gone) is left out: '
    "SystemExit: no licence\n"
)
HALFWAY = """
from acme.head import LaplacianKernel
from acme.operation import L1Distance
from cimtool.ir.op import Level, Op
from cimtool.ir.program import Builder

class Far(Op, name="far", levels=Level.TRAINED.to(Level.DIE)):
    infer, run = L1Distance.infer, L1Distance.run

class Halfway(LaplacianKernel, name="halfway"):
    def score(self, inputs):
        b = Builder("score", inputs)
        return b.graph({"logit": b.add("logit", Far(), "text.mu", "video.mu")})
"""


def add_package(site: Path, module: str, version: str, source: str) -> None:
    """Write a package of one module, with the metadata that an installer leaves of it."""
    (site / f"{module}.py").write_text(source)
    name = f"{module}-arrays"
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(f"[cimtool.plugins]\n{module} = {module}\n")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip installed the example into, from a wheel that it built."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir")
    done = python(folder, "-m", "pip", "install", *options, "--target", str(folder), str(PLUGIN))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def site(installed: Path) -> Path:
    """The example beside two packages that cannot be imported, and one that lacks rules."""
    half = (
        "from cimtool.hardware.input_codes import InputCode\nclass Half(InputCode, name='half'): "
    )
    add_package(installed, "broken", "2.0", f"{half}pass\nraise ValueError('no such array')\n")
    add_package(installed, "gone", "3.0", "import sys\nsys.exit('no licence')\n")
    add_package(installed, "halfway", "1.0", HALFWAY)
    return installed


def table_lines(text: str) -> list[str]:
    """The lines of the only table."""
    return [line for line in text.splitlines() if line.startswith(" ")]


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, env=environment, timeout=500, check=False,
    )  # fmt: skip


SLOW = pytest.mark.thorough("every command in a process that loads torch takes ten seconds")
"""The mark of tests of what `walked` holds; in the first tier plug-ins are listed and checked."""


@pytest.fixture(scope="session")
def walked(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("walk")
    done = python(site, str(WALK), str(folder))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "walk.json").read_text("utf-8"))
    return found | {"folder": folder}


@SLOW
@pytest.mark.parametrize(
    "command",
    [
        *("help", "list", "show", "check", "compile", "simulate", "torch", "verify", "cost"),
        *("evaluate", "export", "handoff", "train"),
    ],
)
def test_every_command_works_and_names_each_broken_plug_in_once(
    walked: dict[str, Any], command: str
) -> None:
    said = walked[command]["err"]
    assert walked[command]["status"] == 0, said
    assert said.count(BROKEN) == said.count("broken-arrays") == said.count("gone-arrays") == 1


@SLOW
def test_the_help_lists_the_heads_of_plug_ins(walked: dict[str, Any]) -> None:
    said = "".join(walked["help"]["out"].split())
    heads = "cosine|csd|csd-ranking|euclidean|halfway|inclusion|laplacian-kernel|maxsim|pcme-poly"
    assert f"--head[{heads}|probcosine]" in said


@SLOW
def test_targets_say_where_they_come_from(walked: dict[str, Any]) -> None:
    rows = {row["name"]: row["origin"] for row in json.loads(walked["list"]["out"])["targets"]}
    assert rows["acme-ternary"] == rows["acme-ladder"] == "acme-arrays 0.1"
    assert set(rows.values()) == {"acme-arrays 0.1", "cimtool"}
    assert json.loads(walked["show"]["out"])["origin"] == "acme-arrays 0.1"


@SLOW
def test_the_ternary_array_agrees_to_the_bit_and_takes_noise(walked: dict[str, Any]) -> None:
    report = json.loads(walked["verify"]["out"])
    compared = {row["implementation"] for row in report["bits"]}
    assert {"ONNX Runtime", "the NumPy reference"} <= compared
    assert {row["differing"] for row in report["bits"]} == {0}
    assert all(row["compared"] > 0 for row in report["bits"])
    assert report["noisy"]


@SLOW
def test_the_bundle_names_the_plug_in_and_says_where_it_is_missing(
    walked: dict[str, Any], tmp_path: Path
) -> None:
    bundle = walked["folder"] / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    assert manifest["plugins"] == ["acme-arrays 0.1"]
    done = python(tmp_path, "-m", "cimtool", "cost", str(bundle))
    assert (done.returncode, done.stderr) == (
        2,
        f"cimtool: error: {bundle}/manifest.json: needs the plug-in acme-arrays 0.1, which is not "
        "installed; install it\n",
    )


@SLOW
def test_its_operation_stands_in_the_compiled_score_and_runs_in_torch(
    walked: dict[str, Any],
) -> None:
    program = json.loads((walked["folder"] / "bundle" / "program.json").read_text("utf-8"))
    assert "l1_distance" in json.dumps(program)
    cpu, torch = (
        np.load(walked["folder"] / f"{name}.npz")["scores"] for name in ("simulate", "torch")
    )
    np.testing.assert_array_equal(cpu, torch)


@SLOW
def test_every_backend_has_the_operations_of_the_example(walked: dict[str, Any]) -> None:
    missing = walked["missing rules"]
    assert missing["fold"] == missing["CPU kernels"] == []
    assert {name for names in missing.values() for name in names} == {"far"}
    assert missing["ONNX"] == missing["torch"] == missing["straight-through training"] == ["far"]
    assert missing["the C model"] == ["far"]


@SLOW
def test_its_operation_and_its_arrays_are_compiled_in_c(walked: dict[str, Any]) -> None:
    handoff = walked["folder"] / "handoff"
    assert "cim_size(" in (handoff / "c" / "model.c").read_text("utf-8")
    compared, wrong = differing(handoff)
    assert compared > 2_000
    assert wrong == 0


@SLOW
def test_it_has_a_cost_and_the_digits_of_its_cells(walked: dict[str, Any]) -> None:
    cost = json.loads((walked["folder"] / "bundle" / "cost.json").read_text("utf-8"))
    assert "acme-ternary" in json.dumps(cost)
    lines = (walked["folder"] / "cells" / "cells.txt").read_text("utf-8").splitlines()
    assert {word for line in lines for word in line.split()[4:]} == {"-1", "0", "1"}


@SLOW
def test_all_walkers_of_random_layers_agree(walked: dict[str, Any]) -> None:
    assert all(moved > 10 for moved in walked["layers"].values()), "converters that round"


@SLOW
def test_a_wrong_name_or_value_is_one_sentence_that_knows_plug_ins(walked: dict[str, Any]) -> None:
    def sentence(command: str) -> str:
        assert walked[command]["status"] == 2
        found: str = walked[command]["err"].replace(BROKEN, "")
        assert len(found.splitlines()) == 1
        return found

    assert '"non-adjacent"' in sentence("misspelt")
    assert "half" not in sentence("misspelt")
    assert "adc_bits = 8: a logarithmic converter has 2 to 4" in sentence("refused")
    assert 'did you mean "acme-cells"?' in sentence("unknown format")
    assert sentence("in memory") == (
        'cimtool: error: score_mapping = in-memory: head "laplacian-kernel" computes l1_distance '
        'of a query and an item, which no array can; expected "digital"\n'
    )
    assert sentence("halfway") == (
        'cimtool: error: halfway-arrays 1.0: plug-in "halfway" (halfway): lower has no rule for '
        "operation far at level float; expected one\n"
    )


def test_what_names_no_plug_in_imports_none(site: Path) -> None:
    done = python(site, "-m", "cimtool", "targets", "show", "ideal")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("from cimtool\n")


TAKEN = {
    "isaac-rram-128.toml": 'target "isaac-rram-128" has the name of one of cimtool',
    "noise/neurram.toml": 'noise model "neurram" has the name of one of cimtool',
    "acme-ternary.toml": 'target "acme-ternary" has the name of one of acme-arrays 0.1',
}


@pytest.mark.thorough("a process of its own")
def test_a_name_that_is_taken_leaves_the_plug_in_out(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    warnings = []
    for number, (file, taken) in enumerate(TAKEN.items()):
        rival = f"rival{number}"
        targets = tmp_path / f"{rival}-targets"
        for name in (file, f"{rival}.toml"):
            (targets / name).parent.mkdir(parents=True, exist_ok=True)
            (targets / name).write_text(f'base = "ideal"\nname = "{rival}"\ntitle = "A rival"\n')
        add_package(tmp_path, rival, "1.0", f"TARGETS = {str(targets)!r}\n")
        warnings.append(
            f'cimtool: warning: {rival}-arrays 1.0: plug-in "{rival}" ({rival}) is left out: '
            f"ValueError: {taken}\n"
        )
    done = python(tmp_path, "-m", "cimtool", "targets", "list", "--verbose")
    assert done.returncode == 0, done.stderr
    assert done.stderr == BROKEN + "".join(warnings)
    origins = {line.split()[0]: line for line in table_lines(done.stdout)}
    assert not [name for name in origins if "rival" in name]
    assert "acme-arrays 0.1" in origins["acme-ternary"]


SWEPT = """
from cimtool.experiments.points import points, read_grid
grid = {"target.noise.retention.loss": [0.1, 0.2], "target.adc.parameters.trim": [3]}
for point in points(read_grid(grid), "acme-ladder", None):
    print(point.build.target.noise.mechanisms[0].loss, point.build.settings.converter.trim)
"""


@pytest.mark.thorough("a sweep in a process of its own")
def test_keys_of_plug_ins_are_swept_in_a_fresh_process(site: Path) -> None:
    done = python(site, "-c", SWEPT)
    assert (done.returncode, done.stdout) == (0, "0.1 3\n0.2 3\n"), done.stderr


FAULTY = {
    "lawless": """
from cimtool.hardware.converters import Converter
class Lawless(Converter, name="lawless"):
    @classmethod
    def of(cls, bits, keys): return cls(bits)
""",
    "folderless": "TARGETS = '/nonexistent/folder'",
    "unsure": """
from pathlib import Path
from cimtool.loading.layout import Layout
TARGETS = Path(__file__).parent / "unsure-targets"
class Unsure(Layout, name="unsure"):
    description, layers = "none", ()
    tower = None
    @classmethod
    def recognises(cls, weights): raise KeyError("fc9")
""",
}
FAULTS = [
    'folderless-arrays 1.0: plug-in "folderless" (folderless) is left out: '
    "ValueError: TARGETS = /nonexistent/folder: there is no such folder",
    'lawless-arrays 1.0: plug-in "lawless" (lawless) is left out: '
    "TypeError: class Lawless lacks law",
]
LOADED = """
from cimtool.base.plugins import broken_plugins, load_plugins
from cimtool.hardware.input_codes import InputCode
from cimtool.loading.layouts import recognise
from cimtool.loading.weights import Weights
load_plugins()
print(*[name for name in InputCode.family if name.startswith("shared")])
own = Weights("a.pt", "text_proj", dict.fromkeys(("attn.in_proj_weight", "ln.weight")), {})
print(recognise(own, own).name)
print(*broken_plugins(), sep="\\n")
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with a fault each; one has two entry points that share a module."""
    folder = tmp_path_factory.mktemp("faulty")
    for name, source in FAULTY.items():
        add_package(folder, name, "1.0", source)
    (folder / "unsure-targets").mkdir()
    target = 'base = "ideal"\nname = "unsure"\ntitle = "A wrong key"\nrows = 1\n'
    (folder / "unsure-targets" / "unsure.toml").write_text(target)
    add_package(folder, "duo", "1.0", "")
    (folder / "duo.py").unlink()
    (folder / "duo").mkdir()
    code = "from cimtool.hardware.input_codes import OffsetInput\nclass Shared(OffsetInput, name="
    for name, source in {
        "__init__": "",
        "cells": f"{code}'shared'): pass\n",
        "inputs": f"{code}'shared-too'): pass\n",
        "a": "import duo.inputs",
        "b": "from duo import cells\nraise ValueError('no such array')",
        "c": "from duo import cells",
    }.items():
        (folder / "duo" / f"{name}.py").write_text(source)
    points = "".join(f"duo-{name} = duo.{name}\n" for name in "abc")
    metadata = folder / "duo_arrays-1.0.dist-info" / "entry_points.txt"
    metadata.write_text(f"[cimtool.plugins]\n{points}")
    return folder


@pytest.mark.thorough("one command stands for the other", quick=("list",))
@pytest.mark.parametrize("command", ["list", "check"])
def test_faults_of_plug_ins_are_named_and_all_other_targets_are_there(
    faulty: Path, command: str
) -> None:
    done = python(faulty, "-m", "cimtool", "targets", command, "-v")
    said = done.stderr.splitlines()
    assert done.returncode == 0, said
    assert [line for line in FAULTS if f"cimtool: warning: {line}" not in said] == []
    assert said[-1].startswith(
        'cimtool: warning: unsure-arrays 1.0: target "unsure" is left out: '
        f"{faulty / 'unsure-targets' / 'unsure.toml'}: unknown key rows = 1; expected name, title, "
    )
    shipped = [*(ROOT / "targets").glob("*.toml"), *(ROOT / "targets" / "cam").glob("*.toml")]
    own = {file.stem for file in shipped}
    if command == "list":
        named = table_lines(done.stdout)[2:]
    else:
        named = [line for line in done.stdout.splitlines()[1:] if line[0] != " "]
    assert own == {line.split()[0].rstrip(":") for line in named}


@pytest.mark.thorough("a process of its own")
def test_a_faulty_target_that_is_asked_for_is_an_error(faulty: Path) -> None:
    done = python(faulty, "-m", "cimtool", "targets", "check", "unsure")
    assert done.returncode == 2
    assert "cimtool: error: " in done.stderr


def test_entry_points_share_a_module_and_own_checkpoints_load_beside_a_faulty_layout(
    faulty: Path,
) -> None:
    done = python(faulty, "-c", LOADED)
    assert done.returncode == 0, done.stderr
    codes, layout, *said = done.stdout.splitlines()
    assert (codes, layout) == ("shared-too shared", "cross-attention")
    assert said[0].startswith('duo-arrays 1.0: plug-in "duo-b" (duo.b) is left out: ')
    assert said[-1] == "unsure-arrays 1.0: layout \"unsure\" is left out: KeyError: 'fc9'"


def test_the_page_quotes_the_example() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    source = "\n".join(file.read_text("utf-8") for file in (PLUGIN / "acme").glob("*.py"))
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line for line in lines if line not in source.splitlines()] == []
