"""The worked example of docs/targets.md is a valid target that agrees with itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cimtool import cli
from cimtool.hardware.figures import UNITS
from cimtool.hardware.settings import Overrides
from cimtool.hardware.target import Target, target_names

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "targets.md").read_text()


def test_the_worked_example_is_checked_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = PAGE.partition("test_docs_targets.py -->")[2]
    example = re.search(r"```toml\n(.*?)```", marked, re.DOTALL)
    printed = re.search(r"\$ cimtool targets check my-macro.toml\n((?:    .*\n)+)", marked)
    sentence = re.search(r"    (my-macro.toml: throughput = 2.05 .*)\n", marked)
    assert example is not None
    assert printed is not None
    assert sentence is not None
    monkeypatch.chdir(tmp_path)
    Path("my-macro.toml").write_text(example[1])
    assert cli.run(["targets", "check", "my-macro.toml"]) == 0
    expected = "".join(line.removeprefix("    ") for line in printed[1].splitlines(keepends=True))
    assert capsys.readouterr().out == expected
    Path("my-macro.toml").write_text(example[1].replace("value = 1.024", "value = 2.05"))
    assert cli.run(["targets", "check", "my-macro.toml"]) == 2
    assert capsys.readouterr().err == f"cimtool: error: {sentence[1]}\n"


def test_every_target_quantity_key_and_setting_is_on_the_page() -> None:
    assert [name for name in target_names() if f"| `{name}`" not in PAGE] == []
    assert [quantity for quantity in UNITS if f"`{quantity}`" not in PAGE] == []
    array = Target.model_fields["array"].annotation
    assert array is not None
    assert [key for key in array.model_fields if f"`array.{key}`" not in PAGE] == []
    settings = [key for key in Overrides.model_fields if key != "layers"]
    assert [key for key in settings if f"`{key}`" not in PAGE and f"\n{key} = " not in PAGE] == []
