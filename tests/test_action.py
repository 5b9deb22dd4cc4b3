"""The composite action: its steps run by their shell in a clean folder, as a build server does.

Only what comes from elsewhere is left out: the upload of the artifact, and the comment itself, for
which a stand-in of `gh` keeps what it would have been told.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import cimtool
from cimtool import api
from cimtool.demo.data import DemoFiles

ROOT = Path(__file__).resolve().parents[1]
PLACE = Path(".github", "actions", "verify")
ACTION = yaml.safe_load((ROOT / PLACE / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
INSTALL = STEPS[0]
(COMMENT,) = (one for one in STEPS if one["name"].startswith("Comment"))
GH = "pr\ncomment\n7\n--repo\nsomebody/something\n--body-file\n-\n"
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")


@dataclass
class Runner:
    """A build server's machine: folders of its own, and an environment with nothing else in it."""

    folder: Path
    action: Path
    context: dict[str, str] = field(default_factory=dict)

    def run(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the steps `Install cimtool` and `Verify`; the last one that ran."""
        defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        self.context = {f"inputs.{k}": v for k, v in (defaults | inputs).items()}
        for step in STEPS[:2]:
            done = self.step(step)
            if done.returncode:
                break
        for line in (self.folder / "output").read_text().splitlines():
            name, _, value = line.partition("=")
            self.context[f"steps.verify.outputs.{name}"] = value
        return done

    def step(self, step: Mapping[str, Any], **more: str) -> subprocess.CompletedProcess[str]:
        """Run one step as its `shell: bash` does."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        for name in ("output", "summary"):
            (self.folder / name).write_text("")
        environment = {
            "HOME": str(home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "RUNNER_TEMP": str(self.action.parents[3] / "temp"),
            "GITHUB_ACTION_PATH": str(self.action),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_REPOSITORY": "somebody/something",
            **OFFLINE,
            "PYTHONPATH": SITE if step is INSTALL else f"{ROOT}{os.pathsep}{SITE}",
            **{name: self.filled(text) for name, text in step["env"].items()},
            **more,
        }
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            shell, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip

    def filled(self, text: str) -> str:
        """A value of the action's YAML with its expressions replaced."""
        return EXPRESSION.sub(lambda found: self.context.get(found[1], ""), text)

    @property
    def report(self) -> Path:
        return Path(self.context["steps.verify.outputs.report"])


SITE = str(Path(yaml.__file__).parents[1])
# Without a network: pip builds with what is installed here, and the environment sees it. Verifying
# sees this checkout before its own copy, whose kernels would be compiled again for half a minute.
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the wrong way round: no isolation
    "PIP_NO_COMPILE": "0",  # and so here: what is installed is hardly run
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The action's folder in a copy of what the repository installs."""
    root = tmp_path_factory.mktemp("checkout")
    no_caches = shutil.ignore_patterns("__pycache__")
    for name in ("cimtool", "targets", ".github"):
        shutil.copytree(ROOT / name, root / name, ignore=no_caches)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    (root / "temp").mkdir()
    yield root / PLACE
    shutil.rmtree(root)


@pytest.fixture
def runner(action: Path, tmp_path: Path) -> Runner:
    return Runner(tmp_path, action)


@pytest.fixture(scope="module")
def bundles(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The same model with 8 and 3 bits a weight."""
    folder = tmp_path_factory.mktemp("bundles")
    files = (small_trunk.projectors, small_trunk.poly)
    for bits in (8, 3):
        api.compile(
            *files, calibration=small_trunk.calibration, target="ideal", output=folder / f"b{bits}",
            weight_bits=bits,
        )  # fmt: skip
    return {bits: str(folder / f"b{bits}") for bits in (8, 3)}


def given(files: DemoFiles, bundle: str, **more: str) -> dict[str, str]:
    return {"bundle": bundle, "data": str(files.eval), "python": sys.executable, **more}


@pytest.mark.thorough("starts many whole processes")
def test_a_push_a_pass_and_a_failure(
    runner: Runner, small_trunk: DemoFiles, bundles: dict[int, str]
) -> None:
    first = runner.run(**given(small_trunk, bundles[8]))
    assert first.returncode == 0, first.stderr
    baseline = str(runner.report / "report.json")
    environment = runner.action.parents[3] / "temp/cimtool-environment"
    where = "import cimtool; print(cimtool.__version__, cimtool.__file__)"
    said = subprocess.run(
        [environment / "bin/python", "-c", where], cwd=runner.folder,
        env={"PYTHONPATH": SITE}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    version, file = said.stdout.split()
    assert version == cimtool.__version__
    assert Path(file).is_relative_to(environment)

    limits = "logit_rmse=1000\n\nr1_loss=1\n"
    more = {"baseline": baseline, "tolerance": "r1_loss=0.01", "max-drift": limits}
    same = runner.run(**given(small_trunk, bundles[8], **more))
    assert (same.returncode, same.stderr) == (0, "")
    assert runner.context["steps.verify.outputs.status"] == "0"
    assert "all checks hold" in (runner.folder / "summary").read_text()
    cases = [case.get("name", "") for case in ElementTree.parse(runner.report / "junit.xml").iter()]
    assert {"r1_loss at most 1", "R@1 text to video, worse by at most 0.01"} <= set(cases)

    worse = runner.run(**given(small_trunk, bundles[3], baseline=baseline))
    assert worse.returncode == 1
    assert worse.stderr.startswith("cimtool: error: ")
    assert runner.context["steps.verify.outputs.status"] == "1"
    summary = (runner.folder / "summary").read_text()
    assert summary == (runner.report / "report.md").read_text()
    assert "WORSE" in summary
    kept = {"errors.txt", "junit.xml", "report.html", "report.json", "report.md"}
    assert {file.name for file in runner.report.iterdir()} == kept


@pytest.mark.thorough("installs and compiles as the action does")
def test_a_mistake_is_the_summary(
    runner: Runner, small_trunk: DemoFiles, bundles: dict[int, str]
) -> None:
    done = runner.run(**given(small_trunk, bundles[8], baseline="/no/such/report.json"))
    assert done.returncode == 2
    sentence = "cimtool: error: /no/such/report.json: there is no such file\n"
    assert done.stderr == sentence
    assert (runner.folder / "summary").read_text() == f"    {sentence}"
    assert runner.context["steps.verify.outputs.status"] == "2"


@pytest.mark.thorough("installs and compiles as the action does")
def test_inputs_are_never_code(runner: Runner, small_trunk: DemoFiles) -> None:
    hostile = "--help\"; touch owned; $(touch owned) `touch owned` ' #"
    names = ("bundle", "data", "baseline", "tolerance", "max-drift")
    done = runner.run(**given(small_trunk, "bundle") | dict.fromkeys(names, hostile))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cimtool: error: ")
    assert not list(runner.folder.rglob("owned"))


def test_no_expression_is_part_of_a_command() -> None:
    for step in STEPS:
        assert not EXPRESSION.search(step.get("run", "")), step["name"]
    names = {f"inputs.{name}" for name in ACTION["inputs"]}
    used = set(re.findall(r"inputs\.[a-z-]+", (ROOT / PLACE / "action.yml").read_text()))
    assert used == names


@pytest.fixture
def told(runner: Runner) -> Path:
    """The file of all that a stand-in of `gh` is told in the step that comments."""
    stand_in = runner.folder / "tools" / "gh"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$KEPT"\ncat >>"$KEPT"\n')
    stand_in.chmod(0o755)
    return runner.folder / "told"


def comment(runner: Runner, told: Path, report: str) -> subprocess.CompletedProcess[str]:
    """Run the step that comments after a run with this folder of its report."""
    runner.context = {
        "github.event.pull_request.number": "7",
        "steps.verify.outputs.report": report,
    }
    path = f"{runner.folder / 'tools'}{os.pathsep}/usr/bin:/bin"
    return runner.step(COMMENT, PATH=path, KEPT=str(told))


def test_the_comment_is_the_report(runner: Runner, told: Path) -> None:
    (runner.folder / "report.md").write_text("# worse\n" * 20_000)
    done = comment(runner, told, str(runner.folder))
    assert done.returncode == 0, done.stderr
    text = told.read_text()
    assert text.startswith(f"{GH}# worse\n")
    assert 50_000 < len(text) < 65_536


def test_a_failed_installation_is_no_comment(runner: Runner, told: Path) -> None:
    runner.context = {"inputs.python": "/no/such/python"}
    assert runner.step(INSTALL, RUNNER_TEMP=str(runner.folder)).returncode != 0
    assert "steps.verify.outputs.report != ''" in COMMENT["if"]
    done = comment(runner, told, "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "cimtool verify did not run: nothing to comment\n"
    assert not told.exists()


def test_a_run_that_was_killed_is_no_empty_comment(runner: Runner, told: Path) -> None:
    (runner.folder / "errors.txt").write_text("")
    done = comment(runner, told, str(runner.folder))
    assert done.returncode == 0, done.stderr
    assert told.read_text() == f"{GH}cimtool verify was ended before it wrote a report.\n"
