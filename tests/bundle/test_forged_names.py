"""Names of a bundle with renewed checksums that would be code, markup or paths: refused at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import Change, changed

from cimtool.bundle.bundle import MANIFEST, PROGRAM, STAGES
from cimtool.bundle.exporters import Exporter
from cimtool.cli import run
from cimtool.demo.data import DemoFiles

CODE = "x */ int y(void) __attribute__((constructor)); /*"
OUTSIDE = "../../../x"
RULE = "expected a name of at most 100 letters (a to z), digits, dots, dashes and underscores, "


def renamed(before: str, after: str, graph: str = "text") -> Change:
    """The change that gives a value of a graph another name, wherever that is read."""

    def change(program: dict[str, Any]) -> None:
        values = program[graph]
        for node in values["nodes"]:
            node["name"] = after if node["name"] == before else node["name"]
            node["inputs"] = [after if one == before else one for one in node["inputs"]]
        values["outputs"] = {
            name: after if one == before else one for name, one in values["outputs"].items()
        }

    return change


def input_renamed(program: dict[str, Any]) -> None:
    """Give a projector's input another name."""
    renamed("x", "a b")(program)
    program["text"]["inputs"] = {"a b": program["text"]["inputs"]["x"]}


def output_renamed(program: dict[str, Any]) -> None:
    """Give a feature another name in the projector, and where the score reads it."""
    text = json.dumps(program["score"]).replace('"text.ed_self"', f'"text.{OUTSIDE}"')
    program["score"] = json.loads(text)
    program["text"]["outputs"][OUTSIDE] = program["text"]["outputs"].pop("ed_self")


NAMES: dict[str, tuple[str, Change, str]] = {
    "code as the model": (
        MANIFEST,
        lambda m: m["model"].update(name=CODE),
        'manifest.json: model.name is "x */ int y(void) __attribute__((constructor)); /*"; ',
    ),
    "markup as the model": (
        MANIFEST,
        lambda m: m["model"].update(name="<script>alert(1)</script>"),
        'model.name is "<script>alert(1)</script>"; ',
    ),
    "escapes as the model": (
        MANIFEST,
        lambda m: m["model"].update(name="\x1b[2J"),
        r'model.name is "\u001b[2J"; ',
    ),
    "a name too long": (
        MANIFEST,
        lambda m: m["model"].update(name="x" * 101),
        f'model.name is "{"x" * 56}...; ',
    ),
    "modalities": (
        MANIFEST,
        lambda m: m["model"].update(modalities=["text", CODE]),
        f'model.modalities[1] is "{CODE}"; ',
    ),
    "words for modalities": (
        MANIFEST,
        lambda m: m["model"].update(called=["-o", "video"]),
        'model.called[0] is "-o"; ',
    ),
    "the target": (
        MANIFEST,
        lambda m: m["target"].update(name=OUTSIDE),
        'target.name is "../../../x"; ',
    ),
    "a layer": (
        PROGRAM,
        renamed("fc1", OUTSIDE),
        'text.nodes[1].name is "../../../x"; ',
    ),
    "a node": (
        PROGRAM,
        renamed("mu_squared", 'q", 1, 0, 0}, {"z'),
        r'.name is "q\", 1, 0, 0}, {\"z"; ',
    ),
    "a node that is hidden": (PROGRAM, renamed("mu_squared", ".x"), '.name is ".x"; '),
    "an input": (PROGRAM, input_renamed, 'a name in text.inputs is "a b"; '),
    "an output": (PROGRAM, output_renamed, 'a name in text.outputs is "../../../x"; '),
}


@pytest.fixture
def copied(small_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle, tmp_path / "deep/er/still/bundle"))


def files_of(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*")}


@pytest.mark.parametrize("name", NAMES)
def test_every_command_refuses_it_and_writes_nothing(
    name: str, copied: Path, small_trunk: DemoFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    (file, change, said), place = NAMES[name], copied.parents[3]
    changed(copied, file, change, signed=True)
    np.savez(place / "rows.npz", **np.load(small_trunk.eval))
    before, out = files_of(place), copied.parent / "out"
    rows = str(place / "rows.npz")
    commands = [
        ["inspect"],
        ["simulate", "--inputs", rows, "-o", f"{out}.npz"],
        ["verify", "--data", rows, "--report", str(out)],
        ["cost", "-o", str(out)],
        *(["export", "--format", one, "-o", str(out)] for one in Exporter.family),
    ]
    for command, *options in commands:
        assert run([command, str(copied), *options]) == 2, command
        (sentence,) = capsys.readouterr().err.splitlines()
        assert sentence.startswith(f"cimtool: error: {copied}/"), command
        assert said in sentence, command
        assert RULE in sentence, command
    assert files_of(place) == before


def test_a_forged_stage_is_refused(
    copied: Path, small_trunk: DemoFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(copied, STAGES, lambda s: renamed("mu_squared", CODE)(s["folded"]), signed=True)
    assert run(["verify", str(copied), "--data", str(small_trunk.eval)]) == 2
    said = capsys.readouterr().err
    assert "stages.json: folded: is not a program" in said
    assert f'.name is "{CODE}"; ' in said
