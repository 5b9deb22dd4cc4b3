"""`cimtool targets compare`: a command of another room's group, its page, its mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool.demo.data import DemoFiles


def arguments(files: DemoFiles, output: Path, *what: object) -> list[object]:
    return [
        "targets", "compare", *what, "--poly", files.poly, "--calibration", files.calibration,
        "--data", files.eval, "-o", output,
    ]  # fmt: skip


def test_a_model_on_two_targets(
    cimtool: Callable[..., Any], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    given = arguments(small_trunk, output, small_trunk.projectors, "isaac-rram-128", "ideal")
    ran = cimtool(*given, "--gallery", 1000, "--budget", "r1_loss=0.5")
    assert ran.status == 0, ran.err
    said = " ".join(ran.out.split())
    assert "keep r1_loss up to 0.5; a query among 1,000 items takes least on isaac-rram-128" in said
    assert {one.name for one in output.iterdir()} >= {"results.json", "targets.html", "points"}
    assert "isaac-rram-128" in (output / "targets.html").read_text()
    values = json.loads((output / "results.json").read_text())
    assert values["gallery"] == 1000
    assert {row["target"] for row in values["rows"]} == {"isaac-rram-128", "ideal"}


def test_the_group_lists_and_explains_it(cimtool: Callable[..., Any]) -> None:
    shown = cimtool("targets", "--help").out
    assert "Compare what a model retrieves" in shown
    assert all(f"  {name} " in shown for name in ("check", "import", "list", "show", "compare"))
    assert "MODEL [TARGET]..." in cimtool("targets", "compare", "--help").out
    assert 'did you mean "compare"?' in cimtool("targets", "compar", "x").sentence


@pytest.mark.parametrize(
    ("what", "more", "sentence"),
    [
        (("ideal", "ideal"), (), "ideal: the target is given twice; expected it once"),
        (("idael",), (), 'did you mean "ideal"?'),
        (("ideal",), ("--gallery", 0), "--gallery"),
        (("ideal",), ("--gallery", 10**13), "--gallery is 10,000,000,000,000; expected 2 to"),
        (("ideal",), ("--budget", "r1=1"), '--budget metric "r1" is not known'),
    ],
)
def test_a_mistake_is_one_sentence(
    what: tuple[str, ...],
    more: tuple[object, ...],
    sentence: str,
    cimtool: Callable[..., Any],
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    ran = cimtool(*arguments(small_trunk, tmp_path / "out", small_trunk.projectors, *what), *more)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.sentence
    assert not list(tmp_path.iterdir())


def test_one_onnx_file_is_no_model(
    cimtool: Callable[..., Any], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    ran = cimtool(*arguments(small_trunk, tmp_path / "out", "text.onnx", "ideal"))
    assert ran.status == 2
    assert "one ONNX file is one projector; expected two" in ran.sentence
